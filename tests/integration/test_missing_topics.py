"""Topics that are written to and aren't there: named at once, by sinks and by consumers."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from pace import this_run
from waiting import until

from kafka_actors.config import ClientConfig
from kafka_actors.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from kafka_actors.producer import Producer
from kafka_actors.sinks import DeadLetters, KafkaSink
from kafka_actors.sinks.kafka import TargetProducer, producer_config
from kafka_actors.sinks.sink import Origin

MISSPELT = "misspelt"
MISSING_S = TargetProducer.__dict__["_missing_s"] / 3
"""Seconds for which a topic may be unknown here: a third of what is so by default."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(TargetProducer, "_missing_s", MISSING_S)


@pytest.fixture
def connection(cluster):
    return ClientConfig(bootstrap_servers=[cluster.bootstrap_servers])


def test_a_sink_whose_topic_is_not_there_does_not_open(connection):
    began = time.monotonic()
    with pytest.raises(UnknownTopicOrPartitionError, match="for misspelt: the sink's topic is not there on"):
        KafkaSink(MISSPELT).open(connection)
    with pytest.raises(UnknownTopicOrPartitionError, match="the dead-letter topic is not there on"):
        DeadLetters(producer_config(connection, {}), MISSPELT, "g")
    assert this_run().quiet_s(began, time.monotonic()) < 2 * MISSING_S + 10


def test_without_the_right_to_see_the_topic_it_opens_with_a_warning(connection, monkeypatch, caplog):
    def refused(producer, topic):
        raise TopicAuthorizationFailedError(topic=topic)

    monkeypatch.setattr(Producer, "partitions_for", refused)
    KafkaSink(MISSPELT).open(connection).close()
    assert "the sink's topic can't be checked before the start: TOPIC_AUTHORIZATION_FAILED" in caplog.text


def test_a_topic_of_a_column_is_looked_at_when_it_is_first_seen(connection, kafka_topic, cluster):
    there = kafka_topic()
    writer = KafkaSink().open(connection)

    def write(topic):
        writer.write(pa.record_batch({"value": [b"v"], "topic": [topic]}), Origin("t", 0, 0, 0))

    try:
        write(there)
        began = time.monotonic()
        with pytest.raises(UnknownTopicOrPartitionError, match="there is no such topic"):
            write(MISSPELT)
        looked = time.monotonic()
        assert this_run().quiet_s(began, looked) < MISSING_S + 10
        for _ in range(200):  # as a guard that looks for the rows at fault
            with pytest.raises(UnknownTopicOrPartitionError):
                write(MISSPELT)
        assert this_run().quiet_s(looked, time.monotonic()) < MISSING_S + 10  # of 200 times MISSING_S
        write(there)
        writer.flush()
        assert cluster.end_offsets(there) == {(there, 0): 2}
    finally:
        writer.close()


def test_a_topic_that_is_made_meanwhile_is_written_to(connection, cluster, kafka_topic, monkeypatch):
    monkeypatch.setattr("kafka_actors.sinks.kafka.TargetProducer._missing_s", 0.2)
    writer = KafkaSink().open(connection)
    topic = f"{kafka_topic()}-later"
    batch = pa.record_batch({"value": [b"v"], "topic": [topic]})

    def written():
        try:
            writer.write(batch, Origin("t", 0, 0, 0))
        except UnknownTopicOrPartitionError:  # an answer of before the topic was there came late
            return False
        return True

    try:
        assert not written()
        cluster.create_topic(topic)
        until(written, 20, "the topic to be found", pause=0.3)
        writer.flush()
    finally:
        writer.close()
