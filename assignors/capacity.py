"""How many partitions members should have when nothing but their capacities matters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from heapq import heapify, heapreplace
from math import lcm
from typing import NamedTuple, TypeAlias

Price: TypeAlias = float
# A member that has no capacity is served last, not never: somebody must take what nobody else may.
SMALLEST_SHARE = 1e-100


class Bounds(NamedTuple):
    """Fewest and most partitions that a member has in any fair division; they differ by 1 at most."""

    low: int
    high: int


class Shares:
    """Fair divisions of partitions by capacity.

    Each member offers slots 1, 2, 3, … whose price rises; a division is fair if it fills the cheapest slots.
    With equal capacities that is an equal number for each, give or take one. With different ones it depends
    on whether everyone may take everything (`one_group`): then the price of slot k is k minus the member's
    exact share, which gives the quotas of the largest remainders; otherwise it is (2k - 1) / capacity, which
    makes the sum of load² / capacity least, because shares that cannot be reached say nothing.
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
        """The bounds of all fair divisions of `total` partitions among these members."""
        among = list(members)
        if total == 0 or not among:
            return dict.fromkeys(among, Bounds(0, 0))
        price, loads = self._start(among, total)
        slots = [(price(m, loads[m] + 1), m) for m in among]
        heapify(slots)
        # What is left over never exceeds a few per member: `_start` has filled the rest.
        last = max((price(m, loads[m]) for m in among if loads[m]), default=slots[0][0])
        for _ in range(total - sum(loads.values())):
            last, member = slots[0]
            loads[member] += 1
            heapreplace(slots, (price(member, loads[member] + 1), member))
        # Slots of the last price can be exchanged for each other, if not all of them are filled.
        rivals = {m for m, load in loads.items() if price(m, load + 1) == last}
        return {
            m: Bounds(load - bool(rivals and load and price(m, load) == last), load + (m in rivals))
            for m, load in loads.items()
        }

    def _start(self, among: list[int], total: int) -> tuple[Callable[[int, int], Price], dict[int, int]]:
        """The price of a member's k-th slot, and loads that every fair division includes."""
        if self._by_remainder:
            weights = self._whole
            weight = sum(weights[m] for m in among)
            return (
                lambda m, k: k * weight - total * weights[m],
                {m: total * weights[m] // weight for m in among},
            )
        relative = self._relative
        # At this price the slots number about total - len(among) / 2, so none of them is too many.
        floor = (2 * total - 2 * len(among)) / sum(relative[m] for m in among)
        return (
            lambda m, k: (2 * k - 1) / relative[m],
            {m: max(0, int((floor * relative[m] + 1) / 2) - 1) for m in among},
        )
