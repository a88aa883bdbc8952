"""Latency from a record's timestamp to the end of its processing, counted in buckets.

Theory of operation. What arrives are latencies of a sample of each batch: `SAMPLES` records that lie evenly in it stand for
all of it, so the cost of a batch does not depend on its size. The timestamp is the record's: CreateTime by its producer's
clock, LogAppendTime by the broker's. The end is taken by the worker's clock; a record with a timestamp in the future counts
with a latency of 0. What is kept is a number of records in each of a few buckets that grow geometrically, so counts of many
workers are added up exactly (`added`), what came since is a difference (`since`), and a quantile is found within a bucket.

Buckets grow by a quarter of a doubling, so a quantile is off by less than a fifth at any size, and 160 of
them reach from a millisecond to decades. A coarser histogram for exporters is made of whole fine buckets
(`histogram`), so no record is counted on both sides of a boundary. Counts of a process that was replaced
begin anew; what fell counts as no growth (`since`), never as a negative number.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["SAMPLES", "Counts", "LatencyTally", "added", "histogram", "quantile", "since"]

SAMPLES = 16
"""Records of a batch whose timestamps are read."""
STEPS = 4
"""Buckets for each doubling: a quantile is off by less than a fifth."""
LAST = 40 * STEPS
"""Last bucket: everything above 35 years."""

Counts = dict[int, int]
"""Bucket → records. Bucket 0 is below a millisecond; n reaches from 2^((n-1)/4) ms to 2^(n/4) ms."""


class LatencyTally:
    """Counts latencies, and only grows. `take` is called on one thread; another thread may copy `counts` at any time."""

    def __init__(self) -> None:
        self.counts: Counts = {}

    def take(self, ages_ms: Sequence[float], records: int) -> None:
        """Counts `records` that were processed. `ages_ms` are latencies of a sample; each stands for an equal share of the records."""
        samples = len(ages_ms)
        for n, age_ms in enumerate(ages_ms):
            bucket = _bucket(age_ms)
            share = (n + 1) * records // samples - n * records // samples
            self.counts[bucket] = self.counts.get(bucket, 0) + share


def _bucket(age_ms: float) -> int:
    return 0 if age_ms < 1 else min(LAST, math.floor(math.log2(age_ms) * STEPS) + 1)


def added(counts: Iterable[Mapping[int, int]]) -> Counts:
    """Sum of several counts."""
    total: Counts = {}
    for each in counts:
        for bucket, records in each.items():
            total[bucket] = total.get(bucket, 0) + records
    return total


def since(now: Mapping[int, int], before: Mapping[int, int]) -> Counts:
    """Growth between two counts. Buckets that fell, because the counting process was replaced, count as no growth."""
    grown = {bucket: records - before.get(bucket, 0) for bucket, records in now.items()}
    return {bucket: records for bucket, records in grown.items() if records > 0}


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """Latency in milliseconds that this share of the records (0 to 1) did not exceed; None without records."""
    wanted, below = share * sum(counts.values()), 0
    for bucket in sorted(counts):
        inside = counts[bucket]
        if inside and below + inside >= wanted:
            low, high = _bounds(bucket)
            return low + (high - low) * max(0.0, wanted - below) / inside
        below += inside
    return None


def histogram(counts: Mapping[int, int], boundaries_s: Sequence[float]) -> tuple[list[int], list[float]]:
    """Numbers of records and sums of latencies (seconds) in coarser buckets that end at `boundaries_s`, with one more bucket
    above the last. Boundaries must be a millisecond times a power of two, so that each fine bucket lies in one coarse one.
    Sums count each record with the middle of its fine bucket."""
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
