"""Rates of the last seconds, and sums of what is known, from counters that are looked at now and then."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

S = TypeVar("S")

WINDOW_S = 5.0
"""Workers report about once a second: over less, rates would jump."""


class Window(Generic[S]):
    """Samples of the last `window_s` seconds, and the one before them that rates are counted from."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, S]] = deque()

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, sample: S, now: float) -> tuple[S, float]:
        """Takes the counters at `now` (monotonic seconds). Returns those to compare them with, and how many seconds ago
        they were taken: at least the window's length, less only while there is no older sample."""
        self._samples.append((now, sample))
        while len(self._samples) > 2 and now - self._samples[1][0] >= self._window_s:
            self._samples.popleft()
        then, first = self._samples[0]
        return first, now - then


def rate(now: float, before: float, span_s: float) -> float:
    """How much a counter grew in a second; 0 over no time, and for a counter that begins anew or knows less than before."""
    return max(0.0, now - before) / span_s if span_s > 0 else 0.0


def known_sum(numbers: Iterable[int | None]) -> int | None:
    """The sum of the numbers that are known; None where none is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
