"""Planning asks again what brokers may not know yet, `fetchOffset.numRetries` times, `fetchOffset.retryIntervalMs` apart; and other brokers."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_actors.cluster.snapshot import ClusterSnapshot, TopicMetadata
from kafka_actors.errors import (
    KafkaError,
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    TopicAuthorizationFailedError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.net import LATEST, EpochEnd, ListedOffset
from kafka_actors.protocol import MetadataResponse
from kafka_actors.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_actors.spark.source.options import parse_batch, parse_stream
from kafka_actors.spark.source.planning import PlanningBrokers
from kafka_actors.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Lookups:
    """Partition 1 answers at once, partition 0 with an error so many times."""

    def __init__(self, error: KafkaError, times: int) -> None:
        self._error = error
        self._left = times
        self.asked: list[list[TopicPartition]] = []

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], **_: Any
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        self.asked.append(sorted(timestamps))
        answers: dict[TopicPartition, ListedOffset | KafkaError] = {
            tp: ListedOffset(7, -1, -1) for tp in timestamps
        }
        if T0 in answers and self._left:
            self._left -= 1
            answers[T0] = self._error
        return answers

    async def offsets_for_leader_epoch(
        self, epochs: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochEnd | KafkaError]:
        listed = await self.list_offsets({tp: epoch for tp, (_, epoch) in epochs.items()})
        return {
            tp: one if isinstance(one, KafkaError) else EpochEnd(epochs[tp][1], 9)
            for tp, one in listed.items()
        }


class Scene:
    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, error: KafkaError, times: int, **options: str
    ) -> None:
        self.pauses: list[float] = []
        self.lookups = Lookups(error, times)
        given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", **options}
        self.brokers = PlanningBrokers(parse_batch(given))
        monkeypatch.setattr(self.brokers, "_lookups", self.lookups)
        monkeypatch.setattr(asyncio, "sleep", self._pause)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def offsets(self) -> dict[TopicPartition, int]:
        return asyncio.run(self.brokers.offsets({T0: LATEST, T1: LATEST}))


@pytest.mark.parametrize("error", [NotLeaderOrFollowerError(), UnknownServerError()])
def test_a_partition_that_cannot_answer_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError
) -> None:
    scene = Scene(monkeypatch, error, 3)
    assert scene.offsets() == {T0: 7, T1: 7}
    assert scene.lookups.asked == [[T0, T1], [T0], [T0], [T0]]
    assert scene.pauses == [1.0] * 3


def test_so_often_and_so_far_apart_as_the_options_say(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "250"}
    scene = Scene(monkeypatch, NotLeaderOrFollowerError(), 2, **options)
    with pytest.raises(NotLeaderOrFollowerError):
        scene.offsets()
    assert scene.lookups.asked == [[T0, T1], [T0]]
    assert scene.pauses == [0.25]


def test_what_asking_again_will_not_mend_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, TopicAuthorizationFailedError(), 1)
    with pytest.raises(TopicAuthorizationFailedError):
        scene.offsets()
    assert scene.lookups.asked == [[T0, T1]]


def test_the_end_of_an_epoch_is_asked_for_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, NotLeaderOrFollowerError(), 2)
    assert asyncio.run(scene.brokers.epoch_ends({T0: (5, 3), T1: (5, 4)})) == {T0: 9, T1: 9}
    assert scene.lookups.asked == [[T0, T1], [T0], [T0]]
    scene = Scene(monkeypatch, NotLeaderOrFollowerError(), 4)
    with pytest.raises(NotLeaderOrFollowerError):
        asyncio.run(scene.brokers.epoch_ends({T0: (5, 3)}))


def undescribed(brokers: PlanningBrokers, code: int) -> None:
    """Has metadata that have an error in place of the topic's partitions."""
    topic = TopicMetadata("t", error_code=code)
    brokers.client.cluster.restore(ClusterSnapshot(1, None, None, {}, {"t": topic}))


@pytest.mark.parametrize("selection", [{"subscribe": "t"}, {"assign": '{"t": [0]}'}])
def test_a_topic_that_may_not_be_described_is_an_error_at_a_trigger_and_one_that_is_not_there_a_warning(
    caplog: pytest.LogCaptureFixture, selection: dict[str, str]
) -> None:
    brokers = PlanningBrokers(parse_stream({"kafka.bootstrap.servers": "a:1", **selection}, limits=True))
    with caplog.at_level(logging.WARNING):
        undescribed(brokers, LeaderNotAvailableError.code)
        brokers.check_described()
        assert caplog.records == [], "it may be there in a moment"
        for _ in range(2):
            undescribed(brokers, UnknownTopicOrPartitionError.code)
            brokers.check_described()
    assert [record.getMessage()[:22] for record in caplog.records] == ["there is no topic 't':"]
    undescribed(brokers, TopicAuthorizationFailedError.code)
    with pytest.raises(TopicAuthorizationFailedError):
        brokers.check_described()
    with pytest.raises(TopicAuthorizationFailedError):
        asyncio.run(brokers.partitions())


def test_assigned_partitions_are_looked_for_one_by_one() -> None:
    """A copy of all of the topic's partitions for each of 10,000 took four seconds, three times a trigger."""
    options = {"kafka.bootstrap.servers": "a:1", "assign": '{"t": [0, 1, 7]}'}
    brokers = PlanningBrokers(parse_stream(options, limits=True))
    there = {T0, T1}
    snapshot = SimpleNamespace(partition=lambda tp: tp if tp in there else None)
    brokers.client = SimpleNamespace(snapshot=snapshot)  # type: ignore[assignment]
    assert brokers.present() == [T0, T1]
    selects = parse_stream(options, limits=True).selection.selects
    asked = [TopicPartition(*each) for each in (("s", 7), ("t", 0), ("t", 2), ("t", 7), ("t", 8), ("u", 0))]
    assert [tp for tp in asked if selects(tp)] == [T0, TopicPartition("t", 7)]


class Silent:
    """Nobody answers."""

    def __init__(self) -> None:
        self.cancelled = False

    async def list_offsets(self, timestamps: Mapping[TopicPartition, int], **_: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled = True


async def offsets_while(
    brokers: PlanningBrokers, change: Callable[[], object]
) -> dict[TopicPartition, int] | None:
    """What is answered about both partitions, with a change and then news of the cluster amid it."""
    asking = asyncio.ensure_future(brokers.listed_while_there({T0: LATEST, T1: LATEST}))
    for _ in range(3):
        await asyncio.sleep(0)
    change()
    cluster = brokers.client.cluster
    cluster.restore(cluster.snapshot())
    found = await asking
    return None if found is None else {tp: listed.offset for tp, listed in found.items()}


def test_nobody_is_waited_for_who_is_not_there_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = PlanningBrokers(parse_batch({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}))
    silent = Silent()
    monkeypatch.setattr(brokers, "_lookups", silent)
    there = [T0, T1]
    monkeypatch.setattr(brokers, "present", lambda: list(there))
    assert asyncio.run(offsets_while(brokers, there.pop)) is None
    assert silent.cancelled


def test_news_of_others_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, NotLeaderOrFollowerError(), 0)
    monkeypatch.undo()
    brokers = scene.brokers
    monkeypatch.setattr(brokers, "_lookups", scene.lookups)
    there = [T0, T1]
    monkeypatch.setattr(brokers, "present", lambda: list(there))
    found = asyncio.run(offsets_while(brokers, lambda: there.append(TopicPartition("t", 2))))
    assert found == {T0: 7, T1: 7}


@pytest.mark.parametrize(("since", "times"), [(None, 2), (0.5, 1), (1.0, 2), (1.5, 2)])
def test_topics_are_asked_about_again_unless_that_was_done_since(since: float | None, times: int) -> None:
    """A client that asks twice in a row waits in between, so a stream that starts asks once."""
    clock = iter((1.0, 2.0))
    asked: list[str] = []
    forgotten: list[str] = []

    async def refreshed() -> None:
        brokers = PlanningBrokers(
            parse_stream({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}, limits=True),
            clock=lambda: next(clock),
        )

        async def update_metadata() -> None:
            asked.append("")

        brokers.client.cluster.forget_former_ids = lambda: forgotten.append("")  # type: ignore[method-assign]
        brokers.client.update_metadata = update_metadata  # type: ignore[method-assign,assignment]
        await brokers.refresh()
        await brokers.refresh(since)

    asyncio.run(refreshed())
    assert len(asked) == times
    assert len(forgotten) == (1 if since else 2), "a doubt"


class Metadata:
    """A client of three brokers, whose metadata come from broker 1; `ids` are those that each broker names."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, ids: dict[int, bytes | KafkaError], **options: str
    ) -> None:
        self.ids = ids
        self.asked: list[int] = []
        self.pauses: list[float] = []
        self.first = 1
        given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", **options}
        self.brokers = PlanningBrokers(parse_batch(given))
        monkeypatch.setattr(asyncio, "sleep", self._pause)
        monkeypatch.setattr("kafka_actors.spark.source.planning.ask_node", self._ask)
        monkeypatch.setattr(self.brokers, "refresh", self._refresh)
        self._take_in()

    def _response(self, node: int) -> MetadataResponse:
        topic_id = self.ids[node]
        if isinstance(topic_id, KafkaError):
            raise topic_id
        partition = MetadataResponsePartition(leader_id=2)
        topic = MetadataResponseTopic(0, "t", uuid.UUID(bytes=topic_id), partitions=[partition])
        return MetadataResponse(brokers=[MetadataResponseBroker(n, "a", n) for n in self.ids], topics=[topic])

    def _take_in(self) -> None:
        self.brokers.client.cluster.update_metadata(self._response(self.first))

    async def _ask(self, client: Any, node: int, request: Any, limit_ms: float) -> MetadataResponse:
        self.asked.append(node)
        return self._response(node)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def _refresh(self) -> None:
        self.brokers.client.cluster.forget_former_ids()
        self._take_in()

    def topic_id(self) -> bytes:
        """The topic's id by which a query is planned."""
        return self.brokers.topic_ids(asyncio.run(self.brokers.partitions()))["t"]


NEW, OLD = b"n" * 16, b"o" * 16


def test_a_query_is_planned_by_ids_that_two_other_brokers_name_leaders_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Metadata(monkeypatch, {1: NEW, 2: NEW, 3: OLD})
    assert (scene.topic_id(), scene.asked, scene.pauses) == (NEW, [2, 1], [])


def test_a_broker_that_still_has_a_topic_that_was_deleted_plans_no_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Metadata(monkeypatch, {1: OLD, 2: NEW, 3: NEW})

    async def pause(seconds: float) -> None:
        scene.pauses.append(seconds)
        if len(scene.pauses) == 2:
            scene.ids[1] = NEW

    monkeypatch.setattr(asyncio, "sleep", pause)
    assert (scene.topic_id(), scene.pauses) == (NEW, [1.0, 1.0])


def test_brokers_that_do_not_agree_or_answer_keep_no_query_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Metadata(monkeypatch, {1: OLD, 2: NEW, 3: NEW}, **{"fetchOffset.numRetries": "2"})
    assert (scene.topic_id(), len(scene.pauses)) == (OLD, 2)
    silent = Metadata(monkeypatch, {1: NEW, 2: NotLeaderOrFollowerError(), 3: OLD})
    assert (silent.topic_id(), silent.pauses) == (NEW, [])


def test_one_broker_alone_is_not_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Metadata(monkeypatch, {1: NEW})
    assert (scene.topic_id(), scene.asked) == (NEW, [])
