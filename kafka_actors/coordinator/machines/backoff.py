"""Exponential backoff with ±20 % jitter (KIP-580); and the time that a request has."""

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


class Patience:
    """Seconds that an answer is waited for: `usual`; twice as long after each request that had none, up to `longest`.

    So a frozen broker is given up early, and one that takes its time isn't given up for ever.
    """

    def __init__(self, usual: float, longest: float) -> None:
        self.seconds = self._usual = min(usual, longest)
        self._longest = longest

    def unanswered(self) -> None:
        """A request had no answer in its time."""
        self.seconds = min(self._longest, 2 * self.seconds)

    def answered(self, took: float) -> None:
        """One had, after so many seconds."""
        if took < self._usual:
            self.seconds = self._usual
