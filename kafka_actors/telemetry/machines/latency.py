"""Latency: from a record's timestamp to its having been processed, counted in buckets.

The timestamp is that of the record (CreateTime: of its producer's clock; LogAppendTime: of the broker's), the end is by the worker's
clock; a record from the future counts as one of this moment. Of each batch a few records that lie evenly in it
stand for all of it, so a batch costs the same however many it has.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["SAMPLES", "Counts", "LatencyTally", "added", "histogram", "quantile", "since"]

SAMPLES = 16
"""So many records of a batch are looked at."""
STEPS = 4
"""Buckets between a value and its double: a quantile is off by less than a fifth."""
LAST = 40 * STEPS
"""The bucket of all that took longer than 35 years."""

Counts = dict[int, int]
"""Bucket → records. Bucket 0 is below a millisecond; n reaches from 2^((n-1)/4) ms to 2^(n/4) ms."""


class LatencyTally:
    """Counts for as long as it lives. `take` is called on one thread; another may copy `counts` at any time."""

    def __init__(self) -> None:
        self.counts: Counts = {}

    def take(self, ages_ms: Sequence[float], records: int) -> None:
        """`records` were processed; `ages_ms` are those of some of them, which share them among each other."""
        samples = len(ages_ms)
        for n, age_ms in enumerate(ages_ms):
            bucket = _bucket(age_ms)
            share = (n + 1) * records // samples - n * records // samples
            self.counts[bucket] = self.counts.get(bucket, 0) + share


def _bucket(age_ms: float) -> int:
    return 0 if age_ms < 1 else min(LAST, math.floor(math.log2(age_ms) * STEPS) + 1)


def added(counts: Iterable[Mapping[int, int]]) -> Counts:
    """The sum of several."""
    total: Counts = {}
    for each in counts:
        for bucket, records in each.items():
            total[bucket] = total.get(bucket, 0) + records
    return total


def since(now: Mapping[int, int], before: Mapping[int, int]) -> Counts:
    """What came on top. Who counts may have been replaced, and know less than before: that is nothing."""
    grown = {bucket: records - before.get(bucket, 0) for bucket, records in now.items()}
    return {bucket: records for bucket, records in grown.items() if records > 0}


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """The latency in milliseconds that this share of the records (0 to 1) did not exceed; None of no records."""
    wanted, below = share * sum(counts.values()), 0
    for bucket in sorted(counts):
        inside = counts[bucket]
        if inside and below + inside >= wanted:
            low, high = _bounds(bucket)
            return low + (high - low) * max(0.0, wanted - below) / inside
        below += inside
    return None


def histogram(counts: Mapping[int, int], boundaries_s: Sequence[float]) -> tuple[list[int], list[float]]:
    """How many records, and what their latencies come to in seconds, by coarser buckets that end at these boundaries, with one more
    behind the last. Boundaries are to be milliseconds times powers of two, so that no bucket lies in two. Sums take each record for the
    middle of its bucket."""
    found, sums = [0] * (len(boundaries_s) + 1), [0.0] * (len(boundaries_s) + 1)
    for bucket, records in counts.items():
        low, high = _bounds(bucket)
        place = bisect_left(boundaries_s, high / 1000)
        found[place] += records
        sums[place] += records * (low + high) / 2000
    return found, sums


def _bounds(bucket: int) -> tuple[float, float]:
    low = 0.0 if bucket == 0 else 2.0 ** ((bucket - 1) / STEPS)
    return low, 2.0 ** (bucket / STEPS)
