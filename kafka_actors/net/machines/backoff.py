"""Pauses between tries: they grow, and no two clients have the same."""

from __future__ import annotations

from collections.abc import Callable

JITTER = 0.2
"""Java's and librdkafka's: from a fifth below to a fifth above."""


def exponential(failures: int, base: float, maximum: float, rand: Callable[[], float]) -> float:
    """The pause after the `failures`th failure in a row: `base` doubled each time up to `maximum`, ±20 %."""
    if failures <= 0:
        return 0.0
    grown = min(base * 2.0 ** min(failures - 1, 40), max(base, maximum))
    return grown * (1 - JITTER + 2 * JITTER * rand())


class Backoff:
    """The pauses of one host or one kind of request. Times are seconds."""

    def __init__(self, base: float, maximum: float, rand: Callable[[], float]) -> None:
        self._base = base
        self._maximum = maximum
        self._rand = rand
        self.failures = 0
        self._until = 0.0

    def failed(self, now: float) -> float:
        """Notes a failure. Returns the pause that it causes."""
        self.failures += 1
        pause = exponential(self.failures, self._base, self._maximum, self._rand)
        self._until = now + pause
        return pause

    def succeeded(self) -> None:
        """The next failure is a first one again."""
        self.failures = 0
        self._until = 0.0

    def remaining(self, now: float) -> float:
        """Seconds until the next try may be made, 0 if it may be made now."""
        return max(self._until - now, 0.0) if self.failures else 0.0
