"""What `RunningJob.status()` returns."""

from __future__ import annotations

from msgspec import Struct

from .messages import GroupState, PartitionStatus

__all__ = ["JobStatus", "WorkerStatus"]


class WorkerStatus(Struct, frozen=True):
    """One worker. `records` and `value_bytes` count what this incarnation has processed."""

    name: str
    pid: int | None
    node: str | None
    ready: bool
    partitions: list[tuple[str, int]]
    records: int
    value_bytes: int
    restarts: int


class JobStatus(Struct, frozen=True):
    """A job at one moment. `state`: starting, running, paused, stopping, stopped or failed.

    `records` and `value_bytes`: processed by all workers, those included that are gone by now.
    `connections`: node of the Ray cluster → brokers that a connection actor on it is connected to. `actors`: name
    with incarnation → pid. `restarts`: role → how often it was replaced.
    """

    state: str
    group_id: str
    group: GroupState | None
    workers: list[WorkerStatus]
    partitions: list[PartitionStatus]
    records: int
    value_bytes: int
    connections: dict[str, list[int]]
    restarts: dict[str, int]
    actors: dict[str, int | None]

    @property
    def lag(self) -> int:
        """Records of this job's partitions that are not processed yet, as far as their ends are known."""
        return sum(p.lag or 0 for p in self.partitions)
