"""Actors and nodes as a supervisor knows them: an actor's role and state, and when it and its node were last heard.

States of an actor:

    STARTING   created; has not answered yet (not placed, or its process is coming up)
    PLACED     answers; a worker constructs the user's class now
    READY      works
    SUSPECT    has not answered a ping within its deadline

STARTING → PLACED → READY ⇄ SUSPECT; a dead actor is forgotten. `LEGAL` has all transitions.

Nodes are judged by the job's actors there (`NodeHealth`). A supervisor sees the processes of its own node only. About other
nodes it asks the actors there: while one answers, it can tell whether any process of its node runs. Where all are silent, the
node may be gone, frozen, cut off or overloaded; its workers may go on until their leases end (`job/machines/lease.py`), and only
Ray finds out more, later.

Theory of operation. Arrives: pongs and the passing of time, as `Supervision` notes them in a record. Decided:
whether an actor is overdue, and which nodes are silent or answer again. Times in which the supervisor itself
slept are taken out of all deadlines (`sleep`), or it would find everybody silent when it wakes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

__all__ = ["ActorKey", "ActorRecord", "ActorState", "AnsweringNode", "NodeHealth", "SilentNode"]


class ActorKey(NamedTuple):
    """One role of the job. `kind`: metadata, coordinator, connection (`number` is its broker), worker, or spare: a connection
    actor that is up and has no broker yet. `node`: of connections and spares, the node where they have to run."""

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


class ActorRecord(msgspec.Struct):
    """A started actor. Times are monotonic seconds.

    `ping_sent_at`: the first unanswered ping. `again_at`: when to ping again after a ping got lost. `busy_since`: begin of the
    current call of the user's function. `probed_at`: the last probe of its process.
    """

    incarnation: int
    started_at: float
    node: str = ""
    state: ActorState = ActorState.STARTING
    placed_at: float | None = None
    ready_at: float | None = None
    ping_sent_at: float | None = None
    again_at: float | None = None
    last_pong: float | None = None
    busy_since: float | None = None
    probed_at: float = float("-inf")

    def become(self, state: ActorState) -> None:
        if state is self.state:
            return
        if state not in LEGAL[self.state]:
            raise RuntimeError(f"an actor that is {self.state.value} can't become {state.value}")
        self.state = state

    @property
    def has_answered(self) -> bool:
        return self.state is not ActorState.STARTING

    def overdue(self, now: float, timeout_s: float) -> bool:
        """Whether a ping has been unanswered for `timeout_s` seconds."""
        return self.ping_sent_at is not None and now >= self.ping_sent_at + timeout_s

    def heard_of_again(self, now: float) -> None:
        """Starts its deadlines anew, after its node has answered again. Its next pong tells about its current call."""
        self.busy_since = None
        self.last_pong = now if self.last_pong is not None else None
        self.ping_sent_at = now if self.ping_sent_at is not None else None
        if self.ready_at is None:
            self.started_at = now
            self.placed_at = now if self.placed_at is not None else None

    def sleep(self, seconds: float) -> None:
        """Moves its deadlines by the time in which the supervisor slept. Its next pong tells about its current call: the last
        known one may be long over."""
        self.busy_since = None
        if self.ping_sent_at is not None:
            self.ping_sent_at += seconds
        if self.last_pong is not None:
            self.last_pong += seconds
        if self.ready_at is None:
            self.started_at += seconds
            self.placed_at = None if self.placed_at is None else self.placed_at + seconds


class SilentNode(NamedTuple):
    """No actor on the node has answered for `seconds`. The partitions of its workers may go to others once their leases
    have ended."""

    node: str
    seconds: float


class AnsweringNode(NamedTuple):
    """An actor on a silent node has answered again."""

    node: str


class NodeHealth:
    """Silent nodes: `silent`, as of the last `look`. `own_node`, the supervisor's, is never among them."""

    def __init__(self, own_node: str) -> None:
        self.own_node = own_node
        self.silent: frozenset[str] = frozenset()

    def look(
        self, actual: Mapping[ActorKey, ActorRecord], now: float, timeout_s: float
    ) -> list[SilentNode | AnsweringNode]:
        """Returns the nodes that fell silent or answer again. An actor that has never answered says nothing about its node."""
        answers: dict[str, bool] = {}
        for known in actual.values():
            if known.has_answered:
                answers[known.node] = answers.get(known.node, False) or not known.overdue(now, timeout_s)
        silent = frozenset(node for node, any_answers in answers.items() if not any_answers) - {
            self.own_node,
            "",
        }
        fell, rose = silent - self.silent, (self.silent - silent) & answers.keys()
        self.silent = silent
        for known in actual.values():
            if known.node in rose:
                known.heard_of_again(now)
        return [*(SilentNode(node, timeout_s) for node in sorted(fell)), *map(AnsweringNode, sorted(rose))]

    def neighbour(
        self,
        node: str,
        actual: Mapping[ActorKey, ActorRecord],
        now: float,
        timeout_s: float,
        but: ActorKey | None,
    ) -> ActorKey | None:
        """Returns an actor on the node that answers, and can probe and kill processes there; None for the supervisor's own
        node. Prefers library actors to workers, which may hold the GIL."""
        if node == self.own_node:
            return None
        others = [
            (other.kind != "worker", known.last_pong or 0.0, other)
            for other, known in actual.items()
            if other != but
            and known.node == node
            and known.has_answered
            and not known.overdue(now, timeout_s)
        ]
        return max(others)[2] if others else None
