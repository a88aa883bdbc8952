"""Load of a job: rates, backlog and the number of workers needed, computed from successive observations.

Theory of operation. Each observation has, for each partition, the end of its log and how far it is processed, and for each
worker the seconds it was at work since its start. Offsets are counted, not records, so that backlog and work are in one unit;
in a compacted log both have the same gaps.

The pace, what one worker does in a second of work, is the work done divided by the time at work, between moments in which calls
had ended. Arrivals are averaged over the whole window (`target_lag_seconds`), processing and utilization over a sixth of it.
A partition needs `arriving / (pace · utilization)` workers to keep up and `lag / (pace · window)` to catch up in time, but never
more than can share it: one where its records are processed in their order, else one for each of its lanes. The sums over all
partitions are the workers needed. Partitions of which nothing can be read need none, and neither do those of a retry topic
until their next record is due: what waits behind it is no backlog. As a retry partition goes with its source's, only
source partitions say how many workers can have some.

- A worker's pace is taken between moments in which calls had ended, over several calls if there were as many,
  so that a call that is longer than the window is not cut in two, and a single slow one doesn't decide.
- Samples are thinned to `SAMPLES` of a window: with thousands of partitions each is big, and the ends of the
  window decide.
- A partition that gains records while its worker has full buffers has an end that is asked for, not one that
  was fetched: see "How many workers" in ARCHITECTURE.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

import msgspec

from kafka_actors.job.messages import CoordinatorStatus
from kafka_actors.job.retry_topics import WAITS
from kafka_actors.telemetry.attributes import kind_of_reason
from kafka_actors.types import TopicPartition

__all__ = ["Load", "LoadMeter", "Observation", "PartitionLoad", "observed"]

READABLE = frozenset(
    {
        "",
        "buffer_full",
        "no_worker",
        "waits_for_its_turn",
        "its_window_is_full",
        "calls_from_before_a_reset_are_not_over",
    }
)
"""Kinds of reasons for not reading a partition that lie with its worker: another one could read it, or has room for others."""
NOT_YET = frozenset(map(kind_of_reason, WAITS))
"""Kinds of reasons for not processing a retry partition that are no trouble. A source partition for which is read ahead goes on soon, with
all that is there: it keeps its share of the workers."""
SAMPLES = 15
"""Samples kept of one window: with thousands of partitions each is big."""
RECENT = 6
"""The fraction of the window, a sixth, over which recent rates are measured."""
RECENT_AT_LEAST_S = 3.0
LATELY, IN_WINDOW = 2, 4
"""The pace is taken over at least this many calls, recently and in the whole window, if there were as many."""


class PartitionLoad(msgspec.Struct, frozen=True):
    """One partition. `end`: the offset after its last record; `done`: after the last processed one; None while unknown.
    `blocked`: nothing can be read of it now, by any worker. `retry`: it is of a retry topic; `waits`: and none of its records is to be
    processed now."""

    end: int | None
    done: int | None
    blocked: bool = False
    retry: bool = False
    waits: bool = False


class Observation(msgspec.Struct, frozen=True):
    """A job at one moment. `busy_s`: worker → seconds at work since its start. `wanted`: the number of workers that there
    should be; `ready`: how many of them work."""

    partitions: Mapping[TopicPartition, PartitionLoad]
    busy_s: Mapping[str, float]
    wanted: int
    ready: int


def observed(
    status: CoordinatorStatus,
    ends: Mapping[TopicPartition, int],
    wanted: int,
    ready: int,
    retry_topics: Collection[str] = (),
) -> Observation:
    """Makes an observation of a coordinator's status. `ends`: where a bounded run ends; empty for an unbounded one."""
    partitions = {}
    for p in status.partitions:
        at = TopicPartition(p.topic, p.partition)
        done = p.end - p.lag if p.end is not None and p.lag is not None else None
        end = p.end if p.end is None else min(p.end, ends.get(at, p.end))
        kind = kind_of_reason(p.reason)
        others_go_on = kind == "retrying" and p.window is not None  # of the partition's keys
        retry = p.topic in retry_topics
        waits = retry and kind in NOT_YET
        blocked = kind not in READABLE and not (others_go_on or waits)
        partitions[at] = PartitionLoad(end, done, blocked, retry, waits)
    return Observation(partitions, {w: p.work_s for w, p in status.workers.items()}, wanted, ready)


class Load(msgspec.Struct, frozen=True):
    """Load of a job at one moment. Rates are offsets a second.

    `partitions`: the number of source partitions; `blocked`: of those of which nothing can be read. `pace`: of one worker, per second of
    work; None until a call has ended. `busy`: the recent utilization of the busiest worker, 0 to 1. `for_rate` and `for_lag`: workers needed
    to keep up, and to catch up in time; `workers` covers both. `alone`: partitions with more backlog than one worker, or all that can
    share it, can process in time. `most`: the most workers that can have partitions.
    """

    partitions: int
    most: int
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
        """Returns how many seconds this number of workers takes for the backlog; None while the pace isn't known."""
        if not self.lag:
            return 0.0
        return None if not self.pace else self.lag / (self.pace * max(1, workers))


class LoadSample(msgspec.Struct, frozen=True):
    """Counters at one moment."""

    at: float
    done: int
    by_worker: dict[str, float]
    ends: dict[TopicPartition, int]


class ProgressStep(msgspec.Struct, frozen=True):
    """Counters at a moment in which more was done than at the last one."""

    at: float
    done: int
    busy_s: float


class WorkerThroughput:
    """Pace of one worker: work per second at work, measured between moments in which calls had ended, so that a call longer
    than the window is not cut in two."""

    def __init__(self, window_s: float, recent_s: float) -> None:
        self._window_s = window_s
        self._recent_s = recent_s
        self._steps: deque[ProgressStep] = deque()
        self.value: float | None = None

    def add(self, now: float, done: int, busy_s: float) -> None:
        """Takes the counters now. The higher of the recent pace and the window's counts: workers with little to do are slow,
        because each call has a fixed cost."""
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
        """Returns the pace since the moment, but over so many steps at least where there are as many."""
        old = list(self._steps)[: -steps or None] or [self._steps[0]]
        then = next((s for s in reversed(old) if s.at <= moment), self._steps[0])
        last = self._steps[-1]
        return (last.done - then.done) / (last.busy_s - then.busy_s)


class LoadMeter:
    """Computes the load from observations, which come in the order of their times. `lanes`: the most workers that can share a partition."""

    def __init__(self, window_s: float, utilization: float, lanes: int = 1) -> None:
        self._window_s = window_s
        self._lanes = lanes
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
        """Takes an observation at `now`, in monotonic seconds. Returns the load."""
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
        """Counts new work. A partition whose worker died goes back, and its work is counted again from there."""
        for partition, load in seen.partitions.items():
            if load.done is not None:
                self._done += max(0, load.done - self._done_at.get(partition, load.done))
                self._done_at[partition] = load.done
        self._done_at = {p: done for p, done in self._done_at.items() if p in seen.partitions}
        for worker, busy_s in seen.busy_s.items():
            self._busy_s += max(0.0, busy_s - self._busy_at.get(worker, busy_s))
        self._busy_at = dict(seen.busy_s)

    def _keep(self, current: LoadSample) -> None:
        """Keeps a sample from time to time, and one from before the window."""
        if not self._samples or current.at - self._samples[-1].at >= self._window_s / SAMPLES:
            self._samples.append(current)
        while len(self._samples) > 1 and self._samples[1].at <= current.at - self._window_s:
            self._samples.popleft()

    def _at(self, moment: float) -> LoadSample:
        """Returns the newest sample at or before the moment, else the oldest."""
        return next((s for s in reversed(self._samples) if s.at <= moment), self._samples[0])

    def _load(self, seen: Observation, current: LoadSample, since: LoadSample, recent: LoadSample) -> Load:
        """Computes the load between the samples at the window's begin (`since`), lately (`recent`) and now."""
        # A backlog at the start is no rate: nothing is known of arrivals before the first observation.
        span = max(self._window_s, current.at - since.at)
        pace = self._pace.value
        lag = arrived = blocked = 0
        for_rate = for_lag = workers = 0.0
        alone = []
        for partition, load in seen.partitions.items():
            if load.end is None:
                continue
            came = max(0, load.end - since.ends.get(partition, self._first_ends[partition]))
            waits = max(0, load.end - load.done) if load.done is not None and not load.waits else 0
            arrived += came
            lag += waits
            blocked += load.blocked and not load.retry
            if load.blocked or not pace:
                continue
            # More workers than can share a partition are of no use, however much there is to do.
            by_rate = came / span / (pace * self._utilization)
            by_lag = waits / (pace * self._window_s)
            for_rate += min(self._lanes, by_rate)
            for_lag += min(self._lanes, by_lag)
            workers += min(self._lanes, max(by_rate, by_lag))
            if by_lag > self._lanes:
                alone.append(partition)
        took = current.at - recent.at
        sources = sum(not load.retry for load in seen.partitions.values())
        return Load(
            partitions=sources,
            most=sources * self._lanes,
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
    """Returns the share of its time for which the busiest worker was at work lately; 0 before a second sample."""
    took = current.at - recent.at
    if not took:
        return 0.0
    shares = ((busy_s - recent.by_worker.get(w, busy_s)) / took for w, busy_s in current.by_worker.items())
    return min(1.0, max(shares, default=0.0))
