"""Set-up of an actor: its logs and telemetry, the handles of the actors that it calls, and how a worker calls them."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from kafka_actors.cluster import ClusterSnapshot
from kafka_actors.telemetry.logs import LogOrigin
from kafka_actors.telemetry.sdk import Settings

from .messages import CommitReply, CommitRequest, Orders, Report

__all__ = ["CoordinatorLink", "MetadataLink", "ProcessSetup", "Wiring"]


class ProcessSetup(msgspec.Struct, frozen=True):
    """Logs and telemetry of one actor's process. `origin` names the actor in log lines; `telemetry` is None where the job
    is not measured."""

    log_level: int
    origin: LogOrigin
    telemetry: Settings | None = None


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
