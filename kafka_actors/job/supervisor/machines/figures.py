"""Figures of a job: rates, shares of time, latency and sums, derived from the statuses of its coordinator.

Theory of operation. A worker only counts: records, bytes, seconds at work, and records by classes of latency. So a lost or repeated
report changes nothing, and a rate is the difference of two statuses over the time between them. Every view of a job (`status()`,
the status page, `kafka-actors top` and `run`) shows these figures; nothing else computes them. Rates and latency are those of the
last five seconds: counters of successive statuses are compared (`kafka_actors.base.rates`).

A process that is replaced counts from 0. A worker's counters go by its name with incarnation, so its successor is another one and
none of its records is missed. A new coordinator's counters are less than the old one's: then a rate is 0, never negative, at most
until the window has left the old ones behind. Where the coordinator has long been silent the caller has no rates (None): old ones
would look like work.

Sums keep to what is known: a lag that no worker or broker has told yet counts as nothing, and a sum of which
nothing is known is None, not 0. A partition is blocked if it has a reason not to be read that isn't simply
its end, or the time for which retry topics hold their records.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from kafka_actors.base.rates import WINDOW_S, Window, known_sum, rate
from kafka_actors.job.messages import CoordinatorStatus, WorkerProgress
from kafka_actors.job.status import JobStatus, JobTotals, WorkerStatus, merged
from kafka_actors.telemetry.attributes import kind_of_reason
from kafka_actors.telemetry.machines.latency import Counts, quantile, since

from .load import NOT_YET

__all__ = ["JobRates", "RateWindow", "WorkerRates", "with_figures"]

NO_WORK = (0, 0, 0.0)
NOT_BLOCKED = NOT_YET | {"", "at_end"}
"""Kinds of reasons: none, that of a partition of a bounded run that is done, and those for which the records of retry topics wait."""


class WorkerRates(Struct, frozen=True):
    """Rates of one worker. `busy`: the share of its time that it was at work, 0 to 1."""

    records_per_s: float
    value_bytes_per_s: float
    busy: float


class JobRates(Struct, frozen=True):
    """Rates of a job. The quantiles of the latency are in milliseconds, None where nothing was processed; `workers` are
    by their names."""

    records_per_s: float
    value_bytes_per_s: float
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    workers: dict[str, WorkerRates]


class _RateSample(Struct, frozen=True):
    """Counters of one status. `workers`: records, bytes of values and seconds at work, by name with incarnation."""

    records: int
    value_bytes: int
    latency: Counts
    workers: dict[str, tuple[int, int, float]]


class RateWindow:
    """Compares the counters of successive coordinator statuses over the last `window_s` seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window: Window[_RateSample] = Window(window_s)

    def observe(self, status: CoordinatorStatus, now: float) -> JobRates | None:
        """Takes a status at `now` (monotonic seconds) and returns the rates; None after the first status."""
        # By name with incarnation: a replacement counts from 0.
        counted = {name: _counted(progress) for name, progress in status.workers.items()}
        sample = _RateSample(status.records, status.value_bytes, status.latency, counted)
        first, span_s = self._window.add(sample, now)
        if span_s <= 0:
            return None
        latency = since(status.latency, first.latency)
        return JobRates(
            rate(status.records, first.records, span_s),
            rate(status.value_bytes, first.value_bytes, span_s),
            quantile(latency, 0.5),
            quantile(latency, 0.99),
            {
                name: _rates_of_worker(counters, first.workers.get(name, NO_WORK), span_s)
                for name, counters in counted.items()
            },
        )


def with_figures(status: JobStatus, rates: JobRates | None) -> JobStatus:
    """The status with its totals and the rates of its workers filled in. `rates` is None where none are known."""
    of_workers = rates.workers if rates else {}
    return replace(
        status,
        totals=_totals(status, rates),
        workers=[_with_rates(worker, of_workers.get(worker.name)) for worker in status.workers],
    )


def _totals(status: JobStatus, rates: JobRates | None) -> JobTotals:
    """Sums over partitions and workers. A lag counts where it is known; the lag in seconds is the longest of a partition."""
    ages = [p.lag_seconds for p in status.partitions if p.lag_seconds is not None]
    return JobTotals(
        records_per_s=rates.records_per_s if rates else None,
        value_bytes_per_s=rates.value_bytes_per_s if rates else None,
        lag=known_sum(p.lag for p in status.partitions),
        lag_s=max(ages, default=None),
        latency_p50_ms=rates.latency_p50_ms if rates else None,
        latency_p99_ms=rates.latency_p99_ms if rates else None,
        blocked=sum(kind_of_reason(p.reason) not in NOT_BLOCKED for p in status.partitions),
        workers_ready=sum(worker.ready for worker in status.workers),
        restarts=sum(status.restarts.values()),
        window=merged(partition.window for partition in status.partitions),
    )


def _with_rates(worker: WorkerStatus, rates: WorkerRates | None) -> WorkerStatus:
    if rates is None:
        return worker
    return replace(
        worker,
        records_per_s=rates.records_per_s,
        value_bytes_per_s=rates.value_bytes_per_s,
        busy=rates.busy,
    )


def _counted(worker: WorkerProgress) -> tuple[int, int, float]:
    return worker.records, worker.value_bytes, worker.work_s


def _rates_of_worker(
    now: tuple[int, int, float], before: tuple[int, int, float], span_s: float
) -> WorkerRates:
    records, value_bytes, busy = (rate(n, b, span_s) for n, b in zip(now, before, strict=True))
    return WorkerRates(records, value_bytes, min(1.0, busy))
