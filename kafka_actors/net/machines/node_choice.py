"""The choice of a broker for a request that any of them can answer.

Theory of operation. Nodes are ranked: an idle connection, a node to connect to that isn't backing off, one that is being connected
to, the connection with the fewest requests in flight. A connection that is stuck has something in flight for ever, so it is not
chosen while another node may be tried. Equals are in random order, so that many clients spread over the brokers. A node that
backs off isn't chosen at all. Java: `NetworkClient.leastLoadedNode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of a node that the choice depends on. `delay` is the seconds that a reconnect still has to wait."""

    node_id: int
    connected: bool
    connecting: bool
    in_flight: int
    delay: float


def least_loaded(nodes: Iterable[NodeState], rand: Callable[[], float]) -> int | None:
    """The id of the first node in order of preference; None where none may be asked now. `rand` gives 0..1."""
    order = by_load(nodes, rand)
    return order[0] if order else None


def by_load(nodes: Iterable[NodeState], rand: Callable[[], float]) -> list[int]:
    """The ids of all nodes that may be asked now, in order of preference; equals in random order."""
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
