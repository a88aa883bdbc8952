"""Ledger of revenue per country, in which each record counts once however often it is delivered.

A worker that dies has delivered records whose offsets were not committed yet. The workers that take over its partitions
deliver them again, in batches with other bounds. So the ledger keeps offsets, not batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

__all__ = ["Account", "Ledger", "OffsetSet"]

Partition = tuple[str, int]
Offsets = npt.NDArray[np.int64]
Cents = npt.NDArray[np.int64]
Countries = npt.NDArray[np.str_]


class OffsetSet:
    """Offsets of one partition, as bits: a delivery may overlap earlier ones in any way."""

    def __init__(self) -> None:
        self._seen = np.zeros(1024, dtype=np.bool_)
        self.count = 0

    def add(self, offsets: Offsets) -> npt.NDArray[np.bool_]:
        """Adds offsets; returns which of them were not in the set, an offset given twice only once."""
        new = np.zeros(len(offsets), dtype=np.bool_)
        if not len(offsets):
            return new
        self._reach(int(offsets.max()))
        distinct, first = np.unique(offsets, return_index=True)
        new[first] = ~self._seen[distinct]
        self._seen[distinct] = True
        self.count += int(new.sum())
        return new

    def _reach(self, offset: int) -> None:
        if offset >= len(self._seen):
            grown = np.zeros(max(offset + 1, 2 * len(self._seen)), dtype=np.bool_)
            grown[: len(self._seen)] = self._seen
            self._seen = grown


class Account(Struct):
    """Contents of the ledger. Money is in cents; times are seconds since the kill.

    `counted`: different records per partition; `delivered`: with repetitions, and of those `delivered_before_kill`
    and `counted_before_kill`. `revenue` counts each record once, `revenue_delivered` each delivery.
    `taken_over`: when each partition of the killed worker had its first delivery by another one.
    """

    counted: dict[Partition, int]
    delivered: int
    counted_before_kill: int
    delivered_before_kill: int
    revenue: dict[str, int]
    revenue_delivered: dict[str, int]
    taken_over: dict[Partition, float]


class Ledger:
    """Revenue per country. Time is given with each call: monotonic seconds of the ledger's own process."""

    def __init__(self) -> None:
        self._seen: dict[Partition, OffsetSet] = {}
        self._delivered = 0
        self._once: dict[str, int] = {}
        self._always: dict[str, int] = {}
        self._killed: str | None = None
        self._killed_at = 0.0
        self._waits_for: set[Partition] = set()
        self._before_kill = (0, 0)
        self._taken_over: dict[Partition, float] = {}

    def add(
        self,
        worker: str,
        partition: Partition,
        offsets: Offsets,
        countries: Countries,
        cents: Cents,
        now: float,
    ) -> None:
        """Adds a batch of a worker; the arrays have one entry for each record."""
        if partition in self._waits_for and worker != self._killed:
            self._waits_for.discard(partition)
            self._taken_over[partition] = now - self._killed_at
        new = self._seen.setdefault(partition, OffsetSet()).add(offsets)
        self._delivered += len(offsets)
        _add_up(self._always, countries, cents)
        _add_up(self._once, countries[new], cents[new])

    def worker_killed(self, worker: str, partitions: list[Partition], now: float) -> None:
        """Notes that a worker was killed, to measure when each of its partitions has a delivery by another worker."""
        self._killed, self._killed_at, self._waits_for = worker, now, set(partitions)
        self._before_kill = (self.counted(), self._delivered)

    def counted(self) -> int:
        """Number of different records that have arrived."""
        return sum(s.count for s in self._seen.values())

    def account(self) -> Account:
        """Contents of the ledger now."""
        return Account(
            counted={partition: seen.count for partition, seen in self._seen.items()},
            delivered=self._delivered,
            counted_before_kill=self._before_kill[0],
            delivered_before_kill=self._before_kill[1],
            revenue=dict(self._once),
            revenue_delivered=dict(self._always),
            taken_over=dict(self._taken_over),
        )


def _add_up(sums: dict[str, int], countries: Countries, cents: Cents) -> None:
    names, which = np.unique(countries, return_inverse=True)
    totals = np.zeros(len(names), dtype=np.int64)
    np.add.at(totals, which, cents)
    for name, total in zip(names.tolist(), totals.tolist(), strict=True):
        sums[name] = sums.get(name, 0) + total


def batch_of(sales: list[tuple[str, int]]) -> tuple[Any, Any]:
    """Country and cents of each record as the two arrays that the ledger takes."""
    countries = np.array([country for country, _ in sales], dtype="U2")
    return countries, np.array([cents for _, cents in sales], dtype=np.int64)
