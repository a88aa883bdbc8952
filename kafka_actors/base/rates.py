"""Rates over the last seconds, from counters that are read from time to time; and sums of known values."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

S = TypeVar("S")

WINDOW_S = 5.0
"""Seconds of a rate. Workers report about once a second, so rates over less would jump."""


class Window(Generic[S]):
    """Keeps samples of the last `window_s` seconds, and the one before them, with which rates are computed."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, S]] = deque()

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, sample: S, now: float) -> tuple[S, float]:
        """Adds the counters read at `now` (monotonic seconds). Returns an older sample to compare them with, and its age in
        seconds: at least the window's length, less only while there is no older sample."""
        self._samples.append((now, sample))
        while len(self._samples) > 2 and now - self._samples[1][0] >= self._window_s:
            self._samples.popleft()
        then, first = self._samples[0]
        return first, now - then


def rate(now: float, before: float, span_s: float) -> float:
    """Growth of a counter per second; 0 for a span of 0, and for a counter that fell because it was restarted."""
    return max(0.0, now - before) / span_s if span_s > 0 else 0.0


def known_sum(numbers: Iterable[int | None]) -> int | None:
    """Sum of the numbers that are not None; None if all are."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
