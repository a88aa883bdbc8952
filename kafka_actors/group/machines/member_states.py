"""The states of a group member, and which may follow which.

::

            ┌──────────────── lost: illegal generation, unknown member, session ended ────────────────┐
            ▼                                                                                         │
        UNJOINED ──► JOINING ──► SYNCING ──► STABLE ──► REVOKING (eager: all; else what is not wanted)│
                        ▲  ▲        │  │        │           │                                         │
                        │  └────────┘  └► REVOKING (cooperative: the difference, new generation) ─────┘
                        └───────────────────────┴───────────┘
        any of them ──► LEAVING ──► LEFT            any of them ──► FATAL

The states and names are this member's own view: the broker's are in `ClassicGroupState`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class MemberState(Enum):
    """The state of a member in its group."""

    UNJOINED = "unjoined"
    """Owns nothing and has no valid generation."""
    JOINING = "joining"
    """Has given up what it must, and wants an answer to JoinGroup. Keeps what a cooperative member may keep."""
    SYNCING = "syncing"
    """Has a new generation, wants its assignment; the leader computes everybody's."""
    STABLE = "stable"
    """Has its assignment."""
    REVOKING = "revoking"
    """Waits, up to a deadline, until partitions are drained and committed under the current generation."""
    LEAVING = "leaving"
    """Owns nothing, has asked the coordinator to forget it."""
    LEFT = "left"
    """Ended by request."""
    FATAL = "fatal"
    """Ended by an error that no retry mends."""


_S = MemberState

LEGAL_PREVIOUS: Mapping[MemberState, frozenset[MemberState]] = {
    _S.UNJOINED: frozenset({_S.JOINING, _S.SYNCING, _S.STABLE, _S.REVOKING}),
    _S.JOINING: frozenset({_S.UNJOINED, _S.SYNCING, _S.STABLE, _S.REVOKING}),
    _S.SYNCING: frozenset({_S.JOINING}),
    _S.STABLE: frozenset({_S.SYNCING}),
    _S.REVOKING: frozenset({_S.SYNCING, _S.STABLE, _S.JOINING}),
    _S.LEAVING: frozenset({_S.UNJOINED, _S.JOINING, _S.SYNCING, _S.STABLE, _S.REVOKING}),
    _S.LEFT: frozenset({_S.LEAVING}),
    _S.FATAL: frozenset({_S.UNJOINED, _S.JOINING, _S.SYNCING, _S.STABLE, _S.REVOKING, _S.LEAVING}),
}

ENDED = frozenset({_S.LEFT, _S.FATAL})


class IllegalTransition(Exception):
    """A step that the state machine does not have: a defect in this package."""

    def __init__(self, before: MemberState, after: MemberState) -> None:
        super().__init__(f"a member can't go from {before.value} to {after.value}")
        self.before = before
        self.after = after


def check_transition(before: MemberState, after: MemberState) -> None:
    """Raises `IllegalTransition` unless `after` may follow `before`."""
    if before not in LEGAL_PREVIOUS[after]:
        raise IllegalTransition(before, after)
