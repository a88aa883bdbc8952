"""From successive statuses to rates: records and bytes a second, shares of time and latency of the last seconds.

The page and the terminal's views show the same numbers, so they are made in one place.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from kafka_actors.telemetry.machines.latency import Counts, quantile, since

if TYPE_CHECKING:
    from kafka_actors.actors.status import JobStatus, WorkerStatus

__all__ = ["WINDOW_S", "Latency", "Pace", "Rates", "WorkerPace"]

WINDOW_S = 5.0
"""Workers report about once a second: over less, rates would jump."""


class Latency(Struct, frozen=True):
    """Milliseconds from a record's timestamp to its having been processed; see `kafka_actors.telemetry.machines.latency`."""

    p50_ms: float
    p99_ms: float


class WorkerPace(Struct, frozen=True):
    """One worker lately. `busy`: the share of its time that it was at work."""

    records_per_s: float
    value_bytes_per_s: float
    busy: float


class Pace(Struct, frozen=True):
    """A job lately. `latency` is None where nothing was processed; `workers` are by their names."""

    records_per_s: float
    value_bytes_per_s: float
    latency: Latency | None
    workers: dict[str, WorkerPace]


class _Sample(Struct, frozen=True):
    at: float
    records: int
    value_bytes: int
    latency: Counts
    workers: dict[str, tuple[int, int, float]]


class Rates:
    """Takes statuses with the monotonic time they were taken at, in seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._samples: deque[_Sample] = deque()

    def __len__(self) -> int:
        return len(self._samples)

    def observe(self, status: JobStatus, now: float) -> Pace | None:
        """The pace of the last `window_s` seconds; None of the first status."""
        # By name with incarnation: a replacement counts from 0.
        counted = {worker.name: _counted(worker) for worker in status.workers}
        self._samples.append(_Sample(now, status.records, status.value_bytes, status.latency, counted))
        while len(self._samples) > 2 and now - self._samples[1].at >= self._window_s:
            self._samples.popleft()
        first = self._samples[0]
        span_s = now - first.at
        if span_s <= 0:
            return None
        return Pace(
            _rate(status.records, first.records, span_s),
            _rate(status.value_bytes, first.value_bytes, span_s),
            _latency(since(status.latency, first.latency)),
            {
                name: _of_worker(numbers, first.workers.get(name, (0, 0, 0.0)), span_s)
                for name, numbers in counted.items()
            },
        )


def _counted(worker: WorkerStatus) -> tuple[int, int, float]:
    return worker.records, worker.value_bytes, worker.work_s


def _of_worker(now: tuple[int, int, float], before: tuple[int, int, float], span_s: float) -> WorkerPace:
    records, value_bytes, busy = (_rate(n, b, span_s) for n, b in zip(now, before, strict=True))
    return WorkerPace(records, value_bytes, min(1.0, busy))


def _rate(now: float, before: float, span_s: float) -> float:
    """A second. A coordinator that was replaced knows for a moment less than the one before it."""
    return max(0.0, now - before) / span_s


def _latency(counts: Counts) -> Latency | None:
    p50, p99 = quantile(counts, 0.5), quantile(counts, 0.99)
    return None if p50 is None or p99 is None else Latency(p50, p99)
