"""From successive `JobStatus` to what a person watches: rates, totals, what is behind."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from kafka_actors.actors.messages import PartitionStatus
    from kafka_actors.actors.status import JobStatus, ScalingStatus, WorkerStatus

__all__ = ["Progress", "Reading", "WorkerReading"]

WINDOW_S = 5.0


class WorkerReading(Struct, frozen=True):
    """A worker, and how many records a second it processed lately."""

    status: WorkerStatus
    records_per_s: float


class Reading(Struct, frozen=True):
    """A job at one moment. `records`: processed by all workers so far, those that died included; `lag`: records
    of the job's partitions still to process, None while no end is known; `elapsed_s`: since the first status."""

    elapsed_s: float
    state: str
    group_id: str
    generation: int | None
    records: int
    records_per_s: float
    lag: int | None
    restarts: int
    workers: list[WorkerReading]
    partitions: list[PartitionStatus]
    scaling: ScalingStatus


class Progress:
    """Takes statuses with the monotonic time they were taken at, in seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._started: float | None = None
        self._samples: deque[tuple[float, int, dict[str, int]]] = deque()

    def observe(self, status: JobStatus, now: float) -> Reading:
        """The reading at `now`; rates are over the last `window_s` seconds."""
        if self._started is None:
            self._started = now
        # By name with incarnation: a replacement counts from 0.
        counts = {worker.name: worker.records for worker in status.workers}
        self._samples.append((now, status.records, counts))
        while len(self._samples) > 2 and now - self._samples[1][0] >= self._window_s:
            self._samples.popleft()
        then, total, before = self._samples[0]
        span = now - then
        ends = [p.lag for p in status.partitions if p.lag is not None]
        return Reading(
            elapsed_s=now - self._started,
            state=status.state,
            group_id=status.group_id,
            generation=status.group.generation if status.group else None,
            records=status.records,
            records_per_s=_rate(status.records - total, span),
            lag=sum(ends) if ends else None,
            restarts=sum(status.restarts.values()),
            workers=[
                WorkerReading(w, _rate(w.records - before.get(w.name, 0), span)) for w in status.workers
            ],
            partitions=status.partitions,
            scaling=status.scaling,
        )


def _rate(records: int, span_s: float) -> float:
    """Records a second. A coordinator that was replaced knows for a moment less than the one before it."""
    return max(0, records) / span_s if span_s > 0 else 0.0
