"""Exponential backoff with jitter (KIP-580, KIP-1102)."""

from __future__ import annotations

from msgspec import Struct

JITTER = 0.2


class Backoff(Struct, frozen=True):
    """Delays in seconds: `first`, doubled with each failure up to `most`, each 20 % more or less."""

    first: float
    most: float

    def delay(self, failures: int, rand: float) -> float:
        """The pause after the `failures`-th failure in a row (1 or more); `rand` is in 0..1."""
        exact = min(self.most, self.first * 2.0 ** min(failures - 1, 32))
        return exact * (1 + JITTER * (2 * rand - 1))
