"""Value types: plain tuples that any client's code takes, with the defaults that Kafka gives the same fields."""

import pickle

import pytest

from kafka_actors import types
from kafka_actors.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    ProducerIdentity,
    TopicPartition,
)


def test_they_are_tuples_and_equal_to_plain_ones():
    assert TopicPartition("t", 1) == ("t", 1)
    assert {("t", 1): "found"}[TopicPartition("t", 1)] == "found"
    topic, partition = TopicPartition("t", 1)
    assert (topic, partition) == ("t", 1)


def test_partitions_sort_by_topic_and_then_by_number():
    found = sorted([TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)])
    assert found == [("a", 9), ("a", 10), ("b", 0)]


def test_what_is_not_said_is_unknown_as_in_kafkas_messages():
    assert OffsetAndMetadata(5) == (5, "", -1)
    assert ConsumerGroupMetadata("g") == ("g", -1, "", None)


@pytest.mark.parametrize(
    "value",
    [
        TopicPartition("t", 1),
        OffsetAndMetadata(1, "m", 2),
        ConsumerGroupMetadata("g", 1, "m", "i"),
        ProducerIdentity("x", 7, 0),
    ],
)
def test_they_travel_to_other_processes_as_what_they_are(value):
    there = pickle.loads(pickle.dumps(value))
    assert there == value
    assert type(there) is type(value)


def test_the_ends_of_a_log_are_kafkas_numbers():
    """ListOffsets' timestamps, and the offsets of Spark's options."""
    assert (types.LATEST, types.EARLIEST) == (-1, -2)
