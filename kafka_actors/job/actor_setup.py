"""Set-up of a job's actors: their logs and telemetry, which connection actors there should be, the handles of the actors that one calls, and how a
worker calls them."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from kafka_actors.cluster import ClusterSnapshot
from kafka_actors.telemetry.logs import LogOrigin
from kafka_actors.telemetry.sdk import Settings

from .messages import CommitReply, CommitRequest, Orders, Report

__all__ = ["ConnectionWanted", "CoordinatorLink", "MetadataLink", "ProcessSetup", "Topology", "Wiring"]


class ProcessSetup(msgspec.Struct, frozen=True):
    """Logs and telemetry of one actor's process. `origin` names the actor in log lines; `telemetry` is None where the job
    is not measured."""

    log_level: int
    origin: LogOrigin
    telemetry: Settings | None = None


class ConnectionWanted(msgspec.Struct, frozen=True, tag=True):
    """Wish for a connection actor: to this broker, on this node of the Ray cluster."""

    node: str
    broker: int
    host: str
    port: int


class Topology(msgspec.Struct, frozen=True, tag=True):
    """Answer of the metadata actor to the supervisor: all connection actors that there should be, one for each broker on each node with
    workers. Both sides only compare whole states, so that a lost or repeated message changes nothing."""

    version: int
    wanted: list[ConnectionWanted]


class Wiring(msgspec.Struct, frozen=True):
    """Live handles of the actors that a worker calls, under a version.

    `connections`: broker id → (incarnation, handle) of the connection actors on the worker's own node. A handle is None
    while there is no such actor. Handles are the runtime's own: they travel by its pickle, not as MessagePack.
    """

    version: int
    metadata: Any = None
    metadata_incarnation: int = 0
    coordinator: Any = None
    connections: dict[int, tuple[int, Any]] = {}


class CoordinatorLink(Protocol):
    """Calls to the coordinator. Both raise `DisconnectedError` while there is none."""

    async def poll(self, report: Report) -> Orders: ...

    async def commit(self, request: CommitRequest) -> CommitReply: ...


class MetadataLink(Protocol):
    """Calls to the metadata actor. Raises `DisconnectedError` while there is none."""

    async def watch(self, known: ClusterSnapshot | None) -> ClusterSnapshot:
        """Returns a snapshot newer than `known`, or `known` itself after a while."""
        ...
