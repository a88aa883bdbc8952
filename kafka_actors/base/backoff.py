"""Exponential backoff with jitter (KIP-580): the pauses between tries of whatever fails, and the time that an answer has."""

from __future__ import annotations

from collections.abc import Callable

JITTER = 0.2
"""Java's and librdkafka's: from a fifth below to a fifth above, so that no two clients try again in the same moment."""

CALL_BACKOFF_S = 0.1
"""The pause before code of the user that failed is called again; it doubles with each failure."""
CALL_BACKOFF_MAX_S = 2.0

_MAX_DOUBLINGS = 40


def exponential_backoff(
    failures: int, initial: float, maximum: float, rand: Callable[[], float] | None = None
) -> float:
    """The pause after the `failures`th failure in a row, in the unit of `initial`; 0 after none.

    It is `initial` after the first and doubles up to `maximum`, which also limits `initial` (KIP-580). `rand` gives
    0..1 for the jitter of ±20 %, which comes on top of the maximum; without it there is none.
    """
    if failures <= 0:
        return 0.0
    pause = min(initial * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), maximum)
    return pause if rand is None else pause * (1 - JITTER + 2 * JITTER * rand())


class Backoff:
    """Counts the failures of one host or of one kind of request, and knows when the next try may be made.

    Times are seconds; `initial`, `maximum` and `rand` are those of `exponential_backoff`.
    """

    def __init__(self, initial: float, maximum: float, rand: Callable[[], float] | None = None) -> None:
        self._initial = initial
        self._maximum = maximum
        self._rand = rand
        self.failures = 0
        """In a row."""
        self._until = 0.0

    def failed(self, now: float) -> float:
        """Notes a failure. Returns the pause that it causes."""
        self.failures += 1
        pause = exponential_backoff(self.failures, self._initial, self._maximum, self._rand)
        self._until = now + pause
        return pause

    def succeeded(self) -> None:
        """Makes the next failure a first one again."""
        self.failures = 0
        self._until = 0.0

    def remaining(self, now: float) -> float:
        """Seconds until the next try may be made, 0 if it may be made now."""
        return max(self._until - now, 0.0) if self.failures else 0.0


class GrowingTimeout:
    """Seconds that an answer is waited for: `usual`; twice as long after each request that had none, up to `longest`.

    So a frozen broker is given up early, and one that takes its time isn't given up for ever.
    """

    def __init__(self, usual: float, longest: float) -> None:
        self.seconds = self._usual = min(usual, longest)
        self._longest = longest

    def unanswered(self) -> None:
        """Doubles the time: a request had no answer in it."""
        self.seconds = min(self._longest, 2 * self.seconds)

    def answered(self, took: float) -> None:
        """Makes the time the usual one again where an answer came within that, after `took` seconds."""
        if took < self._usual:
            self.seconds = self._usual
