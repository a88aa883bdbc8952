"""Exponential backoff with ±20 % jitter (KIP-580)."""

from __future__ import annotations

from collections.abc import Callable

JITTER = 0.2


class Backoff:
    """Delays in seconds that double from `initial` to `maximum`, until `reset`. `rand` gives 0..1."""

    def __init__(self, initial: float, maximum: float, rand: Callable[[], float]) -> None:
        self._initial = initial
        self._maximum = max(initial, maximum)
        self._rand = rand
        self.failures = 0

    def next(self) -> float:
        """The delay after one more failure."""
        delay = min(self._maximum, self._initial * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return delay * (1 - JITTER + 2 * JITTER * self._rand())

    def reset(self) -> None:
        """Something succeeded."""
        self.failures = 0
