"""Members of a group: alone, with a foreign client, restarted, fenced, and with their coordinator killed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from fakes.reading import members_of
from waiting import slow_s, until_async

from kafka_actors.cluster import SubscriptionState
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.errors import FencedInstanceIdError, InconsistentGroupProtocolError
from kafka_actors.events import Event
from kafka_actors.group import ConsumerCoordinator, MemberState
from kafka_actors.net import KafkaClient
from kafka_actors.types import OffsetAndMetadata, TopicPartition


def asynchronous(test: Callable[..., Any]) -> Callable[..., None]:
    """Runs a test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Recorder:
    """A listener that remembers, and checks that what is revoked or lost was assigned."""

    def __init__(self) -> None:
        self.log: list[tuple[str, frozenset[TopicPartition]]] = []
        self.has: set[TopicPartition] = set()

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        assert not self.has & partitions
        self.has |= partitions
        self.log.append(("assigned", partitions))

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition], deadline_s: float) -> None:
        assert partitions <= self.has
        self.has -= partitions
        self.log.append(("revoked", partitions))

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.has -= partitions
        self.log.append(("lost", partitions))

    def named(self, name: str) -> list[frozenset[TopicPartition]]:
        return [p for n, p in self.log if n == name]


class Peer:
    """One of our members with its client, listener and events."""

    def __init__(
        self, servers: str, topics: list[str] | None, pattern: str | None, options: dict[str, Any]
    ) -> None:
        instance = options.pop("group_instance_id", None)
        identity = {key: options.pop(key) for key in ("member_id", "incarnation") if key in options}
        config = build(
            ConsumerConfig,
            {"session_timeout_ms": 60_000, "heartbeat_interval_ms": 300} | options,
            bootstrap_servers=servers,
        )
        self.client = KafkaClient(config)
        self.topics = topics
        self.subscription = SubscriptionState()
        self.subscription.subscribe(topics=topics, pattern=pattern)
        self.listener = Recorder()
        self.events: list[Event] = []
        self.fatal: list[Exception] = []
        self.member = ConsumerCoordinator(
            self.client,
            self.subscription,
            config=config,
            listener=self.listener,
            group_instance_id=instance,
            rebalance_timeout_ms=60_000,
            max_poll_interval_ms=None,
            events=self.events.append,
            on_fatal=self.fatal.append,
            **identity,
        )

    async def start(self) -> Peer:
        self.client.set_topics(self.topics)
        await self.client.bootstrap()
        await self.member.start()
        return self

    async def close(self, leave: bool = True) -> None:
        await self.member.close(leave=leave)
        await self.client.close()


@contextlib.asynccontextmanager
async def peer(
    servers: str,
    group: str,
    topics: list[str] | None = None,
    pattern: str | None = None,
    leave: bool = True,
    **options: Any,
) -> AsyncIterator[Peer]:
    one = Peer(servers, topics, pattern, {"group_id": group} | options)
    try:
        yield await one.start()
    finally:
        await one.close(leave)


@contextlib.contextmanager
def confluent(servers: str, group: str, topic: str, strategy: str) -> Iterator[set[tuple[str, int]]]:
    """A foreign consumer of the group in a thread of its own; yields the set of what it has."""
    from confluent_kafka import Consumer

    cooperative = strategy.startswith("cooperative")
    has: set[tuple[str, int]] = set()
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": 60_000,
            "heartbeat.interval.ms": 300,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )

    def assigned(c: Any, partitions: list[Any]) -> None:
        if not cooperative:
            has.clear()
        has.update((p.topic, p.partition) for p in partitions)

    def revoked(c: Any, partitions: list[Any]) -> None:
        has.difference_update((p.topic, p.partition) for p in partitions)

    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            consumer.poll(0.1)
        consumer.close()

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield has
    finally:
        stop.set()
        thread.join(slow_s(30))


def tps(topic: str, n: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, p) for p in range(n))


@pytest.mark.kafka
@asynchronous
async def test_member_alone_has_everything_and_commits_what_others_then_read(cluster, kafka_topic, group_id):
    topic = kafka_topic(4)
    async with peer(cluster.bootstrap_servers, group_id, [topic]) as one:
        await one.member.ensure_active_group(timeout_ms=100_000)
        await until_async(lambda: one.listener.has == tps(topic, 4))
        assert one.member.leader
        assert one.subscription.assigned == tps(topic, 4)
        tp = TopicPartition(topic, 0)
        assert await one.member.fetch_committed_offsets(tps(topic, 4)) == dict.fromkeys(tps(topic, 4))
        assert await one.member.commit_offsets_sync({tp: OffsetAndMetadata(7, "note", 0)}) == {tp: None}
        assert (await one.member.fetch_committed_offsets([tp]))[tp] == (7, "note", 0)
        first = one.member.last_heartbeat_sent_and_acked
        await until_async(lambda: one.member.last_heartbeat_sent_and_acked > first)
    assert cluster.committed(group_id) == {(topic, 0): 7}
    assert one.listener.has == set()
    assert one.member.state is MemberState.LEFT
    assert await asyncio.to_thread(members_of, cluster.bootstrap_servers, group_id) == 0


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@asynchronous
async def test_foreign_client_shares_the_group_and_gives_it_back(cluster, kafka_topic, group_id, strategy):
    topic = kafka_topic(6)
    servers = cluster.bootstrap_servers
    async with peer(servers, group_id, [topic], partition_assignment_strategy=[strategy]) as one:
        await until_async(lambda: one.listener.has == tps(topic, 6), what="everything at first")
        with confluent(servers, group_id, topic, strategy) as theirs:
            await until_async(lambda: len(theirs) == 3 and len(one.listener.has) == 3, what="halves")
            assert one.listener.has | theirs == tps(topic, 6)
            if strategy == "cooperative-sticky":
                assert all(len(p) <= 3 for p in one.listener.named("revoked"))
        await until_async(lambda: one.listener.has == tps(topic, 6), what="everything again")
        assert one.listener.named("lost") == []


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@asynchronous
async def test_member_joins_a_group_that_a_foreign_client_leads(cluster, kafka_topic, group_id, strategy):
    topic = kafka_topic(4)
    servers = cluster.bootstrap_servers
    with confluent(servers, group_id, topic, strategy) as theirs:
        await until_async(lambda: len(theirs) == 4)
        async with peer(servers, group_id, [topic], partition_assignment_strategy=[strategy]) as one:
            await until_async(lambda: len(theirs) == 2 and len(one.listener.has) == 2)
            assert not one.member.leader
        await until_async(lambda: len(theirs) == 4)


@asynchronous
async def test_group_of_another_strategy_is_an_error_that_names_both(cluster, kafka_topic, group_id):
    topic = kafka_topic(1)
    servers = cluster.bootstrap_servers
    async with peer(servers, group_id, [topic], partition_assignment_strategy=["range"]) as one:
        await until_async(lambda: one.listener.has)
        async with peer(
            servers, group_id, [topic], partition_assignment_strategy=["cooperative-sticky"]
        ) as two:
            with pytest.raises(
                InconsistentGroupProtocolError, match=r"\['cooperative-sticky'\].*uses 'range'"
            ):
                await two.member.ensure_active_group(timeout_ms=100_000)
            assert [type(e) for e in two.fatal] == [InconsistentGroupProtocolError]


@asynchronous
async def test_static_member_restarts_without_a_rebalance(cluster, kafka_topic, group_id):
    topic = kafka_topic(4)
    servers = cluster.bootstrap_servers
    async with peer(servers, group_id, [topic], group_instance_id="b") as other:
        async with peer(servers, group_id, [topic], group_instance_id="a", leave=False) as first:
            await until_async(lambda: len(first.listener.has) == 2 and len(other.listener.has) == 2)
            await until_async(lambda: first.member.joined and other.member.joined)
            had, generation = set(first.listener.has), other.member.generation
        calls = len(other.listener.log)
        async with peer(servers, group_id, [topic], group_instance_id="a") as second:
            await until_async(lambda: second.listener.has, what="the listener learns of the assignment")
            assert second.listener.has == had
            assert second.member.generation == generation
            await asyncio.sleep(1.0)
            assert second.member.generation == other.member.generation == generation
            assert len(other.listener.log) == calls
        await until_async(lambda: other.listener.has == tps(topic, 4), what="leaving gives them up at once")


@pytest.mark.kafka
@asynchronous
async def test_static_leader_restarts_and_sees_the_partitions_that_came_meanwhile(
    cluster, kafka_topic, group_id
):
    topic = kafka_topic(2)
    servers = cluster.bootstrap_servers
    async with peer(servers, group_id, [topic], group_instance_id="a", leave=False) as first:
        await until_async(lambda: first.member.joined)
    cluster.add_partitions(topic, 5)
    async with peer(servers, group_id, [topic], group_instance_id="a") as second:
        await until_async(lambda: second.listener.has == tps(topic, 5), seconds=30.0)
        assert second.listener.named("revoked") == []


@asynchronous
async def test_the_older_of_two_with_one_instance_id_is_fenced(cluster, kafka_topic, group_id):
    topic = kafka_topic(2)
    servers = cluster.bootstrap_servers
    async with peer(servers, group_id, [topic], group_instance_id="a") as old:
        await until_async(lambda: old.listener.has == tps(topic, 2))
        async with peer(servers, group_id, [topic], group_instance_id="a") as new:
            await until_async(lambda: old.fatal, seconds=10.0)
            assert isinstance(old.fatal[0], FencedInstanceIdError)
            await until_async(lambda: new.listener.has == tps(topic, 2))
            await until_async(lambda: old.listener.has == set())
            assert old.listener.named("lost") == [tps(topic, 2)]
            await asyncio.sleep(1.0)
            assert new.member.joined


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@asynchronous
async def test_the_process_that_takes_over_a_member_id_gets_a_generation_that_the_older_one_does_not_have(
    cluster, kafka_topic, group_id, strategy
):
    """The broker gives a follower that joins again with the same metadata the generation that there is. The older process sleeps, which
    is told here by no heartbeats, until the newer one has its partitions."""
    topic, servers = kafka_topic(4, cluster=cluster), cluster.bootstrap_servers
    options = {"topics": [topic], "partition_assignment_strategy": [strategy]}
    with confluent(servers, group_id, topic, strategy) as theirs:
        await until_async(lambda: len(theirs) == 4)
        async with peer(servers, group_id, incarnation=1, **options) as older:
            await until_async(lambda: len(older.listener.has) == 2 and len(theirs) == 2, slow_s(30))
            await until_async(lambda: older.member.joined)
            older.member.enable_heartbeats(False)
            member_id, generation = older.member.member_id, older.member.generation
            async with peer(servers, group_id, incarnation=2, member_id=member_id, **options) as newer:
                await until_async(lambda: newer.listener.has, slow_s(30))
                assert (newer.member.member_id, newer.member.generation > generation) == (member_id, True)
                older.member.enable_heartbeats(True)
                await until_async(lambda: older.member.member_id not in ("", member_id), slow_s(30))
                ours = (older.listener.has, newer.listener.has)
                await until_async(lambda: sorted(map(len, [*ours, theirs])) == [1, 1, 2], slow_s(30))
                assert newer.member.member_id == member_id


@asynchronous
async def test_new_partitions_and_new_topics_of_a_pattern_are_found(cluster, kafka_topic, group_id):
    prefix = f"pattern-{group_id[-8:]}"
    first = kafka_topic(2, prefix=prefix)
    servers = cluster.bootstrap_servers
    async with peer(servers, group_id, pattern=f"{prefix}.*", metadata_max_age_ms=500) as one:
        await until_async(lambda: one.listener.has == tps(first, 2))
        cluster.add_partitions(first, 3)
        await until_async(lambda: one.listener.has == tps(first, 3))
        second = kafka_topic(1, prefix=prefix)
        await until_async(lambda: one.listener.has == tps(first, 3) | tps(second, 1))
        assert one.listener.named("revoked") == []


@asynchronous
async def test_killed_coordinator_is_found_elsewhere_and_the_partitions_stay(
    kafka_cluster_3, kafka_topic, group_id
):
    topic = kafka_topic(4, cluster=kafka_cluster_3, replication_factor=3)
    servers = kafka_cluster_3.bootstrap_servers
    async with peer(servers, group_id, [topic]) as one:
        await until_async(lambda: one.listener.has == tps(topic, 4))
        before = one.member.coordinator_id
        kafka_cluster_3.kill(before)
        await until_async(lambda: one.member.coordinator_id not in (None, before), seconds=40.0)
        tp = TopicPartition(topic, 1)
        assert await one.member.commit_offsets_sync({tp: OffsetAndMetadata(3)}) == {tp: None}
        assert (await one.member.fetch_committed_offsets([tp]))[tp].offset == 3
        assert one.listener.named("lost") == []
        assert one.listener.has == tps(topic, 4)


@asynchronous
async def test_topic_made_anew_with_fewer_partitions_is_owned_without_its_old_offsets(
    cluster, kafka_topic, group_id
):
    topic = kafka_topic(3)
    servers = cluster.bootstrap_servers
    async with peer(servers, group_id, [topic], metadata_max_age_ms=300, on_data_loss="reset") as one:
        await until_async(lambda: one.listener.has == tps(topic, 3))
        await one.member.commit_offsets_sync(dict.fromkeys(tps(topic, 3), OffsetAndMetadata(50)))
        await asyncio.to_thread(cluster.delete_topic, topic)
        await asyncio.to_thread(cluster.create_topic, topic, 2)
        await until_async(lambda: one.listener.has == tps(topic, 2) and one.member.joined)
        await until_async(lambda: len(one.listener.named("assigned")) > 1)
        assert await one.member.fetch_committed_offsets(tps(topic, 2)) == dict.fromkeys(tps(topic, 2))
