"""A consumer's topics against the cluster's metadata: unknown, refused and deleted ones."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_actors.cluster import SubscriptionState
from kafka_actors.config import ConsumerConfig
from kafka_actors.consumer.subscribed_topics import ConsumerTopics
from kafka_actors.errors import (
    KafkaTimeoutError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.net import KafkaClient
from kafka_actors.types import OffsetAndMetadata, TopicPartition

UNKNOWN, REFUSED = UnknownTopicOrPartitionError.code, TopicAuthorizationFailedError.code


class Snapshot:
    """Topics with their partitions, or the error code that metadata has of them."""

    def __init__(self, topics: dict[str, set[int] | int]) -> None:
        self._topics = topics
        self.topics = {
            name: SimpleNamespace(
                error_code=found if isinstance(found, int) else 0,
                partitions={} if isinstance(found, int) else dict.fromkeys(found),
            )
            for name, found in topics.items()
        }

    def topic_error(self, topic: str) -> int:
        found = self._topics.get(topic, 0)
        return found if isinstance(found, int) else 0

    def topic_id(self, topic: str) -> bytes | None:
        return None

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        found = self._topics.get(topic)
        return found if isinstance(found, set) else None


class Client:
    """A client that tracks some topics; the brokers may know more. `node`: a broker that can be asked."""

    def __init__(
        self, known: dict[str, set[int] | int], brokers: dict[str, set[int] | int] | None = None
    ) -> None:
        self.snapshot = Snapshot(known)
        self.brokers = Snapshot(known if brokers is None else brokers)
        self.fetched: list[list[str]] = []
        self.node: int | None = 1
        self.listed: list[Any] = []

    def tracks(self, topic: str) -> bool:
        return topic in self.snapshot.topics

    async def fetch_metadata(self, topics: Any) -> Snapshot:
        self.fetched.append(list(topics))
        return self.brokers

    def least_loaded_node(self) -> int | None:
        return self.node

    async def update_metadata(self) -> None:
        pass

    async def send(self, node: int, request: Any) -> Any:
        assert (node, request.topics) == (1, None)
        return SimpleNamespace(topics=self.listed)


class Checked:
    """The topics of a consumer that subscribes to these."""

    def __init__(self, client: Client, *subscribed: str, **options: Any) -> None:
        self.subscription = subscription = SubscriptionState()
        if subscribed:
            subscription.subscribe(subscribed)
        self.errors: list[Exception | None] = []
        self.topics = ConsumerTopics(
            cast(KafkaClient, client),
            ConsumerConfig(group_id="g", **options),
            subscription,
            on_checked=self.errors.append,
        )


def test_an_unknown_topic_is_warned_of_once_each_time_that_it_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client({"a": {0}, "b": UNKNOWN})
    made = Checked(client, "a", "b")
    with caplog.at_level(logging.WARNING):
        made.topics.check()
        made.topics.check()
        assert [message.startswith("there is no topic 'b'") for message in caplog.messages] == [True]
        client.snapshot = Snapshot({"a": {0}, "b": {0}})
        made.topics.check()
        client.snapshot = Snapshot({"a": {0}, "b": UNKNOWN})
        made.topics.check()
    assert len(caplog.messages) == 2
    assert made.errors == [None] * 4


def test_an_assigned_partition_that_its_topic_lacks_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client({"a": {0, 1}, "b": LeaderNotAvailableError.code})
    made = Checked(client)
    made.subscription.assign_from_user(
        [TopicPartition("a", 1), TopicPartition("a", 9), TopicPartition("b", 0)]
    )
    with caplog.at_level(logging.WARNING):
        made.topics.check()
        made.topics.check()
        client.snapshot = Snapshot({"a": set(range(10))})
        made.topics.check()
    assert caplog.messages == [
        "a has no partition 9: it has 2: nothing is read of it until somebody adds it; check its number"
    ]


def test_a_topic_that_may_not_be_read_ends_the_work_and_a_passing_error_does_not() -> None:
    client = Client({"a": REFUSED, "b": LeaderNotAvailableError.code})
    made = Checked(client, "a", "b")
    made.topics.check()
    client.snapshot = Snapshot({"a": {0}, "b": LeaderNotAvailableError.code})
    made.topics.check()
    (error, then) = made.errors
    assert isinstance(error, TopicAuthorizationFailedError)
    assert "a" in str(error)
    assert then is None


def test_partitions_of_a_topic_that_isnt_tracked_are_asked_for() -> None:
    client = Client({"a": {0, 1}}, {"b": {0}})
    topics = Checked(client).topics
    assert asyncio.run(topics.partitions_for("a")) == {0, 1}
    assert client.fetched == []
    assert asyncio.run(topics.partitions_for("b")) == {0}
    assert asyncio.run(topics.partitions_for("c")) is None
    assert client.fetched == [["b"], ["c"]]


@pytest.mark.parametrize(("exclude", "names"), [(True, {"a"}), (False, {"a", "__offsets"})])
def test_names_are_those_that_may_be_read(exclude: bool, names: set[str]) -> None:
    client = Client({})
    client.listed = [
        SimpleNamespace(name="a", error_code=0, is_internal=False),
        SimpleNamespace(name="__offsets", error_code=0, is_internal=True),
        SimpleNamespace(name="refused", error_code=REFUSED, is_internal=False),
        SimpleNamespace(name=None, error_code=0, is_internal=False),
    ]
    assert asyncio.run(Checked(client, exclude_internal_topics=exclude).topics.names()) == names


def test_without_a_broker_there_are_no_names() -> None:
    client = Client({})
    client.node = None
    with pytest.raises(KafkaTimeoutError, match="no broker can be asked"):
        asyncio.run(Checked(client).topics.names())


def offsets(*partitions: tuple[str, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(*tp): OffsetAndMetadata(5) for tp in partitions}


def test_a_commit_of_a_partition_that_doesnt_exist_is_refused_before_it_is_sent() -> None:
    client = Client({"a": {0, 1}})
    topics = Checked(client).topics
    asyncio.run(topics.check_partitions(offsets(("a", 0), ("unknown", 9))))
    assert client.fetched == [], "of a topic that nobody knows the coordinator may know more"
    with pytest.raises(UnknownTopicOrPartitionError, match="the topic has 2 partitions"):
        asyncio.run(topics.check_partitions(offsets(("a", 0), ("a", 2))))


def test_a_commit_of_thousands_of_partitions_makes_no_set_of_them_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 5,000 partitions each commit, and each assignment, took the loop's time for seconds, and the session ended."""
    monkeypatch.setattr(Snapshot, "partitions_for_topic", lambda *_: pytest.fail("is asked for each"))
    wanted = offsets(*(("a", number) for number in range(1_000)), ("unknown", 9))

    asyncio.run(Checked(Client({"a": set(range(1_000))})).topics.check_partitions(wanted))


def test_partitions_that_came_after_the_last_look_at_the_metadata_can_be_committed() -> None:
    client = Client({"a": {0}}, {"a": {0, 1}})
    asyncio.run(Checked(client).topics.check_partitions(offsets(("a", 1))))
    assert client.fetched == [["a"]]


def test_offsets_of_deleted_topics_and_partitions_are_left_out() -> None:
    client = Client({"a": {0}, "gone": UNKNOWN})
    topics = Checked(client).topics
    wanted = offsets(("a", 0), ("a", 1), ("gone", 0), ("elsewhere", 0))
    assert topics.existing(wanted) == offsets(("a", 0), ("elsewhere", 0)), "what isn't tracked may exist"
