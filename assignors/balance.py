"""The common properties of all fairest assignments: each member's number of partitions, and the possible takers of each topic.

Members that share no topic can't balance each other, so the fairest assignment isn't one number for all members. The
members form classes. All members of a class have the same price of the last slot (see `Shares`), and a topic is served
only by those of its subscribers that are in the cheapest class. Every assignment with these properties is equally fair,
whichever partitions go to which member, so the number of moves can be minimised separately.

The classes are found by repeated division (Groenevelt's decomposition for separable convex costs). The partitions of a
set of members are divided fairly as if every member could take every partition. If a flow shows that the subscriptions
allow this division, the set is one class. Otherwise the minimum cut names the members that must get more, or can't get
as much, together with their topics, and both parts are divided separately. It ends because both parts have members: there
are at most as many divisions as members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from heapq import heapify, heapreplace
from math import lcm
from typing import NamedTuple, TypeAlias

from assignors.flow import UNBOUNDED, Network


class Group(NamedTuple):
    """Partitions of topics that have the same subscribers."""

    subscribers: tuple[int, ...]
    size: int


class Fairest(NamedTuple):
    """Result of `fairest`."""

    bounds: dict[int, Bounds]
    takers: list[tuple[int, ...]]
    """For each group, the subscribers that may take partitions of it."""


Part: TypeAlias = tuple[list[int], list[int]]


def fairest(groups: Sequence[Group], capacities: Sequence[float]) -> Fairest:
    """Computes the bounds of every member with a subscription, and the takers of every group."""
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
    """A fair division of groups among members, which is checked against their subscriptions by a flow."""

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
        """Returns None if the subscriptions allow the division, else the two parts to be divided separately."""
        network, division = self._network, self._division
        sent = network.push(self.SOURCE, self.SINK)
        if sent < sum(bounds.low for bounds in division.values()):
            short = [
                node for m, node in self._members.items() if network.moved(self._load[m]) < division[m].low
            ]
            return self._cut(network.reaching(short))
        # A member whose low bound is filled keeps it while flow is added, so both bounds hold at the end.
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


# ---------------------------------------------------------------- divisions by capacity alone

Price: TypeAlias = float
SMALLEST_SHARE = 1e-100
"""Share of a member without capacity. It is served last, but not never: it may be the only subscriber of a topic."""


class Bounds(NamedTuple):
    """Smallest and largest number of partitions of a member over all fair divisions; they differ by 1 at most."""

    low: int
    high: int


class Shares:
    """Computes fair divisions of partitions by capacity alone.

    Each member offers slots 1, 2, 3, … with rising prices; a division is fair if it fills the cheapest slots. With equal
    capacities all members get the same number, give or take one. With different capacities it depends on whether every
    member may take every partition (`one_group`). If so, the price of slot k is k minus the member's exact share, which
    yields the quotas of the largest-remainder method. Otherwise exact shares may be out of reach, so the price is
    (2k - 1) / capacity, which minimises the sum of load² / capacity.
    """

    def __init__(self, capacities: Mapping[int, float], *, one_group: bool) -> None:
        exact = {member: Fraction(capacity) for member, capacity in capacities.items()}
        if len(set(exact.values())) <= 1:
            exact = dict.fromkeys(exact, Fraction(1))
        self._by_remainder = one_group and len(set(exact.values())) > 1
        unit = lcm(*(capacity.denominator for capacity in exact.values()))
        self._whole = {member: int(capacity * unit) for member, capacity in exact.items()}
        largest = max(exact.values(), default=Fraction(1))
        self._relative = {m: max(float(capacity / largest), SMALLEST_SHARE) for m, capacity in exact.items()}

    def divide(self, members: Iterable[int], total: int) -> Mapping[int, Bounds]:
        """Returns the bounds of each member over all fair divisions of `total` partitions."""
        among = list(members)
        if total == 0 or not among:
            return dict.fromkeys(among, Bounds(0, 0))
        price, loads = self._start(among, total)
        slots = [(price(m, loads[m] + 1), m) for m in among]
        heapify(slots)
        # Only a few slots per member are left to fill: `_start` has filled the others.
        last = max((price(m, loads[m]) for m in among if loads[m]), default=slots[0][0])
        for _ in range(total - sum(loads.values())):
            last, member = slots[0]
            loads[member] += 1
            heapreplace(slots, (price(member, loads[member] + 1), member))
        # Slots with the last price are interchangeable, if not all of them are filled.
        rivals = {m for m, load in loads.items() if price(m, load + 1) == last}
        return {
            m: Bounds(load - bool(rivals and load and price(m, load) == last), load + (m in rivals))
            for m, load in loads.items()
        }

    def _start(self, among: list[int], total: int) -> tuple[Callable[[int, int], Price], dict[int, int]]:
        """Returns the price function of a member's k-th slot, and loads that every fair division contains."""
        if self._by_remainder:
            weights = self._whole
            weight = sum(weights[m] for m in among)
            return (
                lambda m, k: k * weight - total * weights[m],
                {m: total * weights[m] // weight for m in among},
            )
        relative = self._relative
        # About total - len(among) / 2 slots are below this price, so none is filled too many.
        floor = (2 * total - 2 * len(among)) / sum(relative[m] for m in among)
        return (
            lambda m, k: (2 * k - 1) / relative[m],
            {m: max(0, int((floor * relative[m] + 1) / 2) - 1) for m in among},
        )
