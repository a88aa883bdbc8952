"""An actor as its supervisor knows it: its role, its state, and when it was last heard.

States:

    STARTING   created; has not answered yet (not placed, or its process is coming up)
    PLACED     answers; a worker constructs the user's class now
    READY      works
    SUSPECT    has not answered a ping within its deadline

STARTING → PLACED → READY ⇄ SUSPECT; a dead actor is forgotten. `LEGAL` has all transitions.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

__all__ = ["ActorKey", "ActorRecord", "ActorState"]


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
