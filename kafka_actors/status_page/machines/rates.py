"""From successive statuses to rates: records and bytes a second, shares of time and latency of the last seconds.

The page and the terminal's views show the same numbers, so they are made in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from kafka_actors.base.rates import WINDOW_S, Window, rate
from kafka_actors.telemetry.machines.latency import Counts, quantile, since

if TYPE_CHECKING:
    from kafka_actors.job.status import JobStatus, WorkerStatus

__all__ = ["JobRates", "LatencyRate", "RateWindow", "WorkerRate"]


class LatencyRate(Struct, frozen=True):
    """Milliseconds from a record's timestamp to its having been processed; see `kafka_actors.telemetry.machines.latency`."""

    p50_ms: float
    p99_ms: float


class WorkerRate(Struct, frozen=True):
    """One worker lately. `busy`: the share of its time that it was at work."""

    records_per_s: float
    value_bytes_per_s: float
    busy: float


class JobRates(Struct, frozen=True):
    """A job lately. `latency` is None where nothing was processed; `workers` are by their names."""

    records_per_s: float
    value_bytes_per_s: float
    latency: LatencyRate | None
    workers: dict[str, WorkerRate]


class _RateSample(Struct, frozen=True):
    records: int
    value_bytes: int
    latency: Counts
    workers: dict[str, tuple[int, int, float]]


class RateWindow:
    """Takes statuses with the monotonic time they were taken at, in seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window: Window[_RateSample] = Window(window_s)

    def observe(self, status: JobStatus, now: float) -> JobRates | None:
        """The pace of the last `window_s` seconds; None of the first status."""
        # By name with incarnation: a replacement counts from 0.
        counted = {worker.name: _counted(worker) for worker in status.workers}
        sample = _RateSample(status.records, status.value_bytes, status.latency, counted)
        first, span_s = self._window.add(sample, now)
        if span_s <= 0:
            return None
        return JobRates(
            rate(status.records, first.records, span_s),
            rate(status.value_bytes, first.value_bytes, span_s),
            _latency(since(status.latency, first.latency)),
            {
                name: _of_worker(numbers, first.workers.get(name, (0, 0, 0.0)), span_s)
                for name, numbers in counted.items()
            },
        )


def _counted(worker: WorkerStatus) -> tuple[int, int, float]:
    return worker.records, worker.value_bytes, worker.work_s


def _of_worker(now: tuple[int, int, float], before: tuple[int, int, float], span_s: float) -> WorkerRate:
    records, value_bytes, busy = (rate(n, b, span_s) for n, b in zip(now, before, strict=True))
    return WorkerRate(records, value_bytes, min(1.0, busy))


def _latency(counts: Counts) -> LatencyRate | None:
    p50, p99 = quantile(counts, 0.5), quantile(counts, 0.99)
    return None if p50 is None or p99 is None else LatencyRate(p50, p99)
