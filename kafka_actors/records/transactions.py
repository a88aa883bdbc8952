"""Aborted transactions: the batches that a read_committed reader leaves out, by the rules of Java's consumer (KIP-98).

A fetch response lists the aborted transactions of its range as (producer id, first offset). From that offset on
the transactional batches of that producer are aborted, until its abort marker. A marker without an entry is fine:
its transaction began before the fetch and has no records in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop

ABORT = 0  # type in the key of a control record; 1 is commit


class AbortedTransactions:
    """The list of aborted transactions of one fetch response, worked off as its batches are read in order."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapify(self._coming)  # brokers send it sorted mostly, not always
        self._open: set[int] = set()

    @property
    def active(self) -> bool:
        """Whether a later batch may be aborted."""
        return bool(self._coming or self._open)

    def advance(self, last_offset: int) -> None:
        """Opens the aborted transactions that began up to the last offset of the present batch."""
        while self._coming and self._coming[0][0] <= last_offset:
            self._open.add(heappop(self._coming)[1])

    def is_aborted(self, producer_id: int) -> bool:
        """Whether the producer's transactional batches are aborted now."""
        return producer_id in self._open

    def end(self, producer_id: int) -> None:
        """Closes a transaction: an abort marker of this producer was read."""
        self._open.discard(producer_id)


NONE_ABORTED = AbortedTransactions(())
"""The empty list: nothing opens in it, so all decoders may have the same one."""
