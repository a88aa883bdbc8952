"""Which broker to ask something that any of them can answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeState:
    """A broker as the choice sees it. `delay` is the seconds that a reconnect still has to wait."""

    node_id: int
    connected: bool
    connecting: bool
    in_flight: int
    delay: float


def least_loaded(nodes: Iterable[NodeState], rand: Callable[[], float]) -> int | None:
    """The connected node with the fewest requests in flight; else any that may connect now; else None.

    An idle connection comes first, then a disconnected node that isn't backing off, then the least busy
    connection (Java's `leastLoadedNode`): a connection that is stuck has something in flight for ever, so it is
    not chosen while another may be tried.
    """
    order = by_load(nodes, rand)
    return order[0] if order else None


def by_load(nodes: Iterable[NodeState], rand: Callable[[], float]) -> list[int]:
    """All nodes that may be asked now, in order of preference; equals in random order."""
    ranked = [(_rank(n), n.node_id) for n in shuffled(list(nodes), rand) if n.connected or n.delay <= 0]
    ranked.sort(key=lambda item: item[0])
    return [node_id for _, node_id in ranked]


def _rank(node: NodeState) -> tuple[int, int]:
    if node.connected:
        return (0, 0) if node.in_flight == 0 else (3, node.in_flight)
    return (2, 0) if node.connecting else (1, 0)


def shuffled(items: Sequence[T], rand: Callable[[], float]) -> list[T]:
    """The items in random order."""
    return [item for _, item in sorted(((rand(), item) for item in items), key=lambda pair: pair[0])]
