"""Desired against actual: which actors a job should have, which it has, and what to do about the difference.

An actor goes through

    STARTING   created; has not answered yet (not placed, or its process is coming up)
    PLACED     answers; a worker makes the user's class now
    READY      works
    SUSPECT    has not answered a ping within its deadline

and is forgotten when it is dead; its replacement gets the next incarnation. Who misses a ping is dead if its
process is gone or stopped, as a probe on its node says. Else a library actor has a little longer, because a busy
machine makes it late, and replacing it would make the machine busier. A worker may be in native code that
holds the GIL: it is ended only when one call of the user's function lasted for `max_poll_interval_ms`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

__all__ = [
    "Action",
    "ActorKey",
    "Dismiss",
    "Fail",
    "Kill",
    "Ping",
    "Probe",
    "Start",
    "Supervision",
    "Timings",
]


LATE = 4
"""So many ping timeouts a library actor may take whose process runs."""


class ActorKey(NamedTuple):
    """One role of the job: metadata, coordinator, connection (to a broker, on a node), worker (by number), or
    spare (on a node): a connection actor that is up and has no broker yet."""

    kind: str
    number: int = 0
    node: str = ""

    def __str__(self) -> str:
        return self.kind if self.kind in ("metadata", "coordinator") else f"{self.kind}-{self.number}"


class ActorState(enum.Enum):
    STARTING = "starting"
    PLACED = "placed"
    READY = "ready"
    SUSPECT = "suspect"


LEGAL: dict[ActorState, frozenset[ActorState]] = {
    ActorState.STARTING: frozenset({ActorState.PLACED, ActorState.READY}),
    ActorState.PLACED: frozenset({ActorState.READY, ActorState.SUSPECT}),
    ActorState.READY: frozenset({ActorState.SUSPECT}),
    ActorState.SUSPECT: frozenset({ActorState.PLACED, ActorState.READY}),
}


class Start(NamedTuple):
    key: ActorKey
    incarnation: int


class Kill(NamedTuple):
    key: ActorKey
    incarnation: int
    reason: str


class Dismiss(NamedTuple):
    """The actor is not wanted any more: it is to end by itself."""

    key: ActorKey
    incarnation: int


class Ping(NamedTuple):
    key: ActorKey
    incarnation: int


class Probe(NamedTuple):
    """Ask the actor's node whether its process is there and running."""

    key: ActorKey
    incarnation: int


class Fail(NamedTuple):
    """The job can't go on: the actor was not placed, or not made, in time; or (`deaths`) its process ended that
    often while it made the user's class."""

    key: ActorKey
    placed: bool
    after_s: float
    deaths: int = 0


Action = Start | Kill | Dismiss | Ping | Probe | Fail


class Timings(msgspec.Struct, frozen=True):
    """All in seconds."""

    ping_interval: float = 1.0
    ping_timeout: float = 3.0
    start_timeout: float = 60.0
    max_poll_interval: float = 300.0
    settled_after: float = 5.0
    restart_backoff: float = 0.5
    restart_backoff_max: float = 10.0
    spare_after: float = 2.0
    unmade_limit: int = 5


class Actual(msgspec.Struct):
    """An actor that was started. Times are monotonic seconds."""

    incarnation: int
    started_at: float
    state: ActorState = ActorState.STARTING
    placed_at: float | None = None
    ready_at: float | None = None
    ping_sent_at: float | None = None
    last_pong: float | None = None
    busy_since: float | None = None
    probed_at: float = float("-inf")

    def become(self, state: ActorState) -> None:
        if state is self.state:
            return
        if state not in LEGAL[self.state]:
            raise RuntimeError(f"an actor that is {self.state.value} can't become {state.value}")
        self.state = state

    def sleep(self, seconds: float) -> None:
        """Moves what a silence is counted from; `busy_since` stays, because that call went on."""
        if self.ping_sent_at is not None:
            self.ping_sent_at += seconds
        if self.last_pong is not None:
            self.last_pong += seconds


class Supervision:
    """Feed it what happened, call `step(now)` for what to do, and again at `next_wake`."""

    def __init__(self, timings: Timings) -> None:
        self.timings = timings
        self.desired: set[ActorKey] = set()
        self._waiting: frozenset[ActorKey] = frozenset()
        self.actual: dict[ActorKey, Actual] = {}
        self.restarts: dict[ActorKey, int] = {}
        self._incarnations: dict[ActorKey, int] = {}
        self._failures: dict[ActorKey, int] = {}
        self._unmade: dict[ActorKey, int] = {}
        self._not_before: dict[ActorKey, float] = {}
        self._dismissed: set[ActorKey] = set()
        self._stepped_at: float | None = None

    # ------------------------------------------------------------ what is wanted, what happened

    def want(self, keys: Iterable[ActorKey], waiting: Iterable[ActorKey] = ()) -> None:
        """Replaces the whole set of roles that should be filled. `waiting`: those that the job goes on without until
        there is a place for them, however long that takes."""
        self.desired = set(keys)
        self._waiting = frozenset(waiting)

    def is_current(self, key: ActorKey, incarnation: int) -> bool:
        actual = self.actual.get(key)
        return actual is not None and actual.incarnation == incarnation

    def begins(self, key: ActorKey, incarnation: int, now: float) -> None:
        """The actor is up, and begins only now: it has the time that it may take from here on."""
        if self.is_current(key, incarnation):
            self.actual[key].placed_at = now

    def ponged(
        self, key: ActorKey, incarnation: int, now: float, *, ready: bool = True, busy_s: float | None = None
    ) -> None:
        """The actor answered a ping; `busy_s` is how long the user's function has been at its current call."""
        if not self.is_current(key, incarnation):
            return
        actual = self.actual[key]
        actual.ping_sent_at = None
        actual.last_pong = now
        actual.busy_since = None if busy_s is None else now - busy_s
        if actual.placed_at is None:
            actual.placed_at = now
        if ready and actual.ready_at is None:
            actual.ready_at = now
        actual.become(ActorState.READY if ready else ActorState.PLACED)

    def died(self, key: ActorKey, incarnation: int, now: float) -> bool:
        """The runtime says that the actor is gone. Returns whether this was its current incarnation."""
        if not self.is_current(key, incarnation):
            return False
        self._forget(key, now)
        return True

    def probed(self, key: ActorKey, incarnation: int, running: bool, now: float) -> list[Action]:
        """The node's answer to a `Probe`."""
        if running or not self.is_current(key, incarnation):
            return []
        return [self._kill(key, "its process is stopped or gone", now)]

    def took_over(self, key: ActorKey, now: float) -> None:
        """A spare fills another role from now on. The next one waits until that has been dealt with."""
        del self.actual[key]
        self._not_before[key] = now + self.timings.spare_after

    # ------------------------------------------------------------ what to do

    def step(self, now: float) -> list[Action]:
        self._allow_for_sleep(now)
        actions: list[Action] = []
        for key in [k for k in self.actual if k not in self.desired]:
            actions.append(Dismiss(key, self.actual.pop(key).incarnation))
            self._dismissed.add(key)
        for key in sorted(self.desired - self.actual.keys()):
            if key.kind == "spare" and key not in self._incarnations:
                self._not_before.setdefault(key, now + self.timings.spare_after)
            if self._unmade.get(key, 0) >= self.timings.unmade_limit:
                actions.append(Fail(key, True, 0.0, self._unmade[key]))
            elif now >= self._not_before.get(key, float("-inf")):
                actions.append(self._start(key, now))
        for key in list(self.actual):
            actions.extend(self._look_after(key, self.actual[key], now))
        return actions

    def _allow_for_sleep(self, now: float) -> None:
        """A supervisor that was itself stopped, or starved, has heard nobody meanwhile: no deadline ran."""
        asleep = 0.0 if self._stepped_at is None else now - self._stepped_at
        self._stepped_at = now
        if asleep <= self.timings.ping_timeout:
            return
        for actual in self.actual.values():
            actual.sleep(asleep)

    def next_wake(self, now: float) -> float:
        """When `step` has something to do again if nothing happens until then."""
        times = [t for k, t in self._not_before.items() if k in self.desired and k not in self.actual]
        for actual in self.actual.values():
            if actual.ping_sent_at is not None:
                times.append(
                    max(
                        actual.ping_sent_at + self.timings.ping_timeout,
                        actual.probed_at + self.timings.ping_interval,
                    )
                )
            elif actual.last_pong is not None:
                times.append(actual.last_pong + self.timings.ping_interval)
        return min([*times, now + self.timings.ping_interval])

    def _start(self, key: ActorKey, now: float) -> Start:
        incarnation = self._incarnations.get(key, 0) + 1
        self._incarnations[key] = incarnation
        # A worker that a job has again, because it grows again, replaces nobody.
        if incarnation > 1 and key.kind != "spare" and key not in self._dismissed:
            self.restarts[key] = self.restarts.get(key, 0) + 1
        self._dismissed.discard(key)
        self.actual[key] = Actual(incarnation, started_at=now)
        return Start(key, incarnation)

    def _look_after(self, key: ActorKey, actual: Actual, now: float) -> list[Action]:
        ends = self._too_late_to_start(key, actual, now) or self._stuck(key, actual, now)
        if ends is not None:
            return [ends]
        if actual.ping_sent_at is None:
            if actual.last_pong is not None and now < actual.last_pong + self.timings.ping_interval:
                return []
            actual.ping_sent_at = now
            return [Ping(key, actual.incarnation)]
        if actual.state is ActorState.STARTING or now < actual.ping_sent_at + self.timings.ping_timeout:
            return []
        if key.kind != "worker" and now >= actual.ping_sent_at + LATE * self.timings.ping_timeout:
            return [self._kill(key, "it does not answer", now)]
        actual.become(ActorState.SUSPECT)
        if now < actual.probed_at + self.timings.ping_interval:
            return []
        actual.probed_at = now
        return [Probe(key, actual.incarnation)]

    def _too_late_to_start(self, key: ActorKey, actual: Actual, now: float) -> Fail | None:
        if actual.ready_at is not None or (actual.placed_at is None and key in self._waiting):
            return None
        since = actual.started_at if actual.placed_at is None else actual.placed_at
        if now - since < self.timings.start_timeout:
            return None
        return Fail(key, actual.placed_at is not None, self.timings.start_timeout)

    def _stuck(self, key: ActorKey, actual: Actual, now: float) -> Kill | None:
        """A worker whose current call, or whose silence, lasts for the maximal poll interval."""
        if key.kind != "worker" or actual.ready_at is None:
            return None
        since = actual.busy_since
        if since is None and actual.state is ActorState.SUSPECT:
            since = actual.last_pong
        limit = self.timings.max_poll_interval
        if since is None or now - since < limit:
            return None
        return self._kill(key, f"a call of process lasts for more than {limit:g} s", now)

    def _kill(self, key: ActorKey, reason: str, now: float) -> Kill:
        incarnation = self.actual[key].incarnation
        self._forget(key, now)
        return Kill(key, incarnation, reason)

    def _forget(self, key: ActorKey, now: float) -> None:
        """The first replacement comes at once; one that dies young is waited for longer each time."""
        actual = self.actual.pop(key)
        settled = actual.ready_at is not None and now - actual.ready_at >= self.timings.settled_after
        failures = self._failures[key] = 0 if settled else self._failures.get(key, 0) + 1
        if key.kind == "worker" and actual.placed_at is not None:
            self._unmade[key] = self._unmade.get(key, 0) + 1 if actual.ready_at is None else 0
        if failures > 1:
            backoff = self.timings.restart_backoff * 2 ** min(failures - 2, 10)
            self._not_before[key] = now + min(backoff, self.timings.restart_backoff_max)
        else:
            self._not_before.pop(key, None)

    def __repr__(self) -> str:
        states = ", ".join(f"{k}.{a.incarnation} {a.state.value}" for k, a in sorted(self.actual.items()))
        return f"<Supervision {states}>"
