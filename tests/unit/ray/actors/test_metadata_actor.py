"""The metadata actor on metadata that the test gives it: which connection actors are wanted, what watchers hear, which topics are
waited for. That a real broker answers so is shown by tests/integration/test_job_start.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fakes.loop import in_loop
from fakes.virtual_time import run_in_virtual_time

from kafka_actors.cluster.snapshot import (
    BrokerMetadata,
    ClusterSnapshot,
    PartitionMetadata,
    TopicMetadata,
)
from kafka_actors.errors import ConfigError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from kafka_actors.job.actor_setup import ConnectionWanted, Topology
from kafka_actors.job.messages import JobStart, pack, unpack
from kafka_actors.job.retry_topics import RetryTiers
from kafka_actors.net import KafkaClient
from kafka_actors.ray import Job
from kafka_actors.ray.actors import metadata_actor
from kafka_actors.types import TopicPartition

ID, OTHER_ID = b"i" * 16, b"o" * 16


def cluster(
    version: int, brokers: dict[int, int], *, epoch: int = 3, topic_id: bytes = ID
) -> ClusterSnapshot:
    """Brokers with their ports; partition 0 of `t` is led by the first one under this epoch."""
    leader = min(brokers)
    partition = PartitionMetadata(0, leader, epoch, tuple(brokers), tuple(brokers))
    return ClusterSnapshot(
        version,
        "c-1",
        brokers={node: BrokerMetadata(node, "h", port) for node, port in brokers.items()},
        topics={"t": TopicMetadata("t", topic_id, partitions={0: partition})},
    )


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`actor(snapshot, topics=…)`: one that has found a cluster, and knows this of it."""
    monkeypatch.setattr(metadata_actor, "set_up_process", lambda setup: None)

    def make(
        snapshot: ClusterSnapshot | None,
        topics: list[str] | None = None,
        pattern: str | None = None,
        tiers: RetryTiers = RetryTiers(),  # noqa: B008  a frozen value
    ) -> Any:
        plan = Job(topics=["t"], group_id="g", bootstrap_servers="h:1", process=print).plan()
        made = metadata_actor.MetadataActor(plan.config, topics, pattern, plan.setup("metadata"), (), tiers)
        if snapshot is not None:
            made._client = KafkaClient(plan.config)
            made._client.cluster.add_listener(lambda _: made._changed.set())
            made._client.cluster.restore(snapshot)
        return made

    return make


async def wanted(actor: Any) -> set[tuple[str, int, int]]:
    """Node, broker and port of each connection actor that there should be."""
    return {(w.node, w.broker, w.port) for w in unpack(await actor.topology(), Topology).wanted}


# ------------------------------------------------------------ connection actors


@in_loop
async def test_each_node_with_workers_has_a_connection_actor_for_each_broker(
    actor: Callable[..., Any],
) -> None:
    made = actor(cluster(1, {1: 9092, 2: 9093}))
    assert await wanted(made) == set()
    await made.set_nodes(1, ["a"])
    assert await wanted(made) == {("a", 1, 9092), ("a", 2, 9093)}
    await made.set_nodes(2, ["a", "b"])
    assert await wanted(made) == {(node, *broker) for node in "ab" for broker in ((1, 9092), (2, 9093))}
    await made.set_nodes(3, ["b"])
    assert await wanted(made) == {("b", 1, 9092), ("b", 2, 9093)}


@in_loop
async def test_nodes_that_come_late_change_nothing(actor: Callable[..., Any]) -> None:
    """A call may overtake another one: taken for the newest, the older one would leave a node without connection actors for good."""
    made = actor(cluster(1, {1: 9092}))
    await made.set_nodes(2, ["a", "b"])
    await made.set_nodes(1, ["a"])
    assert await wanted(made) == {("a", 1, 9092), ("b", 1, 9092)}
    await made.set_nodes(3, ["b"])
    assert await wanted(made) == {("b", 1, 9092)}


@in_loop
async def test_nodes_may_change_while_connections_are_looked_after(
    actor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was repeated, or came late, ended the job with a RuntimeError about a dictionary."""
    made, heal = actor(cluster(1, {1: 9092})), metadata_actor.Cluster.heal

    async def while_nodes_change(self: Any, *response: Any) -> None:
        await heal(self, *response)
        await made.set_nodes(2, ["b", "c"])

    await made.set_nodes(1, ["a", "b"])
    monkeypatch.setattr(metadata_actor.Cluster, "heal", while_nodes_change)
    await wanted(made)

    assert await wanted(made) == {("b", 1, 9092), ("c", 1, 9092)}


@in_loop
async def test_a_broker_that_has_moved_or_gone_is_wanted_where_it_is_now(actor: Callable[..., Any]) -> None:
    made = actor(cluster(1, {1: 9092, 2: 9093}))
    await made.set_nodes(4, ["a"])
    await wanted(made)
    made._client.cluster.restore(cluster(2, {1: 9092, 2: 9999}))
    assert await wanted(made) == {("a", 1, 9092), ("a", 2, 9999)}
    made._client.cluster.restore(cluster(3, {1: 9092}))
    assert await wanted(made) == {("a", 1, 9092)}


@in_loop
async def test_metadata_without_brokers_takes_no_connection_actor_away(actor: Callable[..., Any]) -> None:
    """Before the first answer, or in one of a broker that has just started."""
    early = actor(None)
    await early.set_nodes(5, ["a"])
    assert await wanted(early) == set()
    made = actor(cluster(1, {1: 9092}))
    await made.set_nodes(6, ["a"])
    await wanted(made)
    made._client.cluster.restore(ClusterSnapshot(2))
    assert await wanted(made) == {("a", 1, 9092)}
    assert unpack(await made.topology(), Topology) == Topology(2, [ConnectionWanted("a", 1, "h", 9092)])


# ------------------------------------------------------------ watchers


def test_a_watcher_hears_what_is_newer_at_once_and_else_nothing_after_a_while(
    actor: Callable[..., Any],
) -> None:
    async def watch() -> None:
        loop, made = asyncio.get_running_loop(), actor(cluster(5, {1: 9092}))
        assert unpack(await made.watch(-1), ClusterSnapshot).version == 5
        assert unpack(await made.watch(4), ClusterSnapshot).version == 5
        assert loop.time() < 0.1
        assert await made.watch(5) is None
        assert loop.time() >= metadata_actor.WATCH_S
        loop.call_later(0.5, made._client.cluster.restore, cluster(6, {1: 9092}))
        began = loop.time()
        assert unpack(await made.watch(5), ClusterSnapshot).version == 6
        assert loop.time() - began < 1
        assert await actor(None).watch(-1) is None, "one that has not begun"

    run_in_virtual_time(watch())


@in_loop
async def test_leader_epochs_that_a_worker_has_seen_are_not_gone_back_behind(
    actor: Callable[..., Any],
) -> None:
    """A broker that the new actor asked may have been behind; a topic that was made anew begins with lower epochs."""
    newer, made = cluster(90, {1: 9092, 2: 9093}, epoch=7), actor(cluster(1, {1: 9092, 2: 9093}, epoch=6))
    found = unpack(await made.watch(-1, pack(newer)), ClusterSnapshot)
    assert found.leader_epoch(TopicPartition("t", 0)) == 7
    older = actor(cluster(1, {1: 9092}, epoch=8))
    found = unpack(await older.watch(-1, pack(newer)), ClusterSnapshot)
    assert found.leader_epoch(TopicPartition("t", 0)) == 8
    anew = actor(cluster(1, {1: 9092}, epoch=0, topic_id=OTHER_ID))
    found = unpack(await anew.watch(-1, pack(newer)), ClusterSnapshot)
    assert found.leader_epoch(TopicPartition("t", 0)) == 0


# ------------------------------------------------------------ the job's topics


def starting(actor: Any, timeout_s: float, *later: ClusterSnapshot) -> tuple[Any, float]:
    """What `job_start` returns or raises, and when, where these are the next answers to requests for metadata."""
    answers = list(later)

    async def update_metadata() -> ClusterSnapshot:
        if answers:
            actor._client.cluster.restore(answers.pop(0))
        snapshot: ClusterSnapshot = actor._client.snapshot
        return snapshot

    async def start() -> tuple[Any, float]:
        actor._client.update_metadata = update_metadata
        try:
            return unpack(
                await actor.job_start(False, timeout_s), JobStart
            ), asyncio.get_running_loop().time()
        except Exception as error:
            return error, asyncio.get_running_loop().time()

    return run_in_virtual_time(start())


def test_retry_topics_that_dont_fit_are_named_at_once(
    actor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the time for which the topic itself is waited for. One that was created a moment ago is found."""

    async def make() -> Any:
        return actor(alone, ["t", "r-1s"], tiers=RetryTiers("t", ["r-1s"], [1.0]))

    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(metadata_actor, "time", clock)
    alone = cluster(2, {1: 9092})
    both = msgspec.structs.replace(alone, version=3, topics={**alone.topics, "r-1s": alone.topics["t"]})
    error, at = starting(run_in_virtual_time(make()), 60.0)
    assert isinstance(error, ConfigError)
    assert at <= 2
    assert str(error).startswith(
        "on_error: is RetryTopics and needs topics with as many partitions as t, which has 1: "
    )
    assert (
        "r-1s is missing; create them, as by kafka-actors topics create --topic r-1s --partitions 1"
        in str(error)
    )
    started, _ = starting(run_in_virtual_time(make()), 60.0, both)
    assert started.partitions == [TopicPartition("t", 0), TopicPartition("r-1s", 0)]


def test_a_topic_that_comes_is_waited_for(actor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def make() -> Any:
        return actor(ClusterSnapshot(1), ["t"])

    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(metadata_actor, "time", clock)
    made = run_in_virtual_time(make())
    started, at = starting(made, 10.0, ClusterSnapshot(2), cluster(3, {1: 9092}))
    assert started.partitions == [TopicPartition("t", 0)]
    assert at < 2
    made = run_in_virtual_time(make())
    error, at = starting(made, 10.0)
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert 10 <= at < 11
    assert "topics: " in run_in_virtual_time(made.waits_for())
    assert "for t: not found on h:1" in str(error)


def test_a_topic_that_may_not_be_read_is_not_waited_for(actor: Callable[..., Any]) -> None:
    denied = ClusterSnapshot(1, topics={"t": TopicMetadata("t", error_code=29)})

    async def make() -> Any:
        return actor(denied, ["t"])

    error, at = starting(run_in_virtual_time(make()), 10.0)
    assert isinstance(error, TopicAuthorizationFailedError)
    assert at < 0.1


def test_a_pattern_may_match_nothing_yet(actor: Callable[..., Any]) -> None:
    async def make(pattern: str) -> Any:
        return actor(cluster(1, {1: 9092}), None, pattern)

    for pattern, partitions in (("t.*", [TopicPartition("t", 0)]), ("u.*", [])):
        started, at = starting(run_in_virtual_time(make(pattern)), 10.0)
        assert (started.partitions, started.ends) == (partitions, None)
        assert at < 0.1
