"""What a coordinator needs of others, so that it depends on no network and no actor."""

from __future__ import annotations

from typing import Any, Protocol

from kafka_actors.cluster import ClusterMetadata, ClusterSnapshot
from kafka_actors.cluster.future import Future
from kafka_actors.types import TopicPartition


class GroupBroker(Protocol):
    """Connections of one member to one broker: a main channel, an offsets channel, and one for each further
    `connection_id`. `net.BrokerChannels` is one."""

    @property
    def connected(self) -> bool: ...

    async def connect(self) -> None: ...

    async def open_channel(self, connection_id: str) -> None: ...

    def close_channel(self, connection_id: str) -> None: ...

    async def request(
        self,
        message: Any,
        *,
        connection_id: str | None = None,
        offsets_channel: bool = False,
        timeout_ms: float | None = None,
    ) -> Any: ...

    def close(self) -> None: ...


class GroupClient(Protocol):
    """A client of the cluster. `net.KafkaClient` is one."""

    @property
    def cluster(self) -> ClusterMetadata: ...

    @property
    def snapshot(self) -> ClusterSnapshot: ...

    def least_loaded_node(self) -> int | None: ...

    def tracks(self, topic: str) -> bool: ...

    def add_topic(self, topic: str) -> Future[ClusterMetadata]: ...

    async def send(self, node_id: int, request: Any, *, timeout_ms: float | None = None) -> Any: ...

    async def open_broker(self, node_id: int, host: str, port: int) -> GroupBroker: ...


class RebalanceListener(Protocol):
    """Learns what becomes of a member's partitions. One call at a time, in the order of events.

    Heartbeats go on meanwhile. An exception ends the membership.
    """

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """A new assignment; `partitions` are those that are new, none where only others changed."""

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition], deadline_s: float) -> None:
        """To be drained, and committed through the coordinator, before this returns.

        It is cancelled after `deadline_s` seconds, when the partitions go without.
        """

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Taken away already: nothing about them can be committed any more."""


class IgnoreRebalances:
    """A listener that does nothing."""

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing."""

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition], deadline_s: float) -> None:
        """Nothing."""

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing."""
