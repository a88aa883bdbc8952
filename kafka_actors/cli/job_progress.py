"""From successive `JobStatus` to what a person watches: rates, totals, what is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from kafka_actors.base.rates import WINDOW_S, known_sum
from kafka_actors.status_page.machines.rates import LatencyRate, RateWindow

if TYPE_CHECKING:
    from kafka_actors.job.messages import PartitionStatus
    from kafka_actors.job.status import JobStatus, ScalingStatus, WorkerStatus
    from kafka_actors.status_page.document import Document

__all__ = ["JobProgress", "JobReading", "WorkerRates", "reading_of"]


class WorkerRates(Struct, frozen=True):
    """A worker, how many records a second it processed lately, and for which share of its time it was at work."""

    status: WorkerStatus
    records_per_s: float
    busy: float | None = None


class JobReading(Struct, frozen=True):
    """A job at one moment. `records`: processed by all workers so far, those that died included; `lag`: records
    of the job's partitions still to process, None while no end is known; `lag_s`: how long ago the log of the one that is
    furthest behind ended where the job is now; `latency`: from timestamp to processed, lately; `elapsed_s`: since the first
    status; `waits_for`: what keeps the job from having started."""

    elapsed_s: float
    state: str
    group_id: str
    generation: int | None
    records: int
    records_per_s: float
    lag: int | None
    restarts: int
    workers: list[WorkerRates]
    partitions: list[PartitionStatus]
    scaling: ScalingStatus
    lag_s: float | None = None
    latency: LatencyRate | None = None
    waits_for: list[str] = []


class JobProgress:
    """Takes statuses with the monotonic time they were taken at, in seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._rates = RateWindow(window_s)
        self._started: float | None = None

    def observe(self, status: JobStatus, now: float) -> JobReading:
        """The reading at `now`; rates are over the last `window_s` seconds."""
        if self._started is None:
            self._started = now
        pace = self._rates.observe(status, now)
        ages = [p.lag_seconds for p in status.partitions if p.lag_seconds is not None]
        return JobReading(
            elapsed_s=now - self._started,
            state=status.state,
            group_id=status.group_id,
            generation=status.group.generation if status.group else None,
            records=status.records,
            records_per_s=pace.records_per_s if pace else 0.0,
            lag=known_sum(p.lag for p in status.partitions),
            restarts=sum(status.restarts.values()),
            workers=[
                WorkerRates(w, pace.workers[w.name].records_per_s, pace.workers[w.name].busy)
                if pace
                else WorkerRates(w, 0.0)
                for w in status.workers
            ],
            partitions=status.partitions,
            scaling=status.scaling,
            lag_s=max(ages, default=None),
            latency=pace.latency if pace else None,
            waits_for=status.waits_for,
        )


def reading_of(document: Document) -> JobReading:
    """The same, of the status page's document; `elapsed_s` since the job's start."""
    from kafka_actors.job.autoscale import parsed_workers
    from kafka_actors.job.messages import PartitionStatus
    from kafka_actors.job.status import ScalingStatus, WorkerStatus

    totals, scaling = document.totals, document.scaling
    policy = None if scaling.policy is None else parsed_workers(scaling.policy)
    p50, p99 = totals.latency_p50_ms, totals.latency_p99_ms
    return JobReading(
        elapsed_s=max(0.0, document.at_s - document.job.started_s),
        state=document.job.state,
        group_id=document.job.group,
        generation=document.group.generation,
        records=totals.records,
        records_per_s=totals.records_per_s or 0.0,
        lag=totals.lag,
        restarts=totals.restarts,
        workers=[
            WorkerRates(
                WorkerStatus(
                    name=w.name,
                    pid=w.pid,
                    node=w.node,
                    ready=w.ready,
                    partitions=[(p.topic, p.partition) for p in document.partitions if p.worker == w.name],
                    records=w.records,
                    value_bytes=w.value_bytes,
                    restarts=w.restarts,
                    retiring=w.state == "retiring",
                ),
                w.records_per_s or 0.0,
                w.busy,
            )
            for w in document.workers
        ],
        partitions=[
            PartitionStatus(
                p.topic,
                p.partition,
                p.worker,
                p.position,
                p.committed,
                p.end,
                p.lag,
                p.state,
                p.reason,
                p.lag_s,
                p.leader,
            )
            for p in document.partitions
        ],
        scaling=ScalingStatus(
            workers=scaling.workers,
            autoscale=None if isinstance(policy, int) else policy,
            holding=scaling.holding,
            backlog_seconds=scaling.backlog_s,
            arriving_per_s=scaling.arriving_per_s,
            processed_per_s=scaling.processed_per_s,
            pace_per_s=scaling.pace_per_s,
            busy=scaling.busy,
        ),
        lag_s=totals.lag_s,
        latency=None if p50 is None or p99 is None else LatencyRate(p50, p99),
        waits_for=_waits_for(document),
    )


def _waits_for(document: Document) -> list[str]:
    """The page says it in its verdict."""
    said = document.health.reason.partition(": it waits for ")[2] if document.job.state == "starting" else ""
    return [said] if said else []
