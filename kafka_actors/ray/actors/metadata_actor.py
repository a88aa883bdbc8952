"""Metadata actor: publishes snapshots of the cluster, lists the connection actors that there should be, and asks registries for the schemas
that workers need."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafka_actors.base.tasks import woken
from kafka_actors.cluster import Cluster, ClusterSnapshot
from kafka_actors.config import JobConfig, resolved
from kafka_actors.errors import (
    TEMPORARY_IN_LOOKUPS,
    ConfigError,
    KafkaError,
    NodeNotReadyError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from kafka_actors.job.actor_setup import ConnectionWanted, ProcessSetup, Topology
from kafka_actors.job.messages import JobStart, pack, unpack
from kafka_actors.job.retry_topics import RetryTiers
from kafka_actors.job.status import NO_BROKER, NO_TOPIC
from kafka_actors.net import KafkaClient, OffsetLookups
from kafka_actors.protocol import MetadataRequest, MetadataResponse
from kafka_actors.schemas.registry import SchemaRequest, SharedRegistry
from kafka_actors.types import LATEST, TopicPartition

from .actor import ActorShell, once, set_up_process

if TYPE_CHECKING:
    from kafka_actors.registry.lookups import SchemaLookups

__all__ = ["MetadataActor"]

WATCH_S = 2.0
LOOK_AGAIN_S = 0.5
RETRY_TOPICS_S = 1.0
"""Seconds for which retry topics may be missing."""


class ConnectionSlot:
    """The wish for a connection actor, in place of a connection in the metadata actor's `Cluster`.

    The supervisor keeps an actor in each slot until the slot is aborted, because its broker is gone or has moved.
    """

    def __init__(self, wanted: ConnectionWanted) -> None:
        self.wanted = wanted
        self.closing = False

    def abort(self) -> None:
        self.closing = True

    close = abort

    async def send(self, request: MetadataRequest) -> MetadataResponse:
        raise NodeNotReadyError("metadata is asked for by the metadata actor's own client")


async def _connection_slot(node: str, host: str, port: int, node_id: int | None) -> ConnectionSlot:
    assert node_id is not None  # the client bootstraps, not this cluster
    return ConnectionSlot(ConnectionWanted(node, node_id, host, port))


def _numbers_of_partitions(snapshot: ClusterSnapshot) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in snapshot.topics.items()}


class MetadataActor(ActorShell):
    """A `KafkaClient` for the metadata, and for each node a `Cluster`: broker id → `ConnectionSlot`, healed whenever
    metadata changes."""

    def __init__(
        self,
        config: JobConfig,
        topics: list[str] | None,
        pattern: str | None,
        setup: ProcessSetup,
        registries: Sequence[SharedRegistry] = (),
        tiers: RetryTiers = RetryTiers(),  # noqa: B008  a frozen value
    ) -> None:
        set_up_process(setup)
        self._config = config
        self._topics = topics
        self._pattern = pattern
        self._client: KafkaClient | None = None
        self._waits_for: Callable[[], str] = str
        self._changed = asyncio.Event()
        self._clusters: dict[str, Cluster[ConnectionSlot]] = {}
        self._healed = -1
        self._nodes_version = 0
        self._registries = registries
        self._tiers = tiers
        self._schemas: SchemaLookups | None = None

    @once
    async def begin(self, timeout_s: float) -> None:
        """Bootstraps. Raises `NoBrokersAvailable` with what was tried when nothing answers in time."""
        self._config = resolved(self._config)
        client = KafkaClient(self._config)
        self._waits_for = lambda: f"{NO_BROKER}{client.trouble()}"
        client.set_topics(self._topics)
        await client.bootstrap(timeout_ms=timeout_s * 1000)
        self._client, self._waits_for = client, str
        client.cluster.add_listener(lambda _: self._changed.set())

    async def waits_for(self) -> str:
        """Returns what `begin` or `job_start` is still looking for, with the last error; empty where that isn't known."""
        return self._waits_for()

    async def job_start(self, bounded: bool, timeout_s: float) -> bytes:
        """Waits for the topics; returns the partitions that exist now and, for a bounded run, their end offsets.

        Raises `UnknownTopicOrPartitionError` (or the topic's own error) for a named topic that isn't found in time, and `ConfigError` where
        retry topics don't fit to it. A pattern may match nothing: the coordinator logs that and goes on.
        """
        snapshot = await self._retry_topics_there(await self._topics_there(timeout_s))
        names = self._consumed_topics(snapshot)
        partitions = [TopicPartition(t, p) for t in names for p in snapshot.topics[t].partitions]
        ends: list[tuple[TopicPartition, int]] | None = None
        if bounded:
            assert self._client is not None  # begin() comes first
            lookups = OffsetLookups(self._client)
            listed = await lookups.list_offsets(
                dict.fromkeys(partitions, LATEST),
                isolation_level=self._config.isolation_level,
                temporary=TEMPORARY_IN_LOOKUPS,
            )
            ends = []
            for partition, found in listed.items():
                if isinstance(found, Exception):
                    raise found
                ends.append((partition, found.offset))
        return pack(JobStart(partitions, ends))

    async def _topics_there(self, timeout_s: float) -> ClusterSnapshot:
        assert self._client is not None  # begin() comes first
        deadline = time.monotonic() + timeout_s
        snapshot = self._client.snapshot  # of the bootstrap, a moment ago
        while (problem := self._problem(snapshot)) is not None:
            left = deadline - time.monotonic()
            if not problem.retriable or left <= 0:
                raise problem
            self._waits_for = partial("{}{}".format, NO_TOPIC, problem)
            await asyncio.sleep(min(LOOK_AGAIN_S, left))
            snapshot = await self._client.update_metadata()
        return snapshot

    async def _retry_topics_there(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Returns the first snapshot in which the retry topics are as they have to be: a new topic is unknown for a moment."""
        assert self._client is not None  # as above
        deadline = time.monotonic() + RETRY_TOPICS_S
        while wrong := self._tiers.misfits(_numbers_of_partitions(snapshot)):
            if time.monotonic() >= deadline:
                raise ConfigError("on_error", f"is RetryTopics and {wrong}")
            await asyncio.sleep(LOOK_AGAIN_S)
            snapshot = await self._client.update_metadata()
        return snapshot

    def _problem(self, snapshot: ClusterSnapshot) -> KafkaError | None:
        for topic in self._topics or ():
            if snapshot.partitions_for_topic(topic) or self._tiers.tier(topic):
                continue
            servers = ", ".join(self._config.bootstrap_servers)
            code = snapshot.topic_error(topic) or UnknownTopicOrPartitionError.code
            return error_for_code(code, f"not found on {servers}", topic=topic, request="Metadata")
        return None

    def _consumed_topics(self, snapshot: ClusterSnapshot) -> Iterable[str]:
        if self._pattern is not None:
            return sorted(snapshot.topics_matching(self._pattern, self._config.exclude_internal_topics))
        return list(self._topics or ())

    async def watch(self, version: int, known: bytes | None = None) -> bytes | None:
        """Returns a snapshot newer than `version`, or None after a while. `known`: the caller's snapshot, if this actor is new
        to it."""
        client = self._client
        if known is not None and client is not None:
            self._learn(client, unpack(known, ClusterSnapshot))
        if client is None or client.snapshot.version <= version:
            await self._change()
        client = self._client
        if client is None or client.snapshot.version <= version:
            return None
        return pack(client.snapshot)

    def _learn(self, client: KafkaClient, seen: ClusterSnapshot) -> None:
        """Takes leader epochs that a worker has seen, so that a new incarnation of this actor never goes back behind them
        (KIP-320)."""
        known = client.snapshot
        for name, topic in seen.topics.items():
            if (now := known.topics.get(name)) is None or now.topic_id != topic.topic_id:
                continue
            for partition in topic.partitions.values():
                at = TopicPartition(name, partition.partition)
                client.cluster.update_leader(at, partition.leader, partition.leader_epoch)

    async def refresh(self) -> None:
        """Requests newer metadata, with backoff: many callers cost one request."""
        if self._client is not None:
            self._client.cluster.request_update()

    async def schema(self, request: bytes) -> bytes:
        """Returns a packed `Schema`, for a packed `SchemaRequest`. Raises as the registry."""
        if self._schemas is None:
            from kafka_actors.registry.lookups import SchemaLookups  # imports a client that few jobs need

            self._schemas = SchemaLookups(self._registries)
        return pack(await self._schemas.find(unpack(request, SchemaRequest)))

    async def set_nodes(self, version: int, nodes: list[str]) -> None:
        """Takes the nodes of the Ray cluster that have workers: each gets one connection actor per broker. An older version that
        arrives late is ignored."""
        if version < self._nodes_version:
            return
        self._nodes_version = version
        for node in [n for n in self._clusters if n not in nodes]:
            self._clusters.pop(node).stop()
        for node in nodes:
            if node not in self._clusters:
                self._clusters[node] = Cluster(
                    self._config.bootstrap_servers, partial(_connection_slot, node), attempts=1
                )
                self._healed = -1

    async def topology(self) -> bytes:
        """Returns a packed `Topology`: the connection actors that the newest metadata asks for."""
        snapshot = self._client.snapshot if self._client is not None else ClusterSnapshot()
        if snapshot.brokers and snapshot.version != self._healed:
            self._healed = snapshot.version
            for cluster in list(self._clusters.values()):  # `set_nodes` may come meanwhile
                await cluster.heal(snapshot)
        wanted = [slot.wanted for cluster in self._clusters.values() for slot in cluster.conns.values()]
        return pack(Topology(snapshot.version, wanted))

    async def _change(self) -> None:
        self._changed.clear()
        await woken(self._changed, WATCH_S)
