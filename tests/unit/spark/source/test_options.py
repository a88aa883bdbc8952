"""Options of the batch source: names, defaults and refusals are those of Spark's own Kafka source."""

import pickle
import re
import threading
from pathlib import Path

import pytest
from fakes.spark_options import BASE, orders, refusal

from kafka_actors.errors import ConfigError
from kafka_actors.spark.source.machines.offset_ranges import (
    CommittedBound,
    LogEnd,
    SpecificOffsets,
    SpecificTimestamps,
)
from kafka_actors.spark.source.options import _NAMES, StreamOptions, parse_batch, parse_stream
from kafka_actors.spark.source.selection import SubscribeTopics
from kafka_actors.spark.source.sink_options import _WRITE_NAMES as SINK_NAMES


def test_the_defaults_are_those_of_spark_in_batch() -> None:
    parsed = orders()
    assert parsed.selection == SubscribeTopics(("orders",))
    assert (parsed.start, parsed.end) == (LogEnd.EARLIEST, LogEnd.LATEST)
    assert parsed.fail_on_data_loss
    assert not parsed.include_headers
    assert parsed.no_match == "error"
    assert (parsed.min_partitions, parsed.max_records_per_partition) == (None, None)
    assert (parsed.poll_timeout_ms, parsed.lookup_retries, parsed.lookup_retry_interval_ms) == (
        120_000,
        3,
        1_000,  # Spark's code; its page says 10
    )
    assert parsed.consumer.isolation_level == "read_uncommitted"
    assert parsed.notes == ()


def test_times_that_no_thread_can_wait_for_are_as_long_as_it_can() -> None:
    java = str(2**63 - 1)
    parsed = orders(kafkaConsumer__pollTimeoutMs=java, fetchOffset__retryIntervalMs=java)
    waits = parsed.poll_timeout_ms / 1000, parsed.lookup_retry_interval_ms / 1000
    assert all(10**8 < seconds < threading.TIMEOUT_MAX for seconds in waits)


def test_names_are_case_insensitive_and_errors_give_the_documented_one() -> None:
    assert orders(INCLUDEHEADERS="TRUE", kafkaconsumer__polltimeoutms="5").poll_timeout_ms == 5
    assert refusal({**BASE, "subscribe": "a", "minpartitions": "x"}).option == "minPartitions"


def test_options_travel_to_the_executors() -> None:
    parsed = orders(startingOffsets='{"orders":{"0":5}}', endingTimestamp="7")
    assert pickle.loads(pickle.dumps(parsed)) == parsed


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("startingOffsets", "latest", "can't be 'latest' in a batch read"),
        ("startingOffsets", " LATEST ", "can't be 'latest' in a batch read"),
        ("startingOffsets", '{"orders":{"0":-1}}', "has -1 (latest) for orders-0"),
        ("startingOffsets", '{"orders":{"0":-3}}', "has -3 for orders-0"),
        ("startingOffsets", "first", "accepts JSON"),
        ("endingOffsets", "earliest", "can't be 'earliest' in a batch read"),
        ("endingOffsets", '{"orders":{"0":-2}}', "has -2 (earliest) for orders-0"),
        ("endingOffsets", '{"orders":{"zero":1}}', "accepts JSON"),
        ("endingOffsets", '{"orders":{"0":1.5}}', "accepts JSON"),
        ("startingTimestamp", "-1", "accepts a whole number"),
        ("startingTimestamp", "yesterday", "accepts a whole number"),
        ("startingOffsetsByTimestamp", '{"orders":{"0":-1}}', "accepts milliseconds"),
        ("endingOffsetsByTimestamp", "1000", "accepts JSON"),
        ("startingOffsetsByTimestampStrategy", "earliest", "accepts 'error' or 'latest'"),
        ("failOnDataLoss", "no", "accepts 'true' or 'false'"),
        ("includeHeaders", "", "accepts 'true' or 'false'"),
        ("minPartitions", "0", "from 1 to"),
        ("maxRecordsPerPartition", "1e3", "accepts a whole number"),
        ("kafkaConsumer.pollTimeoutMs", "0", "from 1 to"),
        ("fetchOffset.numRetries", "-1", "from 0 to"),
    ],
)
def test_a_value_that_cannot_be_names_its_option(name: str, value: str, says: str) -> None:
    error = refusal({**BASE, "subscribe": "orders", name: value})
    assert error.option == name
    assert says in error.message


def test_an_end_below_its_start_is_refused() -> None:
    start, end = '{"orders":{"0":10}}', '{"orders":{"0":9}}'
    error = refusal({**BASE, "subscribe": "orders", "startingOffsets": start, "endingOffsets": end})
    assert error.option == "endingOffsets"
    assert "9 for orders-0, below its startingOffsets, 10" in error.message


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    assert "did you mean 'startingOffsets'?" in str(
        refusal({**BASE, "subscribe": "a", "startingOffset": "earliest"})
    )
    assert "start with 'kafka.'" in str(refusal({**BASE, "subscribe": "a", "fetch.max.bytes": "1"}))
    assert "did you mean 'kafka.fetch.max.bytes'?" in str(
        refusal({**BASE, "subscribe": "a", "kafka.fetch.maxbytes": "1"})
    )


@pytest.mark.parametrize("name", ["path", "topic", "topics"])
def test_what_names_topics_elsewhere_is_refused_with_what_does_here(name: str) -> None:
    """`path` is what `.load(…)` is given."""
    assert str(refusal({**BASE, name: "a"})) == f"{name}: is not an option; topics are named by subscribe"


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_streaming_limits_are_passed_over_with_a_note_as_in_spark(name: str) -> None:
    assert orders(**{name: "10"}).notes == (f"{name} has no effect in a batch read",)


def test_kafka_options_reach_the_consumer() -> None:
    consumer = orders(
        kafka__isolation__level="read_committed",
        kafka__fetch__max__bytes="1000000",
        kafka__check__crcs="false",
        kafka__client__id="me ",  # Java trims it
        kafka__receive__buffer__bytes="-1",
    ).consumer
    assert consumer.bootstrap_servers == ["localhost:9092"]
    assert (consumer.isolation_level, consumer.fetch_max_bytes, consumer.check_crcs) == (
        "read_committed",
        1_000_000,
        False,
    )
    assert (consumer.client_id, consumer.receive_buffer_bytes) == ("me", None)


def test_what_has_no_meaning_here_is_noted() -> None:
    parsed = orders(kafka__group__id="g", kafka__max__poll__records="1000", groupIdPrefix="p")
    assert parsed.notes == (
        "groupIdPrefix has no effect: no consumer group is joined",
        "kafka.group.id has no effect here",
        "kafka.max.poll.records has no effect here",
    )


@pytest.mark.parametrize(
    "key",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
    ],
)
def test_the_keys_that_spark_forbids_are_forbidden(key: str) -> None:
    error = refusal({**BASE, "subscribe": "a", f"kafka.{key}": "x"})
    assert error.option == f"kafka.{key}"
    assert "is not supported" in error.message


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "host:nine"}, "kafka.bootstrap.servers"),
        ({**BASE, "kafka.isolation.level": "serializable"}, "kafka.isolation.level"),
        ({**BASE, "kafka.isolation.lewel": "read_committed"}, "kafka.isolation.lewel"),
        ({**BASE, "kafka.security.protocol": "TLS"}, "kafka.security.protocol"),
        ({**BASE, "kafka.ssl.truststore.location": "/x"}, "kafka.ssl.truststore.location"),
        ({**BASE, "kafka.sasl.jaas.config": "secret"}, "kafka.sasl.jaas.config"),
    ],
)
def test_a_kafka_option_that_cannot_be_is_named_as_it_was_given(options: dict[str, str], option: str) -> None:
    error = refusal({"subscribe": "a", **options})
    assert error.option == option
    assert "secret" not in str(error)


INTERNAL = {"kafka.exclude.internal.topics": "False"}


def test_internal_topics_by_a_pattern_are_refused() -> None:
    pattern = {"kafka.bootstrap.servers": BASE["kafka.bootstrap.servers"], "subscribePattern": ".*"}
    says = "kafka.exclude.internal.topics: is false: a pattern matches no internal topic here; name them in subscribe"
    assert str(refusal({**pattern, **INTERNAL})) == says
    with pytest.raises(ConfigError, match=re.escape(says)):
        parse_stream({**pattern, **INTERNAL}, limits=True)
    parse_batch({**pattern, "kafka.exclude.internal.topics": "true"})
    parse_batch({**BASE, "subscribe": "__consumer_offsets", **INTERNAL})


def test_what_sparks_catalog_adds_to_a_tables_options_is_passed_over() -> None:
    # As seen from CREATE TABLE … USING kafka_actors OPTIONS (…).
    given = {"provider": "kafka_actors", "owner": "me", "subscribe": "orders", "option.subscribe": "orders"}
    given |= {f"{prefix}kafka.bootstrap.servers": "a:1" for prefix in ("", "option.")}
    parsed = parse_batch(given)
    assert parsed.selection == SubscribeTopics(("orders",))
    assert parsed.consumer.bootstrap_servers == ["a:1"]


def test_every_error_is_one_line_that_begins_with_the_option() -> None:
    assert re.match(
        r"^minPartitions: is 'many': accepts ",
        str(refusal({**BASE, "subscribe": "a", "minPartitions": "many"})),
    )


# ---------------------------------------------------------------- streams


def stream(**options: str) -> StreamOptions:
    given = {**BASE, "subscribe": "orders", **{key.replace("__", "."): v for key, v in options.items()}}
    return parse_stream(given, limits=True)


def stream_refusal(*, limits: bool = True, **options: str) -> ConfigError:
    given = {key.replace("__", "."): value for key, value in options.items()}
    with pytest.raises(ConfigError) as caught:
        parse_stream({**BASE, "subscribe": "orders", **given}, limits=limits)
    assert "\n" not in str(caught.value)
    return caught.value


def test_the_defaults_are_those_of_spark_in_a_stream() -> None:
    parsed = stream()
    assert parsed.start is LogEnd.LATEST
    assert (parsed.max_offsets, parsed.min_offsets, parsed.max_trigger_delay_ms) == (None, None, 900_000)
    assert (parsed.fail_on_data_loss, parsed.commit_offsets, parsed.group_id) == (True, False, None)


def test_a_stream_may_start_anywhere() -> None:
    assert stream(startingOffsets="earliest").start is LogEnd.EARLIEST
    both_ends = stream(startingOffsets='{"orders":{"0":-1,"1":-2,"2":7}}').start
    assert isinstance(both_ends, SpecificOffsets)
    assert sorted(both_ends.by_partition.values()) == [-2, -1, 7]
    assert stream(startingTimestamp="9", startingOffsets="latest").start == SpecificTimestamps(
        "startingTimestamp", 9
    )
    assert stream(startingOffsets="Committed", kafka__group__id="g").start == CommittedBound()


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    error = stream_refusal(**{name: "latest"})
    assert error.option == name
    assert "not for a stream" in error.message


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_limits_are_refused_where_spark_is_too_old_for_them(name: str) -> None:
    error = stream_refusal(limits=False, **{name: "10"})
    assert error.option == name
    assert "needs Spark 4.2" in error.message


def test_more_at_least_than_at_most_is_refused() -> None:
    error = stream_refusal(minOffsetsPerTrigger="11", maxOffsetsPerTrigger="10")
    assert str(error) == "minOffsetsPerTrigger: is 11: more than maxOffsetsPerTrigger, 10"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90", 90), ("250ms", 250), ("30s", 30_000), ("15m", 900_000), ("2min", 120_000), ("1 H", 3_600_000)],
)
def test_a_delay_is_written_as_sparks_durations(text: str, milliseconds: int) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


@pytest.mark.parametrize("text", ["", "soon", "15 minutes", "-1s", "1.5s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    assert "accepts a duration such as" in stream_refusal(maxTriggerDelay=text).message


@pytest.mark.parametrize("options", [{"commitOffsets": "true"}, {"startingOffsets": "committed"}])
def test_offsets_of_a_group_need_its_name(options: dict[str, str]) -> None:
    error = stream_refusal(**options)
    assert error.option == next(iter(options))
    assert "kafka.group.id" in error.message


def test_the_group_means_something_where_its_offsets_do() -> None:
    assert stream(kafka__group__id="g").notes == ("kafka.group.id has no effect here",)
    assert stream(kafka__group__id="g", commitOffsets="true").notes == ()
    assert stream(kafka__group__id="g", startingOffsets="committed").notes == ()


def test_a_batch_commits_nothing_and_starts_where_it_says() -> None:
    error = refusal({**BASE, "subscribe": "a", "commitOffsets": "true", "kafka.group.id": "g"})
    assert error.option == "commitOffsets"
    error = refusal({**BASE, "subscribe": "a", "startingOffsets": "committed", "kafka.group.id": "g"})
    assert error.option == "startingOffsets"


def test_a_streams_options_travel_and_show_no_password() -> None:
    parsed = stream(
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="PLAIN",
        kafka__sasl__plain__username="alice",
        kafka__sasl__plain__password="hush",
    )
    assert pickle.loads(pickle.dumps(parsed)) == parsed
    assert "hush" not in repr(parsed)
    assert "kafka.sasl.plain.password" in repr(parsed)


# ---------------------------------------------------------------- the page


def test_the_page_has_each_option_of_ours_and_of_sparks_own_source_and_sink() -> None:
    """Those that are taken, and with reasons those that are not."""
    page = (Path(__file__).parents[4] / "docs" / "reference" / "spark.md").read_text()
    ours = {*_NAMES, *SINK_NAMES}
    of_spark = {
        "kafka.auto.offset.reset",
        "kafka.enable.auto.commit",
        "kafka.interceptor.classes",
        "kafka.group.id",
        "spark.kafka.consumer.cache.*",
        "spark.kafka.producer.cache.*",
        "spark.kafka.clusters.*",
    }
    assert {name for name in ours | of_spark if f"`{name}`" not in page} == set()
