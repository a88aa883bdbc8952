"""What every fairest assignment has in common: each member's number of partitions, and who may take what.

Members that share no topic cannot even each other out, so the fairest assignment is not one number for all.
The members fall into classes. In a class everybody pays the same price for the last slot (see `Shares`), and
a topic is served only by those of its subscribers that are in the cheapest class. Any assignment that keeps
to this is as fair as can be, whichever way the partitions lie inside it; so moves can be counted separately.

The classes are found by dividing (Groenevelt's decomposition for separable convex costs): divide the
partitions of a set of members fairly as if everyone might take everything. If a flow shows that the
subscriptions allow that, the set is one class. If not, the minimum cut names members that must get more
than that, or that cannot get as much, together with the topics that belong to them, and both parts are divided
on their own. It ends because both parts have members: there are at most as many divisions as members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from assignors.capacity import Bounds, Shares
from assignors.flow import UNBOUNDED, Network


class Group(NamedTuple):
    """Partitions of topics that have the same subscribers."""

    subscribers: tuple[int, ...]
    size: int


class Fairest(NamedTuple):
    bounds: dict[int, Bounds]
    takers: list[tuple[int, ...]]
    """For each group, those of its subscribers that may have any of it."""


Part: TypeAlias = tuple[list[int], list[int]]


def fairest(groups: Sequence[Group], capacities: Sequence[float]) -> Fairest:
    """Bounds for every member that subscribes to anything, and the takers of every group."""
    members = sorted(set().union(*(group.subscribers for group in groups)))
    shares = Shares({m: capacities[m] for m in members}, one_group=len(groups) == 1)
    bounds: dict[int, Bounds] = {}
    takers = [group.subscribers for group in groups]
    todo: list[Part] = [(members, list(range(len(groups))))] if members else []
    while todo:
        among, which = todo.pop()
        within = set(among)
        for g in which:
            takers[g] = tuple(m for m in takers[g] if m in within)
        division = shares.divide(among, sum(groups[g].size for g in which))
        parts = None
        if len(which) > 1 or (which and len(takers[which[0]]) < len(among)):
            parts = _Division(among, [(g, groups[g].size, takers[g]) for g in which], division).split()
        if parts is None:
            bounds.update(division)
        else:
            todo += parts
    return Fairest(bounds, takers)


class _Division:
    """A fair division of some groups among some members, tried out against their subscriptions."""

    SOURCE, SINK = 0, 1

    def __init__(
        self,
        members: list[int],
        groups: list[tuple[int, int, tuple[int, ...]]],
        division: Mapping[int, Bounds],
    ) -> None:
        self._members = {m: 2 + i for i, m in enumerate(members)}
        self._groups = {g: 2 + len(members) + i for i, (g, _, _) in enumerate(groups)}
        self._sizes = {g: size for g, size, _ in groups}
        self._division = division
        self._network = Network(2 + len(members) + len(groups))
        self._supply = {g: self._network.arc(self.SOURCE, self._groups[g], size) for g, size, _ in groups}
        for g, _, takers in groups:
            for m in takers:
                self._network.arc(self._groups[g], self._members[m], UNBOUNDED)
        self._load = {
            m: self._network.arc(node, self.SINK, division[m].low) for m, node in self._members.items()
        }

    def split(self) -> list[Part] | None:
        """None if the subscriptions allow the division; else two parts to divide on their own."""
        network, division = self._network, self._division
        sent = network.push(self.SOURCE, self.SINK)
        if sent < sum(bounds.low for bounds in division.values()):
            short = [
                node for m, node in self._members.items() if network.moved(self._load[m]) < division[m].low
            ]
            return self._cut(network.reaching(short))
        # Whoever has its low bound filled keeps it filled while flow is added, so both bounds hold at the end.
        for m, arc in self._load.items():
            network.widen(arc, division[m].high - division[m].low)
        sent += network.push(self.SOURCE, self.SINK)
        if sent < sum(self._sizes.values()):
            waiting = [
                node for g, node in self._groups.items() if network.moved(self._supply[g]) < self._sizes[g]
            ]
            return self._cut(network.reached(waiting))
        return None

    def _cut(self, side: Collection[int]) -> list[Part]:
        def part(inside: bool) -> Part:
            return (
                [m for m, node in self._members.items() if (node in side) == inside],
                [g for g, node in self._groups.items() if (node in side) == inside],
            )

        return [part(True), part(False)]
