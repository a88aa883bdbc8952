"""Coordinators over real sockets, and fake brokers that serve one group to them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from kafka_actors.cluster import SubscriptionState
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.group import ConsumerCoordinator, IgnoreRebalances, default_offset_commit_callback
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import ApiKey
from kafka_actors.types import TopicPartition

from .broker import Call, FakeCluster
from .group import GroupModel

APIS = {
    ApiKey.DESCRIBE_GROUPS: GroupModel.describe,
    ApiKey.JOIN_GROUP: GroupModel.join,
    ApiKey.SYNC_GROUP: GroupModel.sync,
    ApiKey.HEARTBEAT: GroupModel.heartbeat,
    ApiKey.LEAVE_GROUP: GroupModel.leave,
    ApiKey.OFFSET_COMMIT: GroupModel.commit,
    ApiKey.OFFSET_FETCH: GroupModel.offset_fetch,
}


class FakeGroup:
    """A cluster whose brokers all serve the one group, of which one is the coordinator."""

    def __init__(self, brokers: int = 1, **options: Any) -> None:
        self.model = GroupModel()
        self.cluster = FakeCluster(brokers=brokers, topics={"t": 2}, **options)
        self.cluster.coordinator = self.cluster.brokers[0].node_id
        for broker in self.cluster.brokers:
            for key, method in APIS.items():
                broker.on(key, self.handler(method))

    @property
    def broker(self):
        return self.cluster.brokers[0]

    def handler(self, method: Callable[..., None]) -> Callable[[Any, Call], Any]:
        async def handle(request: Any, call: Call) -> Any:
            reply = asyncio.get_running_loop().create_future()
            self.model.tick(time.monotonic())
            method(
                self.model, request, lambda r: None if reply.done() else reply.set_result(r), time.monotonic()
            )
            return await reply

        return handle


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
        group: FakeGroup,
        *,
        topics=("t",),
        pattern=None,
        listener=None,
        consumed=None,
        reads=None,
        metrics=None,
        default_offset_commit_callback=default_offset_commit_callback,
        **options: Any,
    ) -> None:
        self.config = build(
            ConsumerConfig,
            {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 100, "request_timeout_ms": 1_000}
            | options,
            bootstrap_servers=group.cluster.bootstrap,
            group_id="g",
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
            rebalance_timeout_ms=10_000,
            revoke_timeout_ms=2_000,
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
async def member(group: FakeGroup, **options: Any) -> AsyncIterator[Member]:
    one = Member(group, **options)
    try:
        await one.start()
        yield one
    finally:
        await one.member.close(timeout_ms=2_000)
        await one.client.close()
