"""Links between the parts of a job, as Protocols: `kafka_actors.ray.links` fills them over Ray, tests fill them plainly."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from kafka_actors.cluster import ClusterSnapshot
from kafka_actors.job.messages import CommitReply, CommitRequest, Orders, Report

__all__ = ["CoordinatorLink", "MetadataLink", "Wiring"]


class CoordinatorLink(Protocol):
    """A worker's way to the coordinator. Both raise `DisconnectedError` while there is none."""

    async def poll(self, report: Report) -> Orders: ...

    async def commit(self, request: CommitRequest) -> CommitReply: ...


class MetadataLink(Protocol):
    """A worker's way to the metadata actor."""

    async def watch(self, known: ClusterSnapshot | None) -> ClusterSnapshot:
        """Returns a snapshot newer than `known`, or `known` itself after a while."""
        ...

    async def refresh(self) -> None:
        """Asks for newer metadata soon; the answer comes through `watch`."""
        ...


class Wiring(msgspec.Struct, frozen=True):
    """Live handles of the actors that an actor calls, under a version. `connections`: those of its own node, by broker id,
    each with its incarnation."""

    version: int
    metadata: Any = None
    metadata_incarnation: int = 0
    coordinator: Any = None
    connections: dict[int, tuple[int, Any]] = {}
