"""Desired against actual: which actors a job should have, which it has, and what to do about the difference.

An actor is forgotten when it is dead; its replacement gets the next incarnation. Who misses a ping is dead if its
process is gone or stopped, as the supervisor sees on its own node, and an actor that answers on any other. Else a
library actor has a little longer, because a busy machine makes it late, and replacing it would make the machine busier.
A worker may be in native code that holds the GIL: it is ended only when one call of the user's function lasted for
`max_poll_interval_ms`. On a node where all actors are silent nobody is judged (see `nodes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Never

import msgspec

from kafka_actors.base.backoff import exponential_backoff
from kafka_actors.base.machine import Ready

from .actor_state import ActorKey, ActorRecord, ActorState
from .node_health import AnsweringNode, NodeHealth, SilentNode

__all__ = [
    "Action",
    "ActorKey",
    "ActorRecord",
    "ActorState",
    "AnsweringNode",
    "DismissActor",
    "FailJob",
    "KillActor",
    "PingActor",
    "ProbeProcess",
    "SilentNode",
    "StartActor",
    "Supervision",
    "SupervisionTimings",
]


LATE = 4
"""So many ping timeouts a library actor may take whose process runs."""


class StartActor(NamedTuple):
    key: ActorKey
    incarnation: int


class KillActor(NamedTuple):
    """`stuck`: because of a call of the user's function that it is at."""

    key: ActorKey
    incarnation: int
    reason: str
    stuck: bool = False


class DismissActor(NamedTuple):
    """The actor is not wanted any more: it is to end by itself."""

    key: ActorKey
    incarnation: int


class PingActor(NamedTuple):
    key: ActorKey
    incarnation: int


class ProbeProcess(NamedTuple):
    """Find out whether the actor's process is there and running: `witness`, an actor on its node, is asked; without one
    it is the supervisor's own node."""

    key: ActorKey
    incarnation: int
    witness: ActorKey | None = None


class FailJob(NamedTuple):
    """The job can't go on: the actor was not placed, or not made, in time; or (`deaths`) its process ended that
    often while it made the user's class."""

    key: ActorKey
    placed: bool
    after_s: float
    deaths: int = 0


Action = (
    StartActor | KillActor | DismissActor | PingActor | ProbeProcess | FailJob | SilentNode | AnsweringNode
)


class SupervisionTimings(msgspec.Struct, frozen=True):
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


class Supervision:
    """Decides which actors to start, ping, probe and end. `own_node`: the supervisor's node."""

    def __init__(self, timings: SupervisionTimings, own_node: str = "") -> None:
        self.timings = timings
        self.desired: set[ActorKey] = set()
        self._nodes = NodeHealth(own_node)
        self._started = False
        self.actual: dict[ActorKey, ActorRecord] = {}
        self.restarts: dict[ActorKey, int] = {}
        self._incarnations: dict[ActorKey, int] = {}
        self._failures: dict[ActorKey, int] = {}
        self._unmade: dict[ActorKey, int] = {}
        self._not_before: dict[ActorKey, float] = {}
        self._dismissed: set[ActorKey] = set()
        self._polled_at: float | None = None
        self._actions: list[Action] = []

    # ------------------------------------------------------------ what is wanted, what happened

    def want(self, keys: Iterable[ActorKey], *, started: bool = False) -> None:
        """Replaces the whole set of roles that should be filled. `started`: the job works, and goes on without a worker
        until there is a place for it, however long that takes."""
        self.desired = set(keys)
        self._started = started

    def neighbour(self, node: str, now: float, but: ActorKey | None = None) -> ActorKey | None:
        """An actor on this node that answers; None on the supervisor's own, and where there is none."""
        return self._nodes.neighbour(node, self.actual, now, self.timings.ping_timeout, but)

    def is_deserted(self, node: str) -> bool:
        """Whether no actor is left there that has ever answered."""
        return not any(actual.node == node and actual.has_answered for actual in self.actual.values())

    @property
    def silent(self) -> frozenset[str]:
        """The nodes on which all actors are silent."""
        return self._nodes.silent

    def is_current(self, key: ActorKey, incarnation: int) -> bool:
        actual = self.actual.get(key)
        return actual is not None and actual.incarnation == incarnation

    def placed(self, key: ActorKey, incarnation: int, node: str, now: float) -> None:
        """The actor has answered for the first time, from this node."""
        if self.is_current(key, incarnation):
            self.actual[key].node = node
            self.ponged(key, incarnation, now, ready=False)

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
        actual.ping_sent_at = actual.again_at = None
        actual.last_pong = now
        actual.busy_since = None if busy_s is None else now - busy_s
        if actual.placed_at is None:
            actual.placed_at = now
        if ready and actual.ready_at is None:
            actual.ready_at = now
        actual.become(ActorState.READY if ready else ActorState.PLACED)

    def ping_failed(self, key: ActorKey, incarnation: int, now: float) -> None:
        """A ping got lost on its way, and the actor isn't known to be dead: it is pinged again."""
        if self.is_current(key, incarnation):
            self.actual[key].again_at = now + self.timings.ping_interval

    def died(self, key: ActorKey, incarnation: int, now: float) -> bool:
        """The runtime says that the actor is gone. Returns whether this was its current incarnation."""
        if not self.is_current(key, incarnation):
            return False
        self._forget(key, now)
        return True

    def probed(self, key: ActorKey, incarnation: int, running: bool, now: float) -> None:
        """Takes the result of a `ProbeProcess`: whether the process runs."""
        if not running and self.is_current(key, incarnation):
            self._actions.append(self._kill(key, "its process is stopped or gone", now))

    def took_over(self, key: ActorKey, now: float) -> None:
        """A spare fills another role from now on. The next one waits until that has been dealt with."""
        del self.actual[key]
        self._not_before[key] = now + self.timings.spare_after

    # ------------------------------------------------------------ what to do

    def poll(self, now: float) -> Ready[Action, Never]:
        """Compares what there should be with what there is, and says what to do about it."""
        self._allow_for_sleep(now)
        actions, self._actions = self._actions, []
        actions += self._nodes.look(self.actual, now, self.timings.ping_timeout)
        for key in [k for k in self.actual if k not in self.desired]:
            actions.append(DismissActor(key, self.actual.pop(key).incarnation))
            self._dismissed.add(key)
        for key in sorted(self.desired - self.actual.keys()):
            if key.kind == "spare" and key not in self._incarnations:
                self._not_before.setdefault(key, now + self.timings.spare_after)
            if self._unmade.get(key, 0) >= self.timings.unmade_limit:
                actions.append(FailJob(key, True, 0.0, self._unmade[key]))
            elif key.node not in self.silent and now >= self._not_before.get(key, float("-inf")):
                actions.append(self._start(key, now))
        for key in list(self.actual):
            actions.extend(self._look_after(key, self.actual[key], now))
        return Ready(tuple(actions), next_wake=self._next_wake(now))

    def _allow_for_sleep(self, now: float) -> None:
        """A supervisor that was itself stopped, or starved, has heard nobody meanwhile: no deadline ran."""
        asleep = 0.0 if self._polled_at is None else now - self._polled_at
        self._polled_at = now
        if asleep <= self.timings.ping_timeout:
            return
        for actual in self.actual.values():
            actual.sleep(asleep)

    def _next_wake(self, now: float) -> float:
        times = [
            t
            for k, t in self._not_before.items()
            if k in self.desired and k not in self.actual and k.node not in self.silent
        ]
        for actual in self.actual.values():
            if actual.again_at is not None:
                times.append(actual.again_at)
            if actual.ping_sent_at is not None and not actual.has_answered:
                continue  # it has no place yet, or its process comes up: only the time to start ends that
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

    def _start(self, key: ActorKey, now: float) -> StartActor:
        incarnation = self._incarnations.get(key, 0) + 1
        self._incarnations[key] = incarnation
        # A worker that a job has again, because it grows again, replaces nobody.
        if incarnation > 1 and key.kind != "spare" and key not in self._dismissed:
            self.restarts[key] = self.restarts.get(key, 0) + 1
        self._dismissed.discard(key)
        self.actual[key] = ActorRecord(incarnation, started_at=now, node=key.node)
        return StartActor(key, incarnation)

    def _look_after(self, key: ActorKey, actual: ActorRecord, now: float) -> list[Action]:
        silent = actual.node in self.silent
        ends = None if silent else self._too_late_to_start(key, actual, now) or self._stuck(key, actual, now)
        if ends is not None:
            return [ends]
        pings = self._ping(key, actual, now)
        if not actual.has_answered or not actual.overdue(now, self.timings.ping_timeout):
            return pings
        if not silent and key.kind != "worker" and actual.overdue(now, LATE * self.timings.ping_timeout):
            return [self._kill(key, "it does not answer", now)]
        actual.become(ActorState.SUSPECT)
        if now < actual.probed_at + self.timings.ping_interval:
            return pings
        actual.probed_at = now
        if silent:
            return pings
        return [*pings, ProbeProcess(key, actual.incarnation, self.neighbour(actual.node, now, key))]

    def _ping(self, key: ActorKey, actual: ActorRecord, now: float) -> list[Action]:
        """One that is due; again while the last one was lost."""
        due = actual.again_at
        if actual.ping_sent_at is None:
            due = now if actual.last_pong is None else actual.last_pong + self.timings.ping_interval
        if due is None or now < due:
            return []
        actual.again_at = None
        if actual.ping_sent_at is None:
            actual.ping_sent_at = now
        return [PingActor(key, actual.incarnation)]

    def _too_late_to_start(
        self, key: ActorKey, actual: ActorRecord, now: float
    ) -> FailJob | KillActor | None:
        placed, limit = actual.placed_at is not None, self.timings.start_timeout
        if actual.ready_at is not None or (self._started and not placed and key.kind == "worker"):
            return None
        since = actual.started_at if actual.placed_at is None else actual.placed_at
        if now - since < limit:
            return None
        if self._started and key.kind != "worker":
            return self._kill(key, f"it has not come up within {limit:g} s", now)
        return FailJob(key, placed, limit)

    def _stuck(self, key: ActorKey, actual: ActorRecord, now: float) -> KillActor | None:
        """A worker whose current call, or whose silence, lasts for the maximal poll interval."""
        if key.kind != "worker" or actual.ready_at is None:
            return None
        since, limit = actual.busy_since, self.timings.max_poll_interval
        reason = f"a call of process lasts for more than {limit:g} s"
        if since is None and actual.state is ActorState.SUSPECT:
            since = actual.last_pong
            reason = f"it has not answered for more than {limit:g} s, though its process runs"
        if since is None or now - since < limit:
            return None
        return self._kill(key, reason, now, stuck=True)

    def _kill(self, key: ActorKey, reason: str, now: float, *, stuck: bool = False) -> KillActor:
        incarnation = self.actual[key].incarnation
        self._forget(key, now)
        return KillActor(key, incarnation, reason, stuck)

    def _forget(self, key: ActorKey, now: float) -> None:
        """The first replacement comes at once; one that dies young is waited for longer each time."""
        actual = self.actual.pop(key)
        settled = actual.ready_at is not None and now - actual.ready_at >= self.timings.settled_after
        failures = self._failures[key] = 0 if settled else self._failures.get(key, 0) + 1
        if key.kind == "worker" and actual.placed_at is not None:
            self._unmade[key] = self._unmade.get(key, 0) + 1 if actual.ready_at is None else 0
        if failures > 1:
            first, longest = self.timings.restart_backoff, self.timings.restart_backoff_max
            self._not_before[key] = now + exponential_backoff(failures - 1, first, longest)
        else:
            self._not_before.pop(key, None)

    def __repr__(self) -> str:
        states = ", ".join(f"{k}.{a.incarnation} {a.state.value}" for k, a in sorted(self.actual.items()))
        return f"<Supervision {states}>"
