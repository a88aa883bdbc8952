"""Health of the Ray cluster's nodes, judged by a job's actors: silent nodes, and witnesses for silent actors.

A supervisor sees the processes of its own node only. About other nodes it asks the actors there: while one answers, it can
tell whether any process of its node runs. Where all are silent, the node may be gone, frozen, cut off or overloaded; its
workers may go on until their leases end (`job/machines/lease.py`), and only Ray finds out more, later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .actor_state import ActorKey, ActorRecord

__all__ = ["AnsweringNode", "NodeHealth", "SilentNode"]


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
