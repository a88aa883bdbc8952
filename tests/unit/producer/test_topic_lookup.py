"""Waits for topics: who says so, what ends them, and what a topic that stays away costs."""

import asyncio
from types import SimpleNamespace

import pytest
from fakes.loop import turns

from kafka_actors.base.topics import check_topics
from kafka_actors.cluster.future import Future
from kafka_actors.errors import (
    ConfigError,
    KafkaTimeoutError,
    NoBrokersError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from kafka_actors.producer.topic_lookup import TopicLookup

UNKNOWN, FORBIDDEN = 3, 29


class Cluster:
    """A client whose metadata requests are answered one after the other: with partitions of `orders`, an error code, or never (None, and where no
    answer is left).

    `first` are those about new topics alone. An update of all that are tracked is paced: it takes a second."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0
        self.first = []
        self.tracked = set()
        self.lost = False
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
        return topic in self.tracked

    def add_topic(self, topic):
        check_topics([topic])
        self.tracked.add(topic)
        return Future()  # of an update of all, which nobody waits for

    def _answer(self):
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            return False
        self.code, self.partitions = (answer, None) if isinstance(answer, int) else (0, answer)
        return True

    async def fetch_metadata(self, topics):
        self.first.append(sorted(topics))
        if self.lost:
            self.lost = False
            raise NoBrokersError("none answers")
        if not self._answer():
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    def request_update(self):
        self.time += 1.0
        answered = Future()
        if self._answer():
            answered.success(self)
        return answered


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


def test_a_new_topic_is_asked_for_alone_and_at_once():
    """An update of all topics would wait for `retry_backoff_ms` since the last one, and grow with each of them."""
    cluster = Cluster({0})
    asyncio.run(lookup(cluster).learn("orders", 200.0))
    assert (cluster.first, cluster.tracked, cluster.time) == ([["orders"]], {"orders"}, 100.0)


def test_topics_that_come_while_others_are_asked_for_are_asked_for_together():
    cluster = Cluster({0}, {0})

    async def learn():
        topics = lookup(cluster)
        await asyncio.gather(*(topics.learn(name, 200.0) for name in ("a", "b", "c", "a", "b")))

    cluster.partitions_for_topic = lambda topic: (
        {0} if any(topic in names for names in cluster.first) else None
    )
    asyncio.run(learn())
    assert (cluster.first, cluster.time) == ([["a"], ["b", "c"]], 100.0)


def test_where_nobody_answers_the_clients_next_update_is_waited_for():
    cluster = Cluster({0})
    cluster.lost = True
    asyncio.run(lookup(cluster).learn("orders", 200.0))
    assert (cluster.first, cluster.time) == ([["orders"]], 101.0)


def test_one_that_gives_up_costs_the_others_nothing_but_a_request():
    cluster = Cluster(None, {0})

    async def learn():
        topics = lookup(cluster)
        first = asyncio.create_task(topics.learn("a", 100.02))
        await turns(2)
        other = asyncio.create_task(topics.learn("b", 200.0))
        with pytest.raises(KafkaTimeoutError):
            await first
        await other

    asyncio.run(learn())
    assert cluster.first == [["a"], ["b"]]


def test_a_name_that_no_topic_can_have_ends_the_wait():
    with pytest.raises(ConfigError, match="topic"):
        asyncio.run(lookup(Cluster()).learn("no good", 200.0))


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
        asyncio.run(lookup(Cluster()).learn("orders", 100.05))


def test_a_topic_that_was_missing_for_long_enough_is_not_waited_for_again_for_as_long():
    cluster = Cluster(*[UNKNOWN] * 9)
    topics = lookup(cluster, missing_s=2.5)
    with pytest.raises(UnknownTopicOrPartitionError, match="create it, or check its name"):
        asyncio.run(topics.learn("orders", 200.0))
    assert cluster.asked == 4
    with pytest.raises(UnknownTopicOrPartitionError):
        asyncio.run(topics.learn("orders", 200.0))
    assert cluster.asked == 4
    cluster.time += 3.0
    cluster.answers = [{0}]
    asyncio.run(topics.learn("orders", 200.0))
    assert cluster.asked == 5
