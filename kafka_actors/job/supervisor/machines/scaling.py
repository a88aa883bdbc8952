"""Number of workers of a job: fixed by a user, or decided by the autoscaling policy from the load.

Theory of operation. Arrives: a number or a policy from the user (`set_workers`), and once a second an
observation of the job, of which `LoadMeter` computes the load. Decided: how many workers there should be, and
why, in words. The policy wants as many workers as keep up with arrivals while they are busy for
`target_utilization` of their time, and as work off the backlog within `target_lag_seconds`. Hysteresis keeps
it from moving up and down:

    more    the backlog takes longer than the target, or the rate needs 1.1 times the present workers, for as long as
            recent rates are measured over; not before all workers are up for `upscale_delay_seconds`; at most four times as
            many in one step
    fewer   the highest need of the last `downscale_delay_seconds` is less than the present number

It does not ask for more where that would not help: the records of one partition can't be shared out; workers
wait for records (the busiest is at work for less than half of its time); or the last step brought less than a
fifth of what it should have, because something else is the limit. Then no step follows for
`downscale_delay_seconds`. `holding` says in words why a number that seems wrong stays.

- The delays differ because the two mistakes do: with too few workers the lag grows, with too many nothing is
  lost but their cost. Each step moves partitions, whose calls are drained first.
- After a step the highest need counts anew (`RollingMaximum.forget`), and all workers have to be up before
  the next one: what they can do isn't known until they have done it.
- While the pace isn't known (no call has ended) the present number is the need. Blocked partitions keep their
  share of the workers: their records will come when the broker is back.
- Partitions bound the number from above, and the policy's `min` and `max` bound it whatever the load.
- `WorkerCount` keeps the last decisions for the status. `revert` is the supervisor's, when more workers find
  no place.
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
"""More workers are added for the rate once it needs this many times the present ones."""
STEP = 4
"""The most that one step multiplies the number by."""
LEAST_BUSY = 0.5
"""Below this share of its time even the busiest worker waits for records: more workers would wait as well."""
NO_TIME_LEFT = 0.95
"""From this share on a worker counts as one that could not have done more."""
LEAST_GAIN = 0.2
"""The fraction of the expected gain that more workers must bring to count as useful."""
REMEMBERED = 20
"""Decisions kept for the status."""


class ScalingDecision(msgspec.Struct, frozen=True):
    """Change of the number of workers. `at`: monotonic seconds."""

    at: float
    before: int
    after: int
    reason: str


class WorkerCount:
    """Number of workers, as last set: a number stays, a policy decides from then on. `lanes`: the most workers that can share a partition."""

    def __init__(self, wanted: int | Autoscale, lanes: int = 1) -> None:
        self._lanes = lanes
        self.workers = wanted if isinstance(wanted, int) else wanted.first
        self.policy: AutoscalePolicy | None = (
            None if isinstance(wanted, int) else AutoscalePolicy(wanted, lanes)
        )
        self.decisions: deque[ScalingDecision] = deque(maxlen=REMEMBERED)
        self._changes = 0
        self.load: Load | None = None

    @property
    def autoscale(self) -> Autoscale | None:
        return self.policy.autoscale if self.policy is not None else None

    @property
    def holding(self) -> str:
        """Reason why the policy doesn't change the number; empty without a policy, or if the number seems right."""
        return self.policy.holding if self.policy is not None else ""

    def set_workers(self, wanted: int | Autoscale, now: float) -> ScalingDecision | None:
        """Sets a number or a policy. Returns the change of the number, if there is one."""
        if isinstance(wanted, Autoscale):
            self.policy = AutoscalePolicy(wanted, self._lanes)
            return None
        replaced = self.autoscale
        self.policy = self.load = None
        reason = f"scale({wanted})" + (f" instead of {replaced}" if replaced is not None else "")
        return (
            self._changed(ScalingDecision(now, self.workers, wanted, reason))
            if wanted != self.workers
            else None
        )

    def revert(self, workers: int, reason: str, now: float) -> ScalingDecision:
        """Goes back to so many workers, because more found no place."""
        return self._changed(ScalingDecision(now, self.workers, workers, reason))

    def observe(self, seen: Observation, now: float) -> ScalingDecision | None:
        """Feeds an observation to the policy, if there is one. Returns its change, if any."""
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
        """Returns the last decisions with their numbers; the job's first one has number 1."""
        return enumerate(self.decisions, self._changes - len(self.decisions) + 1)


class AutoscalePolicy:
    """Decides by one `Autoscale`; see the module's theory of operation."""

    def __init__(self, autoscale: Autoscale, lanes: int = 1) -> None:
        self.autoscale = autoscale
        self.load: Load | None = None
        self.holding = ""
        self._meter = LoadMeter(autoscale.target_lag_seconds, autoscale.target_utilization, lanes)
        self._peak = RollingMaximum(autoscale.downscale_delay_seconds)
        # The present workers' rate has to be measured first.
        self._upscale_after_s = max(autoscale.upscale_delay_seconds, self._meter.recent_s)
        self._up_since: float | None = None  # since when all workers are up
        self._trial: tuple[int, float] | None = None  # workers and rate before the last step up
        self._in_vain_until = -math.inf
        self._too_many_since: float | None = None
        self._short_since: float | None = None

    def observe(self, seen: Observation, now: float) -> ScalingDecision | None:
        """Returns the change to make now, if any; else `holding` may say why there is none."""
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
        most = min(self.autoscale.max, load.most)
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
        """Workers needed. With work but no known pace that is the present number; blocked partitions keep their share."""
        if load.pace is None and (load.lag or load.arriving):
            return workers
        return max(load.workers, workers * load.blocked / load.partitions)

    # ------------------------------------------------------------ bounds

    def _bounded(self, workers: int, least: int) -> tuple[int, str] | None:
        """Brings the number between the policy's bounds, whatever the load: it may be from before the policy."""
        if workers < least:
            return least, f"at least {least}"
        if workers > self.autoscale.max:
            return self.autoscale.max, f"at most {self.autoscale.max}"
        return None

    # ------------------------------------------------------------ more

    def _more(self, load: Load, seen: Observation, most: int, now: float) -> tuple[int, str] | None:
        """Returns a higher number and its reason, if the load asks for one and nothing speaks against it; else sets `holding`."""
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
        # Workers that had little to do look slow until they have worked on the new records for a while.
        self._short_since = now if self._short_since is None else self._short_since
        self.holding = self._not_yet(load, seen, behind, now)
        if self.holding:
            return None
        # The rate shows what so many workers can do only if they had no time left.
        self._trial = (workers, load.done) if behind or load.busy >= NO_TIME_LEFT else None
        return after, self._why_more(load, workers, behind)

    def _all_there_may_be(self, load: Load, workers: int) -> str:
        by_partitions = load.most < self.autoscale.max
        why = f"there are {load.partitions} partitions" if by_partitions else f"max is {self.autoscale.max}"
        return f"no more than {_count(workers)}: {why}"

    def _not_yet(self, load: Load, seen: Observation, behind: bool, now: float) -> str:
        """Returns why no more workers are wanted though the load asks for them; empty if they are."""
        if self._up_since is None:
            return f"{seen.wanted - seen.ready} of {seen.wanted} workers are still starting"
        if now < self._in_vain_until:
            return f"more workers did no more than {seen.wanted}: something else is the limit"
        if self._short_since is None or now < self._short_since + self._meter.recent_s:
            return f"more workers seem to be needed, for less than {self._meter.recent_s:g} s"
        if now < self._up_since + self._upscale_after_s:
            return f"{seen.wanted} workers have not been up for {self._upscale_after_s:g} s"
        if behind and load.busy < LEAST_BUSY:
            return f"workers wait for records: the busiest is at work for {load.busy:.0%} of its time"
        if behind and self._was_in_vain(load, seen.wanted):
            self._trial = None
            self._in_vain_until = now + self.autoscale.downscale_delay_seconds
            return f"more workers did no more than {seen.wanted}: something else is the limit"
        return ""

    def _was_in_vain(self, load: Load, workers: int) -> bool:
        """Whether the last step up brought less than a fifth of what it should have."""
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
        """Returns a lower number and its reason, if fewer would have been enough all the time."""
        peak, seconds = self._peak.maximum(now), self.autoscale.downscale_delay_seconds
        after = workers if peak is None else max(least, math.ceil(peak))
        if after >= workers:
            self._too_many_since = None
            return None
        if self._too_many_since is None:
            self._too_many_since = now
        # While the peak still falls, one step a little later replaces many small ones.
        falling = max(least, math.ceil(self._need(load, workers))) < after
        if falling and now < self._too_many_since + seconds:
            return None
        self._trial = self._too_many_since = None
        if workers > load.most and after == load.most:
            return after, f"there are only {load.partitions} partitions"
        if not peak:
            return after, f"nothing to do for {seconds:g} s"
        return after, f"{_count(after)} would have been enough for {seconds:g} s"


class RollingMaximum:
    """Maximum of the values of the last `span_s` seconds."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._since: float | None = None
        # Falling values: an older and lower one can't become the maximum again.
        self._values: deque[tuple[float, float]] = deque()

    def add(self, now: float, value: float) -> None:
        if self._since is None:
            self._since = now
        while self._values and self._values[-1][1] <= value:
            self._values.pop()
        self._values.append((now, value))
        while self._values[0][0] < now - self._span_s:
            self._values.popleft()

    def maximum(self, now: float) -> float | None:
        """Returns the maximum; None until values of the whole span are known."""
        if self._since is None or now - self._since < self._span_s:
            return None
        return self._values[0][1]

    def forget(self) -> None:
        """Drops all values: the span starts anew."""
        self._since = None
        self._values.clear()


def _count(workers: int) -> str:
    return "1 worker" if workers == 1 else f"{workers} workers"
