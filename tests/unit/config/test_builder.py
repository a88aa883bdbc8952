"""Options: names, types, bounds, and what is said where they are wrong."""

import pickle

import pytest

from kafka_actors.config import ClientConfig, ConsumerConfig, JobConfig, ProducerConfig, build
from kafka_actors.config.builder import _LIBRDKAFKAS
from kafka_actors.errors import ConfigError


def test_dotted_and_underscored_names_are_the_same_option():
    dotted = build(ConsumerConfig, {"session.timeout.ms": 6000, "bootstrap.servers": "a:1,b:2"})
    underscored = build(ConsumerConfig, {"session_timeout_ms": 6000}, bootstrap_servers=["a:1", "b:2"])
    assert dotted == underscored
    assert dotted.bootstrap_servers == ["a:1", "b:2"]


def test_text_is_converted_as_kafkas_own_clients_do():
    config = build(ConsumerConfig, {"fetch.max.wait.ms": "250", "check.crcs": "false"})
    assert (config.fetch_max_wait_ms, config.check_crcs) == (250, False)


@pytest.mark.parametrize(
    ("options", "option", "said"),
    [
        ({"sesion_timeout_ms": 1}, "sesion_timeout_ms", "did you mean 'session_timeout_ms'"),
        ({"session_timeout_ms": "soon"}, "session_timeout_ms", "is 'soon'"),
        ({"session_timeout_ms": 0}, "session_timeout_ms", ">= 1"),
        ({"session_timeout_ms": 2**31}, "session_timeout_ms", "<= 2147483647"),
        ({"max_decompressed_batch_bytes": 2**31}, "max_decompressed_batch_bytes", "<= 2147483647"),
        ({"batch_rows": 2**31}, "batch_rows", "<= 2147483647"),
        ({"receive_buffer_bytes": 2**70}, "receive_buffer_bytes", "<= 2147483647"),
        ({"batch_linger_ms": 2**63}, "batch_linger_ms", "<= 9223372036854775807"),
        ({"metadata_max_age_ms": 10**400}, "metadata_max_age_ms", "<= 9223372036854775807"),
        ({"fetch_min_bytes": -1}, "fetch_min_bytes", ">= 0"),
        ({"isolation_level": "READ"}, "isolation_level", "accepts 'read_uncommitted' or 'read_committed'"),
        ({"auto_offset_reset": "oldest"}, "auto_offset_reset", "'earliest', 'latest', 'none'"),
        ({"auto_offset_reset": "by_duration:1h"}, "auto_offset_reset", "not a duration"),
        ({"bootstrap_servers": "host:port"}, "bootstrap_servers", "'port' is not a port"),
        ({"bootstrap_servers": " , "}, "bootstrap_servers", "is empty"),
        ({"group_protocol": "consumer"}, "group_protocol", "KIP-848"),
        ({"group_id": "  "}, "group_id", "is empty"),
        ({"group_id": "g\ud800"}, "group_id", "holds a lone surrogate"),
        ({"group_id": "g" * 40_000}, "group_id", "has 40,000 bytes: a text in Kafka has at most 32,767"),
        ({"group_instance_id": ""}, "group_instance_id", "is empty: None is for a member without one"),
        ({"client_id": "ä" * 20_000}, "client_id", "has 40,000 bytes"),
        ({"client_rack": "\udcff"}, "client_rack", "holds a lone surrogate"),
        ({"bootstrap_servers": "ka\udcff"}, "bootstrap_servers", "holds a lone surrogate"),
        ({"heartbeat_interval_ms": 50_000}, "heartbeat_interval_ms", "lower than session_timeout_ms"),
        ({"partition_assignment_strategy": ""}, "partition_assignment_strategy", "is empty"),
        ({"value_deserializer": bytes}, "value_deserializer", "is not used"),
        ({"drain_timeout_ms": 60_000}, "drain_timeout_ms", "lower than rebalance_timeout_ms"),
        ({"max.poll.records": 500}, "max_poll_records", "batch_rows says of how many"),
        ({"consumer_timeout_ms": 500}, "consumer_timeout_ms", "poll_batch(timeout_ms=…) waits"),
        ({"socket.timeout.ms": 500}, "socket_timeout_ms", "is librdkafka's name of request_timeout_ms"),
        ({"queued.min.messages": 500}, "queued_min_messages", "is librdkafka's name of worker_buffer_bytes"),
        ({"enable.partition.eof": True}, "enable_partition_eof", "end_offsets() says where it is"),
        (
            {"broker.address.family": "v4"},
            "broker_address_family",
            "all addresses of a broker's name are tried",
        ),
        ({"error_cb": print}, "error_cb", "errors are raised"),
        ({"on_commit": print}, "on_commit", "commit() waits"),
        ({"oauth_cb": print}, "oauth_cb", "give sasl_oauth_token_provider"),
        ({"debug": "broker"}, "debug", "logging.getLogger('kafka_actors')"),
        ({"log_level": 7}, "log_level", "logging.getLogger('kafka_actors')"),
        ({"default.topic.config": {}}, "default_topic_config", "give what is in it as options"),
        (
            {"enable.ssl.certificate.verification": False},
            "enable_ssl_certificate_verification",
            "ssl_check_hostname=False, or an ssl_context",
        ),
        ({"statistics.interval.ms": 500}, "statistics_interval_ms", "is not used: give metrics"),
    ],
)
def test_what_is_wrong_names_the_option_and_what_it_accepts(options, option, said):
    with pytest.raises(ConfigError) as caught:
        build(JobConfig, options)
    assert caught.value.option == option
    assert said in str(caught.value)


def test_librdkafkas_names_lead_to_options_that_there_are() -> None:
    known = {*JobConfig.__struct_fields__, *ProducerConfig.__struct_fields__}
    assert set(_LIBRDKAFKAS.values()) <= known
    assert not known & _LIBRDKAFKAS.keys()


def test_an_option_given_twice_with_different_values_is_refused():
    with pytest.raises(ConfigError, match="given twice"):
        build(JobConfig, {"retries": 1}, retries=2)
    assert build(JobConfig, {"retries": 2}, retries=2).retries == 2


def test_by_duration_keeps_its_spelling():
    assert (
        build(ConsumerConfig, auto_offset_reset="by_duration:PT1H30M").auto_offset_reset
        == "by_duration:PT1H30M"
    )


def test_the_defaults_that_design_and_readme_name():
    client, consumer, job = build(ClientConfig), build(ConsumerConfig), build(JobConfig)
    assert client.client_id.startswith("kafka-actors-")
    assert (consumer.auto_offset_reset, job.auto_offset_reset) == ("latest", "earliest")
    assert (consumer.auto_commit_interval_ms, job.auto_commit_interval_ms) == (5_000, 1_000)
    assert (consumer.group_instance_id, job.group_instance_id) == (None, "auto")
    assert (job.rebalance_timeout_ms, job.drain_timeout_ms) == (60_000, 5_000)
    assert consumer.partition_assignment_strategy == ["cooperative-sticky"]


def test_a_config_travels():
    config = build(JobConfig, group_id="g", bootstrap_servers="[::1]:9092")
    assert pickle.loads(pickle.dumps(config)) == config
