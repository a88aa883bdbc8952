"""What the parts of a job need of each other, as Protocols: Ray fills them in `ray_links`, tests fill them plainly."""

from __future__ import annotations

from typing import Protocol

from kafka_actors.cluster import ClusterSnapshot

from .messages import CommitReply, CommitRequest, Orders, Report

__all__ = ["CoordinatorLink", "MetadataLink"]


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
