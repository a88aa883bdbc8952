"""Histograms of what comes counted: their sums in this process, for Prometheus, as long as the process lives."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from .attributes import Attributes
from .instruments import Instrument

__all__ = ["BucketSums", "Distributions", "distributions"]


class BucketSums(NamedTuple):
    """`counts`: so many values in each bucket, the last one behind all boundaries. `total`: of the values themselves."""

    counts: tuple[int, ...]
    total: float


class Distributions:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[Instrument, dict[Attributes, BucketSums]] = {}

    def add(
        self, instrument: Instrument, counts: Sequence[int], total: float, attributes: Attributes
    ) -> None:
        """So many more values in each bucket, and what they come to."""
        with self._lock:
            of = self._sums.setdefault(instrument, {})
            before = of.get(attributes, BucketSums((0,) * len(counts), 0.0))
            summed = tuple(old + new for old, new in zip(before.counts, counts, strict=True))
            of[attributes] = BucketSums(summed, before.total + total)

    def read(self) -> dict[Instrument, dict[Attributes, BucketSums]]:
        """All of them as they are now."""
        with self._lock:
            return {instrument: dict(of) for instrument, of in self._sums.items()}


@lru_cache(maxsize=1)
def distributions() -> Distributions:
    """Those of this process."""
    return Distributions()
