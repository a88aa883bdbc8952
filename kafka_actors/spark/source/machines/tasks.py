"""Tasks of Spark: the distribution of offset ranges over tasks, and the offset at which a task goes on after a loss.

Theory of operation. `tasks_of` gets the planned ranges. Without options a large range is a task, and small ones share
tasks, because a task costs more to start than to read them. `maxRecordsPerPartition` splits ranges into parts of at
most that many offsets; `minPartitions` then splits the largest ones in proportion to their size, with the rounding of
Spark's `KafkaOffsetRangeCalculator`. A partition's parts are read independently, so its order is kept within a part
only. `go_on_at` is for a task that finds records gone where `failOnDataLoss` is false: it goes on behind the gap, never
before its position, and never in a topic that was created again, in which the same offsets are other records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from kafka_actors.errors import DataLossError, FetchOffsetOutOfRangeError, LogTruncationError

from .offset_ranges import TaskRange

SMALL = 10_000
"""Offsets of a range that is read faster than a task starts, so that it shares a task."""
SHARED = 10 * SMALL
"""Offsets of a task up to which small ranges share it."""

Task = tuple[TaskRange, ...]


def tasks_of(
    ranges: Iterable[TaskRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[Task]:
    """The ranges of each task; empty ranges get none.

    Without options each range is a task, and small ones share. `max_records_per_partition` bounds the offsets of a
    task; `min_partitions` is about the least number of tasks after that. With either, each task has one range.
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
    """Ranges that are split together: their offsets in all, and the number of parts."""

    size: int
    parts: int

    def parts_of(self, r: TaskRange) -> int:
        return max(int(r.size / self.size * self.parts + 0.5), 1)


def _at_least(ranges: Sequence[TaskRange], count: int) -> list[TaskRange]:
    """Splits ranges in proportion to their size. Those too small to be split count as tasks, and don't reduce the share of the
    others."""
    if not ranges:
        return []
    everything = _SplitRanges(sum(r.size for r in ranges), count)
    large = [r for r in ranges if everything.parts_of(r) > 1]
    rest = _SplitRanges(sum(r.size for r in large), max(count - (len(ranges) - len(large)), 1))
    return [part for r in ranges for part in _split(r, rest.parts_of(r) if everything.parts_of(r) > 1 else 1)]


def _split(r: TaskRange, parts: int) -> list[TaskRange]:
    """Splits a range into parts that differ by at most one offset; none is empty."""
    parts = min(parts, r.size)
    cuts = [r.start + r.size * i // parts for i in range(parts + 1)]
    return [TaskRange(r.topic, r.partition, begin, end, r.topic_id) for begin, end in pairwise(cuts)]


def go_on_at(loss: DataLossError, position: int, r: TaskRange) -> int | None:
    """The offset from which the rest of a range is read after a loss; None where nothing of it is left.

    `position` is the offset behind the last record that was returned, or the start of the range. The result is never
    before it. It is None for a topic that was created again, in which the same offsets are other records.
    """
    if isinstance(loss, LogTruncationError):
        return position
    if isinstance(loss, FetchOffsetOutOfRangeError):
        start = loss.log_start_offset
        return start if start is not None and position < start < r.end else None
    return None
