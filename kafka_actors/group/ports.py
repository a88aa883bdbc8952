"""Connections and metadata as a coordinator needs them: Protocols, so that it depends on no network and no actor."""

from __future__ import annotations

from typing import Any, Protocol

from kafka_actors.cluster import ClusterMetadata, ClusterSnapshot
from kafka_actors.cluster.future import Future


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
    """A client of the cluster, as `net.KafkaClient` is one."""

    @property
    def cluster(self) -> ClusterMetadata: ...

    @property
    def snapshot(self) -> ClusterSnapshot: ...

    def least_loaded_node(self) -> int | None: ...

    def tracks(self, topic: str) -> bool: ...

    def add_topic(self, topic: str) -> Future[ClusterMetadata]: ...

    async def send(self, node_id: int, request: Any, *, timeout_ms: float | None = None) -> Any: ...

    async def open_broker(self, node_id: int, host: str, port: int) -> GroupBroker: ...
