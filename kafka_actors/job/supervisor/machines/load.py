"""What a job has to do, measured: from successive observations to rates, the backlog, and the workers it needs.

Offsets are counted, not records, so that what waits and what is done are in the same unit; where a log was compacted
both have the same gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from kafka_actors.job.messages import CoordinatorStatus
from kafka_actors.types import TopicPartition

__all__ = ["Load", "LoadMeter", "Observation", "PartitionLoad", "observed"]

READABLE = ("", "buffer full", "no worker")
"""Reasons why nothing is fetched of a partition that have to do with its worker, not with its broker."""
SAMPLES = 15
"""So many moments of the window are remembered: with thousands of partitions each is big."""
RECENT = 6
"""What is going on now is measured over this part of the window."""
RECENT_AT_LEAST_S = 3.0
LATELY, IN_WINDOW = 2, 4
"""From so many calls at least a pace is taken, if there have been so many."""


class PartitionLoad(msgspec.Struct, frozen=True):
    """One partition. `end`: the offset behind its last record; `done`: behind the last one that was processed; None while
    not known. `blocked`: nothing can be read of it now, whoever tries."""

    end: int | None
    done: int | None
    blocked: bool = False


class Observation(msgspec.Struct, frozen=True):
    """A job at one moment. `busy_s`: worker → the seconds it has been at work since its start. `wanted`: how many
    workers there should be; `ready`: how many of these work."""

    partitions: Mapping[TopicPartition, PartitionLoad]
    busy_s: Mapping[str, float]
    wanted: int
    ready: int


def observed(
    status: CoordinatorStatus, ends: Mapping[TopicPartition, int], wanted: int, ready: int
) -> Observation:
    """A job as its coordinator sees it. `ends`: where a bounded run ends; empty for one that isn't."""
    partitions = {}
    for p in status.partitions:
        at = TopicPartition(p.topic, p.partition)
        done = p.end - p.lag if p.end is not None and p.lag is not None else None
        end = p.end if p.end is None else min(p.end, ends.get(at, p.end))
        partitions[at] = PartitionLoad(end, done, p.reason not in READABLE)
    return Observation(partitions, {w: p.work_s for w, p in status.workers.items()}, wanted, ready)


class Load(msgspec.Struct, frozen=True):
    """What the job has to do. Rates are offsets a second.

    `pace`: what one worker does in a second of work; None while no work was seen. `busy`: the share of its time that the
    busiest worker was at work lately. `blocked`: partitions of which nothing can be read. `for_rate` and `for_lag`:
    how many workers keep up with what comes in, and how many do what waits in time; `workers` covers both. `alone`:
    partitions that one worker can't do alone.
    """

    partitions: int
    lag: int
    arriving: float
    done: float
    pace: float | None
    busy: float
    blocked: int = 0
    for_rate: float = 0.0
    for_lag: float = 0.0
    workers: float = 0.0
    alone: tuple[TopicPartition, ...] = ()

    def seconds(self, workers: int) -> float | None:
        """How long so many workers take for what waits; None while the pace isn't known."""
        if not self.lag:
            return 0.0
        return None if not self.pace else self.lag / (self.pace * max(1, workers))


class LoadSample(msgspec.Struct, frozen=True):
    """The counters at one moment."""

    at: float
    done: int
    by_worker: dict[str, float]
    ends: dict[TopicPartition, int]


class ProgressStep(msgspec.Struct, frozen=True):
    """A moment in which more had been done than before."""

    at: float
    done: int
    busy_s: float


class WorkerThroughput:
    """What a worker does in a second of work: from one moment in which a call had ended to another, so that a call
    that lasts longer than what is looked at is not cut in two."""

    def __init__(self, window_s: float, recent_s: float) -> None:
        self._window_s = window_s
        self._recent_s = recent_s
        self._steps: deque[ProgressStep] = deque()
        self.value: float | None = None

    def add(self, now: float, done: int, busy_s: float) -> None:
        """The counters now. Of the pace lately and that over the window the higher one counts: workers with little
        to do are slow, because each call costs something."""
        last = self._steps[-1] if self._steps else None
        if last is not None and (done <= last.done or busy_s <= last.busy_s):
            return
        self._steps.append(ProgressStep(now, done, busy_s))
        while len(self._steps) > IN_WINDOW + 2 and self._steps[1].at <= now - self._window_s:
            self._steps.popleft()
        if len(self._steps) > 1:
            lately = self._since(now - self._recent_s, LATELY)
            self.value = max(lately, self._since(now - self._window_s, IN_WINDOW))

    def _since(self, moment: float, steps: int) -> float:
        old = list(self._steps)[: -steps or None] or [self._steps[0]]
        then = next((s for s in reversed(old) if s.at <= moment), self._steps[0])
        last = self._steps[-1]
        return (last.done - then.done) / (last.busy_s - then.busy_s)


class LoadMeter:
    """Feed it observations in the order of their times."""

    def __init__(self, window_s: float, utilization: float) -> None:
        self._window_s = window_s
        self.recent_s = max(RECENT_AT_LEAST_S, window_s / RECENT)
        self._utilization = utilization
        self._samples: deque[LoadSample] = deque()
        self._first_ends: dict[TopicPartition, int] = {}
        self._done_at: dict[TopicPartition, int] = {}
        self._busy_at: dict[str, float] = {}
        self._done = 0
        self._busy_s = 0.0
        self._pace = WorkerThroughput(window_s, self.recent_s)

    def observe(self, seen: Observation, now: float) -> Load:
        """The load at `now`."""
        self._count(seen)
        ends = {p: load.end for p, load in seen.partitions.items() if load.end is not None}
        for partition, end in ends.items():
            self._first_ends.setdefault(partition, end)
        self._first_ends = {p: end for p, end in self._first_ends.items() if p in ends}
        self._pace.add(now, self._done, self._busy_s)
        current = LoadSample(now, self._done, dict(seen.busy_s), ends)
        self._keep(current)
        return self._load(seen, current, self._at(now - self._window_s), self._at(now - self.recent_s))

    def _count(self, seen: Observation) -> None:
        """A partition that goes back, because its worker died, is worked on again: that counts from there."""
        for partition, load in seen.partitions.items():
            if load.done is not None:
                self._done += max(0, load.done - self._done_at.get(partition, load.done))
                self._done_at[partition] = load.done
        self._done_at = {p: done for p, done in self._done_at.items() if p in seen.partitions}
        for worker, busy_s in seen.busy_s.items():
            self._busy_s += max(0.0, busy_s - self._busy_at.get(worker, busy_s))
        self._busy_at = dict(seen.busy_s)

    def _keep(self, current: LoadSample) -> None:
        if not self._samples or current.at - self._samples[-1].at >= self._window_s / SAMPLES:
            self._samples.append(current)
        while len(self._samples) > 1 and self._samples[1].at <= current.at - self._window_s:
            self._samples.popleft()

    def _at(self, moment: float) -> LoadSample:
        """The youngest sample that is at least so old, else the oldest."""
        return next((s for s in reversed(self._samples) if s.at <= moment), self._samples[0])

    def _load(self, seen: Observation, current: LoadSample, since: LoadSample, recent: LoadSample) -> Load:
        # Before the first observation nothing is known to have come in, so a backlog at the start is no rate.
        span = max(self._window_s, current.at - since.at)
        pace = self._pace.value
        lag = arrived = blocked = 0
        for_rate = for_lag = workers = 0.0
        alone = []
        for partition, load in seen.partitions.items():
            if load.end is None:
                continue
            came = max(0, load.end - since.ends.get(partition, self._first_ends[partition]))
            waits = max(0, load.end - load.done) if load.done is not None else 0
            arrived += came
            lag += waits
            blocked += load.blocked
            if load.blocked or not pace:
                continue
            # A partition is one worker's at most, however much there is to do.
            by_rate = came / span / (pace * self._utilization)
            by_lag = waits / (pace * self._window_s)
            for_rate += min(1.0, by_rate)
            for_lag += min(1.0, by_lag)
            workers += min(1.0, max(by_rate, by_lag))
            if by_lag > 1.0:
                alone.append(partition)
        took = current.at - recent.at
        return Load(
            partitions=len(seen.partitions),
            lag=lag,
            arriving=arrived / span,
            done=(current.done - recent.done) / took if took else 0.0,
            pace=pace,
            busy=_busiest(current, recent),
            blocked=blocked,
            for_rate=for_rate,
            for_lag=for_lag,
            workers=workers,
            alone=tuple(sorted(alone)),
        )


def _busiest(current: LoadSample, recent: LoadSample) -> float:
    took = current.at - recent.at
    if not took:
        return 0.0
    shares = ((busy_s - recent.by_worker.get(w, busy_s)) / took for w, busy_s in current.by_worker.items())
    return min(1.0, max(shares, default=0.0))
