"""Metrics of a job, recorded into the OpenTelemetry SDK of the supervisor's process: the only place where a job is
measured.

Actors count for themselves and send their counters with their answers to pings; gauges are made of the job's status
when an exporter collects them. Without telemetry nothing of this happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping

from kafka_actors.job.messages import unpack
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.status import JobStatus, PartitionStatus
from kafka_actors.telemetry import configure
from kafka_actors.telemetry.attributes import kind_of_reason, of_group
from kafka_actors.telemetry.gauges import gauges
from kafka_actors.telemetry.instruments import (
    ASSIGNED,
    BLOCKED,
    CALLS,
    CURRENT_OFFSET,
    DRAINS,
    GROUP_OFFSET,
    GROUP_OFFSET_SUM,
    LAG,
    LAG_SUM,
    LAG_TIME,
    LATENCY,
    MEMBERS,
    MOVES,
    OLDEST_OFFSET,
    POSITION,
    REBALANCE_FAILURES,
    RESTARTS,
    WATERMARK_AGE,
    WINDOW,
    WORKERS,
    Instrument,
)
from kafka_actors.telemetry.recorder import GroupRecorder, Recorder, metered
from kafka_actors.telemetry.sdk import has_meter_provider
from kafka_actors.telemetry.tally import TallyPoint, TallyState, TallyTotals

__all__ = ["JobTelemetry", "measure", "points_of"]

STATUS_S = 2.0
FROM_ZERO: tuple[tuple[Instrument, str, tuple[str, ...]], ...] = (
    (RESTARTS, "role", ("worker", "coordinator", "metadata", "connection")),
    (DRAINS, "outcome", ("released", "forced")),
    (
        MOVES,
        "cause",
        (
            "worker_died",
            "worker_silent",
            "worker_retired",
            "balance",
            "stalled",
            "group_revoked",
            "group_lost",
            "conflict",
            "reset",
        ),
    ),
)
"""Counters whose series are all known, with the attribute that tells the series apart. These series begin with 0:
Prometheus sees no increase in a series that begins with its first event. Counters by partition can't begin so."""


def measure(plan: JobPlan, resource: Mapping[str, str]) -> None:
    """Sets up the SDK in the process of the supervisor, by the plan's settings. Raises as `telemetry.configure`."""
    if plan.telemetry is not None:
        configure(plan.telemetry, attributes=resource)


class JobTelemetry:
    """Records the counters and the gauges of one job.

    `on`: whether metrics or traces go anywhere; `measured`: whether metrics do. All methods run in the supervisor's loop;
    the SDK collects the gauges from a thread of its own.
    """

    def __init__(self, group_id: str | None, on: bool, recorder: Recorder | None = None) -> None:
        self.on = on
        self.measured = on and has_meter_provider()
        self._group_id = group_id
        self._recorder = GroupRecorder(recorder or metered(), group_id) if on else Recorder()
        self._totals = TallyTotals(self._recorder)
        self._forget: Callable[[], None] | None = None

    def begin(self, status: Callable[[], Awaitable[JobStatus]]) -> None:
        """Registers the gauges of a job that has started: each collection asks for its status."""
        if not self.on:
            return
        loop = asyncio.get_running_loop()

        async def ask() -> JobStatus:
            return await status()

        def points() -> Iterator[TallyPoint]:
            now = asyncio.run_coroutine_threadsafe(ask(), loop).result(STATUS_S)
            yield from points_of(now)
            for points_of_gauge in list(self._totals.gauges.values()):
                yield from points_of_gauge

        self._begin_counting()
        self._forget = gauges().register(points)

    def _begin_counting(self) -> None:
        group = self._group_id
        for instrument, key, values in FROM_ZERO:
            for value in values:
                self._recorder.add(instrument, 0, of_group(group, **{key: value}))
        self._recorder.add(REBALANCE_FAILURES, 0, of_group(group))
        self._recorder.merge(LATENCY, [0] * (len(LATENCY.boundaries) + 1), 0.0, of_group(group))

    def end(self) -> None:
        """Removes the gauges of a job that ends; its counters stay."""
        if self._forget is not None:
            self._forget()
            self._forget = None

    def counted(self, actor: str, tally: bytes) -> None:
        """Adds the counters that came with an actor's answer to a ping."""
        if self.on and tally:
            self._totals.take(actor, unpack(tally, TallyState))

    def gone(self, actor: str) -> None:
        """Forgets an incarnation that has ended; what it counted stays in the sums."""
        self._totals.forget(actor)

    def restarted(self, role: str) -> None:
        """Counts that an actor in this role is replaced."""
        self._recorder.add(RESTARTS, 1, of_group(self._group_id, role=role))


def points_of(status: JobStatus) -> Iterator[TallyPoint]:
    """Values of the gauges of a job."""
    group = status.group_id
    yield TallyPoint(ASSIGNED.name, of_group(group), len(status.partitions))
    if status.group is not None and status.group.members is not None:
        yield TallyPoint(MEMBERS.name, of_group(group), status.group.members)
    for ready in (True, False):
        count = sum(worker.ready is ready for worker in status.workers)
        yield TallyPoint(WORKERS.name, of_group(group, ready=str(ready).lower()), count)
    sums: dict[tuple[str, str], int] = {}
    for partition in status.partitions:
        topic = partition.topic
        attributes = of_group(group, topic=topic, partition=partition.partition)
        for instrument, value in _numbers(partition):
            yield TallyPoint(instrument.name, attributes, value)
        if (window := partition.window) is not None:
            for state, calls in (("in_flight", window.calls), ("parked", window.parked)):
                yield TallyPoint(CALLS.name, (*attributes, ("state", state)), calls)
        if partition.lag is not None:
            sums[LAG_SUM.name, topic] = sums.get((LAG_SUM.name, topic), 0) + partition.lag
        if partition.committed is not None:
            key = GROUP_OFFSET_SUM.name, topic
            sums[key] = sums.get(key, 0) + partition.committed
        if reason := kind_of_reason(partition.reason):
            yield TallyPoint(BLOCKED.name, (*attributes, ("reason", reason)), 1)
    for (name, topic), value in sums.items():
        yield TallyPoint(name, of_group(group, topic=topic), value)


def _numbers(partition: PartitionStatus) -> Iterator[tuple[Instrument, float]]:
    window, age = partition.window, None
    if window is not None:
        age = window.held_s or 0.0
    for instrument, value in (
        (WINDOW, None if window is None else window.records),
        (WATERMARK_AGE, age),
        (LAG, partition.lag),
        (LAG_TIME, partition.lag_seconds),
        (GROUP_OFFSET, partition.committed),
        (POSITION, partition.position),
        (CURRENT_OFFSET, partition.end),
        (OLDEST_OFFSET, partition.start),
    ):
        if value is not None:
            yield instrument, value
