"""How many workers a job should have: a number that somebody said, or what a policy makes of the load.

The policy asks for as many workers as keep up with what comes in while they are busy for `target_utilization` of their
time, and as work off what waits within `target_lag_seconds`. Between asking for more and for fewer lies a gap:

    more    the backlog takes longer than the target, or the rate needs 1.1 times the workers there are; not before
            all are up and `upscale_delay_seconds` have passed; at most four times as many in one step
    fewer   what was needed at most in the last `downscale_delay_seconds` is less than there is

Where more would not help, none are asked for: the records of one partition can't be shared out, workers wait for
records, or the last step brought nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

import msgspec

from kafka_actors.job.autoscale import Autoscale

from .load import Load, LoadMeter, Observation

__all__ = ["ScalingDecision", "WorkerCount"]

TOLERANCE = 1.1
STEP = 4
LEAST_BUSY = 0.5
NO_TIME_LEFT = 0.95
LEAST_GAIN = 0.2
"""The part of what more workers should have brought that counts as a gain."""
REMEMBERED = 20


class ScalingDecision(msgspec.Struct, frozen=True):
    """A change of the number of workers. `at`: monotonic seconds."""

    at: float
    before: int
    after: int
    reason: str


class WorkerCount:
    """The last thing said counts: `say` a number and it stays, `say` a policy and it decides from then on."""

    def __init__(self, said: int | Autoscale) -> None:
        self.workers = said if isinstance(said, int) else said.first
        self.policy: AutoscalePolicy | None = None if isinstance(said, int) else AutoscalePolicy(said)
        self.decisions: deque[ScalingDecision] = deque(maxlen=REMEMBERED)
        self._changes = 0
        self.load: Load | None = None

    @property
    def autoscale(self) -> Autoscale | None:
        return self.policy.autoscale if self.policy is not None else None

    @property
    def holding(self) -> str:
        """Why there aren't more or fewer workers now; empty where nobody decides, or nothing is amiss."""
        return self.policy.holding if self.policy is not None else ""

    def set_workers(self, said: int | Autoscale, now: float) -> ScalingDecision | None:
        """A user asks for a number of workers, or for a policy. Returns the change, if it is one."""
        if isinstance(said, Autoscale):
            self.policy = AutoscalePolicy(said)
            return None
        replaced = self.autoscale
        self.policy = self.load = None
        reason = f"scale({said})" + (f" instead of {replaced}" if replaced is not None else "")
        return (
            self._changed(ScalingDecision(now, self.workers, said, reason)) if said != self.workers else None
        )

    def revert(self, workers: int, reason: str, now: float) -> ScalingDecision:
        """What was said can't be had: back to so many."""
        return self._changed(ScalingDecision(now, self.workers, workers, reason))

    def observe(self, seen: Observation, now: float) -> ScalingDecision | None:
        """What the policy makes of the job as it is now."""
        if self.policy is None:
            return None
        decision = self.policy.observe(seen, now)
        self.load = self.policy.load
        return None if decision is None else self._changed(decision)

    def _changed(self, decision: ScalingDecision) -> ScalingDecision:
        self.workers = decision.after
        self.decisions.append(decision)
        self._changes += 1
        return decision

    def numbered(self) -> Iterable[tuple[int, ScalingDecision]]:
        """The last decisions, each with its number; the first of all has 1."""
        return enumerate(self.decisions, self._changes - len(self.decisions) + 1)


class AutoscalePolicy:
    """One `Autoscale` at work."""

    def __init__(self, autoscale: Autoscale) -> None:
        self.autoscale = autoscale
        self.load: Load | None = None
        self.holding = ""
        self._meter = LoadMeter(autoscale.target_lag_seconds, autoscale.target_utilization)
        self._peak = RollingMaximum(autoscale.downscale_delay_seconds)
        # What the workers there are do has to have been seen first.
        self._patience_s = max(autoscale.upscale_delay_seconds, self._meter.recent_s)
        self._up_since: float | None = None  # all workers have been up since then
        self._trial: tuple[int, float] | None = None  # workers and rate before the last step for a backlog
        self._in_vain_until = -math.inf
        self._too_many_since: float | None = None
        self._short_since: float | None = None

    def observe(self, seen: Observation, now: float) -> ScalingDecision | None:
        """The change to make now, if any; otherwise `holding` may say why there is none."""
        self.load = load = self._meter.observe(seen, now)
        self.holding = ""
        if seen.ready < seen.wanted:
            self._up_since = None
        elif self._up_since is None:
            self._up_since = now
        if not load.partitions:
            self._peak.forget()
            self.holding = "the group has given it no partitions"
            return None
        most = min(self.autoscale.max, load.partitions)
        least = min(self.autoscale.min, most)
        self._peak.add(now, min(self._need(load, seen.wanted), most))
        after, reason = (
            self._bounded(seen.wanted, least)
            or self._more(load, seen, most, now)
            or self._fewer(load, seen.wanted, least, now)
            or (seen.wanted, "")
        )
        if after == seen.wanted:
            return None
        self._peak.forget()
        self._up_since = None
        return ScalingDecision(now, seen.wanted, after, reason)

    def _need(self, load: Load, workers: int) -> float:
        """While there is work and no pace, nothing says that fewer would do; nor do partitions that can't be read."""
        if load.pace is None and (load.lag or load.arriving):
            return workers
        return max(load.workers, workers * load.blocked / load.partitions)

    # ------------------------------------------------------------ whatever the load

    def _bounded(self, workers: int, least: int) -> tuple[int, str] | None:
        if workers < least:
            return least, f"at least {least}"
        if workers > self.autoscale.max:
            return self.autoscale.max, f"at most {self.autoscale.max}"
        return None

    # ------------------------------------------------------------ more

    def _more(self, load: Load, seen: Observation, most: int, now: float) -> tuple[int, str] | None:
        workers = seen.wanted
        behind = load.for_lag > workers
        if not behind and load.for_rate <= TOLERANCE * workers:
            self._short_since = None
            if load.pace is None and load.lag:
                self.holding = "no call has ended yet: how fast workers are is not known"
            elif load.alone and workers >= most:
                self.holding = self._all_there_may_be(load, workers)
            elif load.alone:
                names = ", ".join(f"{p.topic}-{p.partition}" for p in load.alone[:3])
                self.holding = f"too much for one worker to do in time, and others can't help: {names}"
            return None
        after = min(math.ceil(load.workers), most, STEP * workers)
        if after <= workers:
            self.holding = self._all_there_may_be(load, workers)
            return None
        # Workers that had little to do look slow until what came has been worked on for a while.
        self._short_since = now if self._short_since is None else self._short_since
        self.holding = self._not_yet(load, seen, behind, now)
        if self.holding:
            return None
        # Only workers that have no time left show with their rate what so many can do.
        self._trial = (workers, load.done) if behind or load.busy >= NO_TIME_LEFT else None
        return after, self._why_more(load, workers, behind)

    def _all_there_may_be(self, load: Load, workers: int) -> str:
        by_partitions = load.partitions < self.autoscale.max
        why = f"there are {load.partitions} partitions" if by_partitions else f"max is {self.autoscale.max}"
        return f"no more than {_count(workers)}: {why}"

    def _not_yet(self, load: Load, seen: Observation, behind: bool, now: float) -> str:
        """Why no more workers are asked for though they seem to be needed; empty if they are."""
        if self._up_since is None:
            return f"{seen.wanted - seen.ready} of {seen.wanted} workers are still starting"
        if now < self._in_vain_until:
            return f"more workers did no more than {seen.wanted}: something else is the limit"
        if self._short_since is None or now < self._short_since + self._meter.recent_s:
            return f"more workers seem to be needed, for less than {self._meter.recent_s:g} s"
        if now < self._up_since + self._patience_s:
            return f"{seen.wanted} workers have not been up for {self._patience_s:g} s"
        if behind and load.busy < LEAST_BUSY:
            return f"workers wait for records: the busiest is at work for {load.busy:.0%} of its time"
        if behind and self._was_in_vain(load, seen.wanted):
            self._trial = None
            self._in_vain_until = now + self.autoscale.downscale_delay_seconds
            return f"more workers did no more than {seen.wanted}: something else is the limit"
        return ""

    def _was_in_vain(self, load: Load, workers: int) -> bool:
        """Whether the last step brought less than a fifth of what it should have."""
        if self._trial is None:
            return False
        before, done = self._trial
        return load.done < done * (1 + LEAST_GAIN * (workers / before - 1))

    def _why_more(self, load: Load, workers: int, behind: bool) -> str:
        assert load.pace is not None
        if behind:
            seconds = load.seconds(workers) or 0.0
            target = self.autoscale.target_lag_seconds
            return f"lag {load.lag:,} is {seconds:,.0f} s of work for {_count(workers)}; the target is {target:g} s"
        return (
            f"{load.arriving:,.0f} records/s come in; {_count(workers)} can do {load.pace * workers:,.0f}/s "
            f"and should be busy for {self.autoscale.target_utilization:.0%} of the time"
        )

    # ------------------------------------------------------------ fewer

    def _fewer(self, load: Load, workers: int, least: int, now: float) -> tuple[int, str] | None:
        peak, seconds = self._peak.over_all(now), self.autoscale.downscale_delay_seconds
        after = workers if peak is None else max(least, math.ceil(peak))
        if after >= workers:
            self._too_many_since = None
            return None
        if self._too_many_since is None:
            self._too_many_since = now
        # While the peak goes down with each moment, one step a little later spares many small ones.
        falling = max(least, math.ceil(self._need(load, workers))) < after
        if falling and now < self._too_many_since + seconds:
            return None
        self._trial = self._too_many_since = None
        if workers > load.partitions and after == load.partitions:
            return after, f"there are only {load.partitions} partitions"
        if not peak:
            return after, f"nothing to do for {seconds:g} s"
        return after, f"{_count(after)} would have been enough for {seconds:g} s"


class RollingMaximum:
    """The highest value of the last `span_s` seconds."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._since: float | None = None
        # Falling: a lower value that is older can't be the highest again.
        self._values: deque[tuple[float, float]] = deque()

    def add(self, now: float, value: float) -> None:
        if self._since is None:
            self._since = now
        while self._values and self._values[-1][1] <= value:
            self._values.pop()
        self._values.append((now, value))
        while self._values[0][0] < now - self._span_s:
            self._values.popleft()

    def over_all(self, now: float) -> float | None:
        """None until values of the whole span are known."""
        if self._since is None or now - self._since < self._span_s:
            return None
        return self._values[0][1]

    def forget(self) -> None:
        """Begins anew."""
        self._since = None
        self._values.clear()


def _count(workers: int) -> str:
    return "1 worker" if workers == 1 else f"{workers} workers"
