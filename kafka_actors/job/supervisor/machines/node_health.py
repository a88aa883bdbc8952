"""Nodes of the Ray cluster as a job's actors show them: on which nobody answers, and whom to ask about a silent actor.

A supervisor sees the processes of its own node. Of the others it knows only what actors there answer: while one does, it
can say of each process of its node whether that runs. Where all are silent, the node may be gone, frozen, cut off or
overloaded, and its actors may go on for as long as their lease lasts; only Ray knows more, and later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .actor_state import ActorKey, ActorRecord

__all__ = ["AnsweringNode", "NodeHealth", "SilentNode"]


class SilentNode(NamedTuple):
    """No actor on the node has answered for so many seconds. What its workers have may go to others when their leases
    are over."""

    node: str
    seconds: float


class AnsweringNode(NamedTuple):
    """An actor on a node that was silent has answered."""

    node: str


class NodeHealth:
    """`own_node` is the supervisor's own node, `silent` are those on which all actors were silent at the last look."""

    def __init__(self, own_node: str) -> None:
        self.own_node = own_node
        self.silent: frozenset[str] = frozenset()

    def look(
        self, actual: Mapping[ActorKey, ActorRecord], now: float, timeout_s: float
    ) -> list[SilentNode | AnsweringNode]:
        """Finds nodes that fell silent or answer again. An actor that has never answered says nothing about its node."""
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
        """An actor on the node that answers, and can say and do there what the supervisor can on its own, for which this
        is None. Rather not a worker, which may hold the GIL."""
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
