"""A hand-over reads topics, offsets and groups of a cluster, and waits for a group to be without members, for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from kafka_actors.backfill import handover_brokers
from kafka_actors.backfill.handover_brokers import HandoverBrokers
from kafka_actors.backfill.machines.handover_plan import LogBounds, PlannedRead
from kafka_actors.cluster.snapshot import ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import (
    ConfigError,
    NonEmptyGroupError,
    NotLeaderOrFollowerError,
    TopicAuthorizationFailedError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.net import ListedOffset
from kafka_actors.types import EARLIEST, OffsetAndMetadata, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID = b"i" * 16
OFFSETS = {A0: OffsetAndMetadata(7, "", 2)}


def topic(name: str, count: int, *, topic_id: bytes | None = ID, error: int = 0) -> TopicMetadata:
    partitions = {p: PartitionMetadata(p, 1, 0, (1,), (1,), (), 0) for p in range(count)}
    return TopicMetadata(name, topic_id, False, error, partitions)


class Client:
    def __init__(self, config: Any) -> None:
        self.tracked: list[Any] = []
        self.time = 100.0
        self.closed = False

    def now(self) -> float:
        return self.time

    def set_topics(self, topics: list[str] | None) -> None:
        self.tracked.append(topics)

    async def bootstrap(self) -> None:
        pass

    async def close(self) -> None:
        self.closed = True


class Lookups:
    """Answers with the error of a partition, unless that is one of the temporary ones, after which the real ones ask again."""

    def __init__(self, client: Client) -> None:
        self.error: dict[TopicPartition, Exception] = {}

    async def list_offsets(
        self,
        which: Mapping[TopicPartition, int],
        *,
        isolation_level: str,
        timeout_ms: float,
        temporary: tuple[type[Exception], ...] = (),
    ) -> dict[TopicPartition, Any]:
        assert isolation_level == "read_committed"
        ends = {tp: (3 if at == EARLIEST else 10 + tp.partition) for tp, at in which.items()}
        errors = {tp: error for tp, error in self.error.items() if not isinstance(error, temporary)}
        return {tp: errors.get(tp) or ListedOffset(end, -1, 5) for tp, end in ends.items()}


class Groups:
    def __init__(self, client: Client) -> None:
        self.members = ""
        self.busy_until = 0.0
        self.commits: list[tuple[str, Any, Any]] = []
        self._client = client

    async def members_of(self, group: str, deadline: Any) -> str:
        return self.members

    async def committed(self, group: str, deadline: Any, ids: Any, *, stable: Any) -> Any:
        return {"group": group, "ids": ids, "stable": stable}

    async def commit(self, group: str, offsets: Any, deadline: Any, ids: Any) -> None:
        if self._client.time < self.busy_until:
            raise NonEmptyGroupError("busy")
        self.commits.append((group, offsets, ids))


class Scene:
    """A hand-over's client on fakes; `snapshot` is what brokers say."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        topics: tuple[str, ...] | None = ("a",),
        pattern: str | None = None,
    ) -> None:
        self.snapshot = ClusterSnapshot(
            1, "c", None, {}, {"a": topic("a", 2), "b": topic("b", 1, topic_id=None)}
        )
        self.pauses: list[float] = []

        async def persist(client: Any, attempt: Any, deadline: Any) -> ClusterSnapshot:
            return self.snapshot

        monkeypatch.setattr(handover_brokers, "KafkaClient", Client)
        monkeypatch.setattr(handover_brokers, "OffsetLookups", Lookups)
        monkeypatch.setattr(handover_brokers, "GroupRequests", Groups)
        monkeypatch.setattr(handover_brokers, "persist", persist)
        monkeypatch.setattr(handover_brokers, "CallDeadline", lambda client: _Deadline())
        monkeypatch.setattr(asyncio, "sleep", self._pause)
        config = ConsumerConfig(
            bootstrap_servers=["a:1"], isolation_level="read_committed", session_timeout_ms=2000
        )
        self.brokers = HandoverBrokers(config, PlannedRead("g", "read_committed", topics, pattern))
        self.client: Any = self.brokers._client
        self.lookups: Any = self.brokers._lookups
        self.groups: Any = self.brokers._groups

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.client.time += seconds


class _Deadline:
    def left_ms(self) -> float:
        return 1000.0


def test_the_logs_are_those_of_the_topics_with_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = asyncio.run(Scene(monkeypatch, topics=("b", "a")).brokers.cluster())
    assert observed.cluster_id == "c"
    assert observed.topic_ids == {"a": ID}
    assert observed.logs == {A0: LogBounds(3, 10, 5), A1: LogBounds(3, 11, 5), B0: LogBounds(3, 10, 5)}


def test_a_pattern_matches_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = asyncio.run(Scene(monkeypatch, topics=None, pattern="[a-z]").brokers.cluster())
    assert set(observed.logs) == {A0, A1, B0}
    with pytest.raises(ConfigError, match="pattern: is 'x': no topic of the cluster matches it"):
        asyncio.run(Scene(monkeypatch, topics=None, pattern="x").brokers.cluster())


@pytest.mark.parametrize(
    ("found", "error"),
    [
        (None, UnknownTopicOrPartitionError),
        (topic("gone", 0, error=3), UnknownTopicOrPartitionError),
        (topic("gone", 0, error=29), TopicAuthorizationFailedError),
    ],
)
def test_a_topic_that_can_not_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, found: TopicMetadata | None, error: type[Exception]
) -> None:
    scene = Scene(monkeypatch, topics=("a", "gone"))
    if found is not None:
        scene.snapshot.topics["gone"] = found
    with pytest.raises(error, match="gone"):
        asyncio.run(scene.brokers.cluster())


def test_the_error_of_a_partition_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.lookups.error[A1] = NotLeaderOrFollowerError()
    with pytest.raises(NotLeaderOrFollowerError):
        asyncio.run(scene.brokers.cluster())


def test_a_brokers_unknown_error_ends_no_run_that_has_read_the_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ends are looked up before the history, and once more behind it, hours later: they are asked for again, as a consumer's look-ups are."""
    scene = Scene(monkeypatch)
    scene.lookups.error[A1] = UnknownServerError()
    assert asyncio.run(scene.brokers.cluster()).logs[A1] == LogBounds(3, 11, 5)


def test_offsets_are_looked_up_and_committed_for_the_topics_of_these_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)

    async def hand_over() -> Any:
        await scene.brokers.cluster()
        await scene.brokers.commit(OFFSETS, patient=False)
        return await scene.brokers.committed()

    stable = [TopicPartition("a", 0), TopicPartition("a", 1)]
    assert asyncio.run(hand_over()) == {"group": "g", "ids": {"a": ID}, "stable": stable}
    assert scene.groups.commits == [("g", OFFSETS, {"a": ID})]


def test_a_dead_member_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.groups.busy_until = 101.2
    asyncio.run(scene.brokers.commit(OFFSETS, patient=True))
    assert len(scene.groups.commits) == 1
    assert scene.pauses == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(("patient", "waited"), [(True, 2.0), (False, 0.0)])
def test_a_group_that_keeps_its_members_is_an_error(
    monkeypatch: pytest.MonkeyPatch, patient: bool, waited: float
) -> None:
    scene = Scene(monkeypatch)
    scene.groups.busy_until = 1000.0
    with pytest.raises(NonEmptyGroupError, match=r"group 'g' has members, .* the hand-over was not made"):
        asyncio.run(scene.brokers.commit(OFFSETS, patient=patient))
    assert sum(scene.pauses) == waited


def test_members_are_an_error_before_anything_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    asyncio.run(scene.brokers.check_empty())
    scene.groups.members = "1: consumer-1"
    with pytest.raises(NonEmptyGroupError, match=r"has members \(1: consumer-1\), who commit its offsets"):
        asyncio.run(scene.brokers.check_empty())


@pytest.mark.parametrize(("topics", "tracked"), [(("a", "b"), ["a", "b"]), (None, None)])
def test_the_client_knows_these_topics_and_is_closed_at_the_end(
    monkeypatch: pytest.MonkeyPatch, topics: tuple[str, ...] | None, tracked: list[str] | None
) -> None:
    scene = Scene(monkeypatch, topics=topics, pattern=None if topics else ".*")

    async def use() -> None:
        async with scene.brokers as brokers:
            assert brokers is scene.brokers
            assert not scene.client.closed

    asyncio.run(use())
    assert scene.client.tracked == [tracked]
    assert scene.client.closed
