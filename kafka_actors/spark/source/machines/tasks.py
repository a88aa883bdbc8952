"""Offset ranges to Spark tasks: big ones are split as Spark's `KafkaOffsetRangeCalculator` does, small ones share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from .offset_ranges import TaskRange

SMALL = 10_000
"""A range of at most so many offsets is read faster than a task starts, so it doesn't get one of its own."""
SHARED = 10 * SMALL
"""Small ranges share a task up to so many offsets together."""

Task = tuple[TaskRange, ...]


def tasks_of(
    ranges: Iterable[TaskRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[Task]:
    """The ranges of each task; empty ranges get none.

    Without options each range is a task, small ones share. `max_records_per_partition` bounds the offsets of a
    task; after that, `min_partitions` is about how many tasks there are at least. With either, each task has one
    range.
    """
    full = [r for r in ranges if r.size > 0]
    if min_partitions is None and max_records_per_partition is None:
        return _shared(full)
    if max_records_per_partition is not None:
        full = [part for r in full for part in _split(r, -(-r.size // max_records_per_partition))]
    if min_partitions is not None and len(full) < min_partitions:
        full = _at_least(full, min_partitions)
    return [(r,) for r in full]


def _shared(ranges: Sequence[TaskRange]) -> list[Task]:
    tasks: list[Task] = [(r,) for r in ranges if r.size > SMALL]
    shared: list[TaskRange] = []
    held = 0
    for r in (r for r in ranges if r.size <= SMALL):
        if held + r.size > SHARED:
            tasks.append(tuple(shared))
            shared, held = [], 0
        shared.append(r)
        held += r.size
    return [*tasks, tuple(shared)] if shared else tasks


class _SplitRanges(Struct, frozen=True):
    """The ranges that are split, together."""

    size: int
    parts: int

    def parts_of(self, r: TaskRange) -> int:
        return max(int(r.size / self.size * self.parts + 0.5), 1)


def _at_least(ranges: Sequence[TaskRange], count: int) -> list[TaskRange]:
    """Splits in proportion to size. Ranges too small to be split count, but don't dilute the share of the rest."""
    if not ranges:
        return []
    everything = _SplitRanges(sum(r.size for r in ranges), count)
    large = [r for r in ranges if everything.parts_of(r) > 1]
    rest = _SplitRanges(sum(r.size for r in large), max(count - (len(ranges) - len(large)), 1))
    return [part for r in ranges for part in _split(r, rest.parts_of(r) if everything.parts_of(r) > 1 else 1)]


def _split(r: TaskRange, parts: int) -> list[TaskRange]:
    """Parts that differ by at most one offset; never an empty one."""
    parts = min(parts, r.size)
    cuts = [r.start + r.size * i // parts for i in range(parts + 1)]
    return [TaskRange(r.topic, r.partition, begin, end, r.topic_id) for begin, end in pairwise(cuts)]
