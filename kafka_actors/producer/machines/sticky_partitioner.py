"""`StickyPartitioner`: the choice of a partition for records without a key (KIP-480, KIP-794)."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class StickyPartitioner:
    """Stays with one partition of a topic for `batch_size` bytes, then moves to another one at random.

    So one batch gets full instead of many being begun, and each partition gets the same share of bytes. `rand`
    returns 0..1.
    """

    def __init__(self, batch_size: int, rand: Callable[[], float]) -> None:
        self._batch_size = batch_size
        self._rand = rand
        self._partition = -1
        self._left = 0

    def choose(self, available: Sequence[int]) -> int:
        """Returns the partition for the next record, one of `available`, which is not empty."""
        if self._left <= 0 or self._partition not in available:
            others = [p for p in available if p != self._partition] or list(available)
            self._partition = others[min(int(self._rand() * len(others)), len(others) - 1)]
            self._left = self._batch_size
        return self._partition

    @property
    def left(self) -> int:
        """Bytes until it moves on."""
        return self._left

    def spend(self, size: int) -> None:
        """Counts bytes that went to the chosen partition."""
        self._left -= size
