"""Waits for topics: who says so, what ends them, and what a topic that stays away costs."""

import asyncio
from types import SimpleNamespace

import pytest

from kafka_actors.cluster.future import Future
from kafka_actors.errors import (
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from kafka_actors.producer.topic_lookup import TopicLookup

UNKNOWN, FORBIDDEN = 3, 29


class Cluster:
    """A client whose metadata requests are answered one after the other: with partitions of `orders`, an error code, or never."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0
        self.code = 0
        self.partitions = None
        self.time = 100.0
        self.cluster = self
        self.snapshot = SimpleNamespace(topic_error=lambda topic: self.code)

    def now(self):
        return self.time

    def partitions_for_topic(self, topic):
        return self.partitions

    def tracks(self, topic):
        return self.asked > 0

    def add_topic(self, topic):
        self.asked += 1
        self.time += 1.0
        answered = Future()
        if self.answers:
            answer = self.answers.pop(0)
            self.code, self.partitions = (answer, None) if isinstance(answer, int) else (0, answer)
            answered.success(self)
        return answered

    def request_update(self):
        return self.add_topic("orders")


def lookup(cluster, *, missing_s=None, ended=None):
    return TopicLookup(cluster, 60_000, missing_s, lambda: ended)


def test_what_is_known_asks_nobody():
    cluster = Cluster()
    cluster.partitions = {0, 1}
    asyncio.run(lookup(cluster).learn("orders", 200.0, 1))
    assert cluster.asked == 0


def test_a_topic_is_asked_for_until_it_is_there():
    cluster = Cluster(UNKNOWN, UNKNOWN, {0})
    asyncio.run(lookup(cluster).learn("orders", 200.0))
    assert cluster.asked == 3


def test_for_a_partition_that_is_missing_metadata_is_asked_for_once():
    cluster = Cluster({0})
    cluster.partitions = {0}
    asyncio.run(lookup(cluster).learn("orders", 200.0, 7))
    assert cluster.asked == 1


def test_an_error_that_no_waiting_mends_ends_the_wait():
    with pytest.raises(TopicAuthorizationFailedError):
        asyncio.run(lookup(Cluster(FORBIDDEN)).learn("orders", 200.0))


def test_a_producer_that_has_ended_waits_for_nothing():
    cluster = Cluster({0})
    with pytest.raises(UsageError, match="closed"):
        asyncio.run(lookup(cluster, ended=UsageError("closed")).learn("orders", 200.0))
    assert cluster.asked == 0


def test_the_deadline_ends_it():
    with pytest.raises(
        KafkaTimeoutError,
        match=r"topic 'orders' is not in the cluster's metadata within max_block_ms \(60000\)",
    ):
        asyncio.run(lookup(Cluster()).learn("orders", 101.05))


def test_a_topic_that_was_missing_for_long_enough_is_not_waited_for_again_for_as_long():
    cluster = Cluster(*[UNKNOWN] * 9)
    topics = lookup(cluster, missing_s=2.5)
    with pytest.raises(UnknownTopicOrPartitionError, match="create it, or check its name"):
        asyncio.run(topics.learn("orders", 200.0))
    assert cluster.asked == 3
    with pytest.raises(UnknownTopicOrPartitionError):
        asyncio.run(topics.learn("orders", 200.0))
    assert cluster.asked == 3
    cluster.time += 3.0
    cluster.answers = [{0}]
    asyncio.run(topics.learn("orders", 200.0))
    assert cluster.asked == 4
