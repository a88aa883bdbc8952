"""Coordinators over real sockets, a group of `FakeKafka` for them, and requests of nobody's to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from msgspec.structs import replace

from kafka_actors.cluster import SubscriptionState
from kafka_actors.config import ClientConfig, ConsumerConfig, build
from kafka_actors.group import ConsumerCoordinator, IgnoreRebalances, default_offset_commit_callback
from kafka_actors.net import Connection, KafkaClient
from kafka_actors.protocol import LeaveGroupRequest, OffsetCommitRequest, OffsetCommitResponse
from kafka_actors.protocol.messages.leave_group import MemberIdentity
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import BrokerCall, ChangeResponse
from kafka_actors.types import TopicPartition

from .scripted import brokers

GROUP = "g"

PATIENT_S = 60.0
PATIENT = {
    # Within a fifth of its session a heartbeat has to be answered.
    "session_timeout_ms": int(5 * PATIENT_S * 1000),
    "heartbeat_interval_ms": 100,
    "request_timeout_ms": int(PATIENT_S * 1000),
    # The first connection has this time, whatever a request has.
    "api_version_auto_timeout_ms": int(PATIENT_S * 1000),
}
"""Options of members that give up no broker, and no peer, which stands still for some seconds: a request that is sent again, a connection that
is closed or a further rebalance is there only where a test has a fault for it."""


@contextlib.asynccontextmanager
async def group(count: int = 1, **options: Any) -> AsyncIterator[FakeKafka]:
    """Brokers with a topic "t" of two partitions, of which the first one coordinates the group."""
    async with brokers(count, {"t": 2}, **options) as kafka:
        kafka.set_coordinator(GROUP, 1)
        yield kafka


async def ask(kafka: FakeKafka, request: Any, **more: Any) -> Any:
    """Sends one request to the group's coordinator, on a connection of its own; returns the response."""
    connection = await Connection.open(*kafka.address(kafka.coordinator_of(GROUP)), build(ClientConfig))
    try:
        return await connection.send(request, **more)
    finally:
        connection.close()


async def expel(kafka: FakeKafka, *member_ids: str) -> None:
    """Has members leave, as an administrator does."""
    await ask(kafka, LeaveGroupRequest(GROUP, members=[MemberIdentity(i) for i in member_ids]))


async def commit(kafka: FakeKafka, partition: TopicPartition, offset: int, metadata: str = "") -> None:
    """Commits an offset for the group while it has no members."""
    part = OffsetCommitRequestPartition(partition.partition, offset, committed_metadata=metadata)
    topic = OffsetCommitRequestTopic(partition.topic, partitions=[part])
    answer = await ask(kafka, OffsetCommitRequest(GROUP, topics=[topic]), max_version=9)
    assert answer.topics[0].partitions[0].error_code == 0


def refused(index: int, code: int) -> ChangeResponse:
    """The action that has commits of one partition refused, whatever else becomes of them."""

    def change(call: BrokerCall, response: OffsetCommitResponse) -> OffsetCommitResponse:
        topics = [
            replace(
                topic,
                partitions=[
                    replace(p, error_code=code) if p.partition_index == index else p for p in topic.partitions
                ],
            )
            for topic in response.topics
        ]
        return replace(response, topics=topics)

    return ChangeResponse(change)


class Listener(IgnoreRebalances):
    def __init__(self) -> None:
        self.has: set[TopicPartition] = set()
        self.calls: list[str] = []
        self.on_revoke: Callable[[frozenset[TopicPartition]], Any] | None = None

    async def on_partitions_assigned(self, partitions):
        self.calls.append("assigned")
        self.has |= partitions

    async def on_partitions_revoked(self, partitions, deadline_s):
        self.calls.append("revoked")
        if self.on_revoke is not None:
            await self.on_revoke(partitions)
        self.has -= partitions

    async def on_partitions_lost(self, partitions):
        self.calls.append("lost")
        self.has -= partitions


class Member:
    def __init__(
        self,
        kafka: FakeKafka,
        *,
        topics=("t",),
        pattern=None,
        listener=None,
        consumed=None,
        reads=None,
        commits=None,
        metrics=None,
        default_offset_commit_callback=default_offset_commit_callback,
        revoke_timeout_ms=int(PATIENT_S * 1000),
        **options: Any,
    ) -> None:
        self.config = build(
            ConsumerConfig,
            PATIENT | options,
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=GROUP,
        )
        self.client = KafkaClient(self.config)
        self.topics = None if pattern else list(topics)
        self.subscription = SubscriptionState()
        self.subscription.subscribe(topics=self.topics, pattern=pattern)
        self.listener = listener or Listener()
        self.events: list[Any] = []
        self.fatal: list[Exception] = []
        self.member = ConsumerCoordinator(
            self.client,
            self.subscription,
            metrics,
            config=self.config,
            default_offset_commit_callback=default_offset_commit_callback,
            listener=self.listener,
            consumed=consumed,
            reads=reads,
            commits=commits,
            rebalance_timeout_ms=int(PATIENT_S * 1000),
            revoke_timeout_ms=revoke_timeout_ms,
            max_poll_interval_ms=None,
            events=self.events.append,
            on_fatal=self.fatal.append,
        )

    async def start(self) -> ConsumerCoordinator:
        self.client.set_topics(self.topics)
        await self.client.bootstrap()
        await self.member.start()
        return self.member

    def seen(self, kind: type) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]


@contextlib.asynccontextmanager
async def member(kafka: FakeKafka, **options: Any) -> AsyncIterator[Member]:
    one = Member(kafka, **options)
    try:
        await one.start()
        yield one
    finally:
        await one.member.close(timeout_ms=PATIENT_S * 1000)
        await one.client.close()
