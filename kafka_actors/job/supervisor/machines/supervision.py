"""Desired against actual: which actors a job should have, which it has, and what to do about the difference.

Theory of operation. The shell sets the desired roles (`want`), feeds what it hears of actors (`placed`, `ponged`,
`ping_failed`, `probed`, `died`), and carries out the actions that `poll` returns. A role such as `worker-0` is filled by one
incarnation at a time; an actor that died is forgotten, and its role gets the next incarnation, at once the first time and
with exponential backoff if replacements die young. States of an actor: see `actor_state`.

An actor whose ping stays unanswered for `ping_timeout` is suspect, and its process is probed: by the supervisor itself on its
own node, elsewhere by an actor of that node that answers.

- Its process is gone or stopped: it is killed and replaced.
- Its process runs, and it is a library actor: it has `LATE` ping timeouts, because a busy machine makes it late, and a
  replacement would make the machine busier.
- Its process runs, and it is a worker: it may be in native code that holds the GIL. It is killed only when one call of the
  user's function, or its silence, lasts for `max_poll_interval_ms`.
- All actors of its node are silent: nobody is judged (see `NodeHealth`). Only Ray may call it dead.

A role that isn't wanted any more is dismissed: its actor ends by itself, and its return is no restart. A
spare takes over a dead connection actor's role (`took_over`), and is itself replaced a little later
(`spare_after`).

Before the job has started, an actor that isn't placed or ready within `start_timeout` fails the job. Afterwards a worker waits
for a place for as long as it takes, and library actors are replaced. A worker whose process dies in the constructor of the
user's class for the fifth time in a row fails the job. Time in which the supervisor itself was stopped counts for no deadline.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Never

import msgspec

from kafka_actors.base.backoff import exponential_backoff
from kafka_actors.base.machine import Ready

from .actor_state import ActorKey, ActorRecord, ActorState, AnsweringNode, NodeHealth, SilentNode

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
"""Ping timeouts after which a library actor is killed although its process runs."""


class StartActor(NamedTuple):
    """Create an actor for this role."""

    key: ActorKey
    incarnation: int


class KillActor(NamedTuple):
    """End the actor's process. `stuck`: because of its current call of the user's function."""

    key: ActorKey
    incarnation: int
    reason: str
    stuck: bool = False


class DismissActor(NamedTuple):
    """Have the actor end by itself: it is not wanted any more."""

    key: ActorKey
    incarnation: int


class PingActor(NamedTuple):
    """Call `ping`."""

    key: ActorKey
    incarnation: int


class ProbeProcess(NamedTuple):
    """Find out whether the actor's process exists and runs: by asking `witness`, an actor on its node; without one, by
    looking at the supervisor's own node."""

    key: ActorKey
    incarnation: int
    witness: ActorKey | None = None


class FailJob(NamedTuple):
    """Fail the job: the actor was not placed, or not ready, within `after_s` seconds; or its process died `deaths` times
    in the constructor of the user's class."""

    key: ActorKey
    placed: bool
    after_s: float
    deaths: int = 0


Action = (
    StartActor | KillActor | DismissActor | PingActor | ProbeProcess | FailJob | SilentNode | AnsweringNode
)


class SupervisionTimings(msgspec.Struct, frozen=True):
    """Intervals and limits, in seconds; see the module's theory of operation."""

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
        self._init_failures: dict[ActorKey, int] = {}
        self._not_before: dict[ActorKey, float] = {}
        self._dismissed: set[ActorKey] = set()
        self._polled_at: float | None = None
        self._actions: list[Action] = []

    # ------------------------------------------------------------ inputs

    def want(self, keys: Iterable[ActorKey], *, started: bool = False) -> None:
        """Replaces the set of roles that should be filled. `started`: the job works, and waits for a worker's place however
        long that takes."""
        self.desired = set(keys)
        self._started = started

    def neighbour(self, node: str, now: float, but: ActorKey | None = None) -> ActorKey | None:
        """Returns an actor on this node that answers; None for the supervisor's own node, and if there is none."""
        return self._nodes.neighbour(node, self.actual, now, self.timings.ping_timeout, but)

    def is_deserted(self, node: str) -> bool:
        """Whether no actor is left on the node that has ever answered."""
        return not any(actual.node == node and actual.has_answered for actual in self.actual.values())

    @property
    def silent(self) -> frozenset[str]:
        """Nodes on which all actors are silent."""
        return self._nodes.silent

    def is_current(self, key: ActorKey, incarnation: int) -> bool:
        """Whether this incarnation fills the role now. News of any other is late, and changes nothing."""
        actual = self.actual.get(key)
        return actual is not None and actual.incarnation == incarnation

    def placed(self, key: ActorKey, incarnation: int, node: str, now: float) -> None:
        """Takes the first answer of an actor, and its node."""
        if self.is_current(key, incarnation):
            self.actual[key].node = node
            self.ponged(key, incarnation, now, ready=False)

    def begins(self, key: ActorKey, incarnation: int, now: float) -> None:
        """Starts the time to start of an actor anew: it was up, but had to wait before it could begin."""
        if self.is_current(key, incarnation):
            self.actual[key].placed_at = now

    def ponged(
        self, key: ActorKey, incarnation: int, now: float, *, ready: bool = True, busy_s: float | None = None
    ) -> None:
        """Takes a pong. `busy_s`: how long the current call of the user's function has lasted, None without one. A pong that is not
        `ready` may be late: who was ready once stays so."""
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
        actual.become(ActorState.READY if actual.ready_at is not None else ActorState.PLACED)

    def ping_failed(self, key: ActorKey, incarnation: int, now: float) -> None:
        """Takes that a ping got lost, though the actor isn't known to be dead: it is pinged again."""
        if self.is_current(key, incarnation):
            self.actual[key].again_at = now + self.timings.ping_interval

    def died(self, key: ActorKey, incarnation: int, now: float) -> bool:
        """Takes a death notice. Returns whether it was of the current incarnation."""
        if not self.is_current(key, incarnation):
            return False
        self._forget(key, now)
        return True

    def probed(self, key: ActorKey, incarnation: int, running: bool, now: float) -> None:
        """Takes the result of a `ProbeProcess`: whether the process runs."""
        if not running and self.is_current(key, incarnation):
            self._actions.append(self._kill(key, "its process is stopped or gone", now))

    def took_over(self, key: ActorKey, now: float) -> None:
        """Takes that a spare fills another role from now on. Its own replacement starts `spare_after` seconds later."""
        del self.actual[key]
        self._not_before[key] = now + self.timings.spare_after

    # ------------------------------------------------------------ decisions

    def poll(self, now: float) -> Ready[Action, Never]:
        """Compares the desired with the actual actors; returns actions, and when to be polled again."""
        self._allow_for_sleep(now)
        actions, self._actions = self._actions, []
        actions += self._nodes.look(self.actual, now, self.timings.ping_timeout)
        for key in [k for k in self.actual if k not in self.desired]:
            actions.append(DismissActor(key, self.actual.pop(key).incarnation))
            self._dismissed.add(key)
        for key in sorted(self.desired - self.actual.keys()):
            if key.kind == "spare" and key not in self._incarnations:
                self._not_before.setdefault(key, now + self.timings.spare_after)
            if self._init_failures.get(key, 0) >= self.timings.unmade_limit:
                actions.append(FailJob(key, True, 0.0, self._init_failures[key]))
            elif key.node not in self.silent and now >= self._not_before.get(key, float("-inf")):
                actions.append(self._start(key, now))
        for key in list(self.actual):
            actions.extend(self._look_after(key, self.actual[key], now))
        return Ready(tuple(actions), next_wake=self._next_wake(now))

    def _allow_for_sleep(self, now: float) -> None:
        """Moves all deadlines by the time in which the supervisor itself was stopped or starved, and could hear nobody."""
        asleep = 0.0 if self._polled_at is None else now - self._polled_at
        self._polled_at = now
        if asleep <= self.timings.ping_timeout:
            return
        for actual in self.actual.values():
            actual.sleep(asleep)

    def _next_wake(self, now: float) -> float:
        """Returns the next moment for which something is due, a ping interval from now at the latest."""
        times = [
            t
            for k, t in self._not_before.items()
            if k in self.desired and k not in self.actual and k.node not in self.silent
        ]
        for actual in self.actual.values():
            if actual.again_at is not None:
                times.append(actual.again_at)
            if actual.ping_sent_at is not None and not actual.has_answered:
                continue  # not placed, or its process comes up: only the time to start ends that
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
        """Fills a role with its next incarnation."""
        incarnation = self._incarnations.get(key, 0) + 1
        self._incarnations[key] = incarnation
        # A worker that returns because the job grows again is no restart.
        if incarnation > 1 and key.kind != "spare" and key not in self._dismissed:
            self.restarts[key] = self.restarts.get(key, 0) + 1
        self._dismissed.discard(key)
        self.actual[key] = ActorRecord(incarnation, started_at=now, node=key.node)
        return StartActor(key, incarnation)

    def _look_after(self, key: ActorKey, actual: ActorRecord, now: float) -> list[Action]:
        """Returns what is due for one actor: its end, a ping, or a look at its process. Where its node is silent, only pings."""
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
        """Pings an actor when its interval is over, or the last ping got lost."""
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
        """Ends the wait for an actor that isn't placed, or isn't ready, in time; each has the whole time."""
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
        """Kills a worker whose current call, or whose silence, has lasted for the maximal poll interval."""
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
        """Forgets an actor at once: a process that doesn't answer may be killed without ever saying so."""
        incarnation = self.actual[key].incarnation
        self._forget(key, now)
        return KillActor(key, incarnation, reason, stuck)

    def _forget(self, key: ActorKey, now: float) -> None:
        """Forgets a dead actor, and sets when its replacement starts: at once the first time, then with backoff."""
        actual = self.actual.pop(key)
        settled = actual.ready_at is not None and now - actual.ready_at >= self.timings.settled_after
        failures = self._failures[key] = 0 if settled else self._failures.get(key, 0) + 1
        if key.kind == "worker" and actual.placed_at is not None:
            self._init_failures[key] = self._init_failures.get(key, 0) + 1 if actual.ready_at is None else 0
        if failures > 1:
            first, longest = self.timings.restart_backoff, self.timings.restart_backoff_max
            self._not_before[key] = now + exponential_backoff(failures - 1, first, longest)
        else:
            self._not_before.pop(key, None)

    def __repr__(self) -> str:
        states = ", ".join(f"{k}.{a.incarnation} {a.state.value}" for k, a in sorted(self.actual.items()))
        return f"<Supervision {states}>"
