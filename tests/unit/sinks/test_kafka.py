"""A target topic is looked at before anything is written, and errors that a retry would only repeat are known."""

import logging

import pytest

from kafka_actors.config import ClientConfig, ProducerConfig
from kafka_actors.errors import (
    ConfigError,
    DeliveryTimeoutError,
    DisconnectedError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    SinkError,
    StageError,
    TopicAuthorizationFailedError,
    UndeliveredError,
    UnknownProducerIdError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.sinks import KafkaSink
from kafka_actors.sinks.kafka import SINK_TOPIC, check_target, is_final, producer_config, producer_to
from kafka_actors.types import TopicPartition

CONFIG = ProducerConfig(bootstrap_servers=("a:1", "b:2"))


class FakeProducer:
    """A producer that knows topics, or raises `error` when it is asked for one."""

    def __init__(self, error=None):
        self.error = error
        self.looked_up = []
        self.closed = []

    def partitions_for(self, topic):
        self.looked_up.append(topic)
        if self.error is not None:
            raise self.error
        return {0}

    def close(self, *, timeout_ms):
        self.closed.append(timeout_ms)


@pytest.fixture
def made(monkeypatch):
    """Has the producer that the next call makes."""

    def make(error=None):
        producer = FakeProducer(error)
        monkeypatch.setattr("kafka_actors.sinks.kafka.producer_of", lambda *_: producer)
        return producer

    return make


def test_a_topic_that_exists_is_written_to(made):
    producer = made()
    assert producer_to(CONFIG, "scored", SINK_TOPIC) is producer
    assert (producer.looked_up, producer.closed) == (["scored"], [])


def test_topics_that_the_rows_name_are_not_looked_up(made):
    producer = made()
    producer_to(CONFIG, None, SINK_TOPIC)
    assert producer.looked_up == []


def test_a_missing_topic_is_named_with_the_servers_and_its_producer_closed(made):
    producer = made(UnknownTopicOrPartitionError(topic="scored"))
    with pytest.raises(
        UnknownTopicOrPartitionError, match="the sink's topic is not there on a:1, b:2: create it"
    ) as raised:
        producer_to(CONFIG, "scored", SINK_TOPIC)
    assert raised.value.topic == "scored"
    assert producer.closed == [0]


def test_a_topic_that_may_not_be_described_may_still_be_written_to(made, caplog):
    producer = made(TopicAuthorizationFailedError(topic="scored"))
    with caplog.at_level(logging.WARNING):
        assert producer_to(CONFIG, "scored", SINK_TOPIC) is producer
    assert "the sink's topic can't be checked before the start" in caplog.text
    assert producer.closed == []


def test_other_errors_close_the_producer(made):
    producer = made(DisconnectedError("gone"))
    with pytest.raises(DisconnectedError):
        producer_to(CONFIG, "scored", SINK_TOPIC)
    assert producer.closed == [0]


def test_a_check_leaves_no_producer_behind(made):
    producer = made()
    check_target(CONFIG, "scored", SINK_TOPIC)
    assert (producer.looked_up, producer.closed) == (["scored"], [0])
    check_target(CONFIG, None, SINK_TOPIC)
    assert producer.looked_up == ["scored"]


def _caused(error, cause):
    error.__cause__ = cause
    return error


TOO_LARGE = MessageTooLargeError()
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (TOO_LARGE, True),
        (DisconnectedError("gone"), False),
        (DeliveryTimeoutError("t", 0, 1, 120_000, True), False),
        (UnknownServerError(), False),
        (OutOfOrderSequenceNumberError(), False),
        (UnknownProducerIdError(), False),
        (UnknownTopicOrPartitionError(topic="t"), True),  # raised only after the wait for a new topic
        (_caused(SinkError("s", "m"), TOO_LARGE), True),
        (_caused(SinkError("s", "m"), DisconnectedError("gone")), False),
        (SinkError("s", "m"), False),
        (_caused(StageError("s", "t", 0, 1, 2, 1, "m"), ValueError("v")), False),
        (ValueError("of a user's code"), False),
        (None, False),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bool) else str(value),
)
def test_an_error_is_final_where_the_same_records_would_raise_it_again(error, final):
    assert is_final(error) is final


def test_undelivered_records_are_final_only_if_all_of_them_are():
    assert is_final(UndeliveredError(2, {T0: TOO_LARGE, T1: TOO_LARGE}))
    assert not is_final(UndeliveredError(2, {T0: TOO_LARGE, T1: DisconnectedError("gone")}))


def test_a_sink_has_the_jobs_cluster_unless_it_names_another():
    job = ClientConfig(bootstrap_servers=("a:1",), client_id="job")
    own = producer_config(job, {"linger_ms": 7})
    assert (own.bootstrap_servers, own.client_id, own.linger_ms) == (["a:1"], "job", 7)
    assert producer_config(job, {"bootstrap_servers": ("z:9",)}).bootstrap_servers == ["z:9"]


def test_a_topic_name_that_can_not_be_is_refused_at_once():
    with pytest.raises(ConfigError, match=r"^topic: "):
        KafkaSink("a b")
