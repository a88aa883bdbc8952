"""Offset ranges of a read: from the start and end that the options say, through a query's filters, to the tasks of Spark.

Theory of operation. Options say where a read starts and ends (`Bound`): at an end of the logs, at offsets, or at
timestamps, for all partitions or by partition. Brokers say where each log starts and ends, and which offsets match the
timestamps (`LogRange`). Three decisions follow, each a function of what the one before returned:

1. `resolve` makes a `TaskRange` of each partition. An offset outside of the log is not an error here but a `DataLossError`
   in the result, which the caller raises or logs (`failOnDataLoss`), and the range is cut to the log. `check_named` and
   `check_order` refuse options that can't be meant. The rules are those of Spark's own `KafkaOffsetReader`.
2. `narrowed` cuts the ranges to a query's filters. `pushFilters` of the batch reader passes those that compare `partition`,
   `offset` or `timestamp` with constants, and `narrowing_of` intersects them to one `FilterRange`. This only avoids
   reading: Spark applies all filters to the rows again. So a filter that can't narrow is ignored, and a range may be too
   wide but never too narrow. Timestamps narrow only from below, by the first offset at or after the bound
   (ListOffsets), because producers set timestamps and a later record may have an earlier one.
3. `tasks_of` shares the ranges out. Without options a large range is a task, and small ones share tasks, because a task
   costs more to start than to read them. `maxRecordsPerPartition` splits ranges into parts of at most that many offsets;
   `minPartitions` then splits the largest ones in proportion to their size, with the rounding of Spark's
   `KafkaOffsetRangeCalculator`. The parts of a partition are read independently, so its order is kept within a part only.

`rest_after` is for a task that finds records gone where `failOnDataLoss` is false: it goes on behind the gap, never before its
position, and never in a topic that was created again, in which the same offsets are other records. Nor does a stream read what a
truncated log has got anew within a range that was planned before: the next batch begins where the logs part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kafka_actors.errors import ConfigError, DataLossError, FetchOffsetOutOfRangeError, LogTruncationError
from kafka_actors.types import EARLIEST, LATEST, TopicPartition


class LogEnd(Enum):
    """Earliest or latest offset of each log."""

    EARLIEST = EARLIEST
    LATEST = LATEST


class SpecificOffsets(Struct, frozen=True):
    """Offsets by partition, from the option named `option`; `EARLIEST` and `LATEST` stand for the ends of the log."""

    option: str
    by_partition: dict[TopicPartition, int]


class SpecificTimestamps(Struct, frozen=True):
    """Milliseconds since 1970, from the option named `option`: one for all partitions, or by partition."""

    option: str
    everywhere: int | None = None
    by_partition: dict[TopicPartition, int] = {}

    def of(self, tp: TopicPartition) -> int:
        """The timestamp of one partition. Raises `KeyError` for one that isn't named."""
        return self.by_partition[tp] if self.everywhere is None else self.everywhere


FixedBound = LogEnd | SpecificOffsets | SpecificTimestamps


class CommittedBound(Struct, frozen=True):
    """Committed offsets of a group; the earliest offset for a partition without one."""


Bound = FixedBound | CommittedBound


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds_of(moment: datetime) -> int:
    """Milliseconds since 1970, rounded down. A float's product would be one too few for some whole milliseconds."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def at(tp: TopicPartition) -> str:
    """The name of a partition in errors."""
    return f"{tp.topic}-{tp.partition}"


class TaskRange(Struct, frozen=True, array_like=True):
    """Offsets from `start` to `end` (exclusive) of one partition, and at the time of planning the topic's id and, in a stream, the
    leader's epoch."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes | None = None
    leader_epoch: int = -1

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets, of which compaction and transactions may leave fewer records."""
        return self.end - self.start


class LogRange(Struct, frozen=True):
    """Log of a partition: offsets from `start` to `end` (exclusive; under read_committed the last stable offset).
    `start_match` and `end_match` are the results of a look-up by timestamp, -1 where no record matches."""

    start: int
    end: int
    start_match: int = -1
    end_match: int = -1


class ResolvedRanges(Struct, frozen=True):
    """Ranges, one for each partition, empty ones included; and the losses where options name offsets outside of a log."""

    ranges: list[TaskRange]
    losses: list[DataLossError]


def check_named(bound: FixedBound, partitions: Iterable[TopicPartition]) -> None:
    """Raises `ConfigError` for offsets or timestamps by partition that don't name exactly the partitions that are read, as in
    Spark. The error names the ones that are missing or too many."""
    if not isinstance(bound, (SpecificOffsets, SpecificTimestamps)):
        return
    if isinstance(bound, SpecificTimestamps) and bound.everywhere is not None:
        return
    wanted, named = set(partitions), set(bound.by_partition)
    if missing := sorted(wanted - named):
        raise ConfigError(
            bound.option, f"has to name all partitions that are read; it lacks {_list(missing)}"
        )
    if extra := sorted(named - wanted):
        raise ConfigError(bound.option, f"names partitions that are not read: {_list(extra)}")


def resolve(
    logs: Mapping[TopicPartition, LogRange],
    start: FixedBound,
    end: FixedBound,
    *,
    no_match: str = "error",
    topic_ids: Mapping[str, bytes | None] | None = None,
) -> ResolvedRanges:
    """Resolves the ranges of all partitions in `logs`, sorted.

    An offset outside of the log is a loss, and its range is cut to the log. `no_match`: the result for a start timestamp
    that no record matches, "error" (`ConfigError`) or "latest".
    """
    ids = topic_ids or {}
    ranges: list[TaskRange] = []
    losses: list[DataLossError] = []
    for tp, log, first, last in _requested(logs, start, end, no_match):
        for requested, side in ((first, "start"), (last, "end")):
            if not log.start <= requested <= log.end:
                holds = f"the log holds offsets {log.start} to {log.end}"
                losses.append(DataLossError(*tp, requested, f"the {side} of the range is gone: {holds}"))
        first, last = (min(max(offset, log.start), log.end) for offset in (first, last))
        ranges.append(TaskRange(tp.topic, tp.partition, first, max(first, last), ids.get(tp.topic)))
    return ResolvedRanges(ranges, losses)


def check_order(
    logs: Mapping[TopicPartition, LogRange], start: FixedBound, end: FixedBound, *, no_match: str = "error"
) -> None:
    """Raises `ConfigError` for a range of a batch whose start is behind its end, in the log or not; as Spark does, also where
    `failOnDataLoss` is false."""
    for tp, _, first, last in _requested(logs, start, end, no_match):
        if first > last:
            option = next((bound.option for bound in (end, start) if not isinstance(bound, LogEnd)), "")
            raise ConfigError(
                option, f"{at(tp)} would be read from {first} to {last}: the start is behind the end"
            )


def _requested(
    logs: Mapping[TopicPartition, LogRange], start: FixedBound, end: FixedBound, no_match: str
) -> Iterator[tuple[TopicPartition, LogRange, int, int]]:
    """The start and end of each partition by the options, before they are cut to the log."""
    for tp, log in sorted(logs.items()):
        yield tp, log, _start(tp, log, start, no_match), _end(tp, log, end)


def _start(tp: TopicPartition, log: LogRange, bound: FixedBound, no_match: str) -> int:
    if isinstance(bound, SpecificOffsets):
        offset = bound.by_partition[tp]
        return {EARLIEST: log.start, LATEST: log.end}.get(offset, offset)
    if isinstance(bound, LogEnd):
        return log.start if bound is LogEnd.EARLIEST else log.end
    if log.start_match >= 0:
        return log.start_match
    if no_match == "latest":
        return log.end
    raise ConfigError(
        bound.option,
        f"no record of {at(tp)} is at or after {bound.of(tp)}; "
        "startingOffsetsByTimestampStrategy=latest starts such partitions at their end",
    )


def _end(tp: TopicPartition, log: LogRange, bound: FixedBound) -> int:
    if isinstance(bound, SpecificOffsets):
        offset = bound.by_partition[tp]
        return log.end if offset == LATEST else offset
    if isinstance(bound, LogEnd):
        return log.end if bound is LogEnd.LATEST else log.start
    # The end is exclusive: a record at the timestamp itself isn't read. Without a match the log is read to its end.
    return log.end if log.end_match < 0 else log.end_match


def _list(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(at, partitions[:5]))
    return shown + (f" and {len(partitions) - 5} more" if len(partitions) > 5 else "")


Operator = Literal["=", "<", "<=", ">", ">=", "in"]


class FilterCondition(NamedTuple):
    """Comparison of a column with a value, or with "in" with a list. Timestamps are milliseconds since 1970."""

    column: str
    operator: Operator
    value: Any


class FilterRange(Struct, frozen=True):
    """Partitions (None: all), offsets from `first` to `end` (exclusive), and records not older than `from_ms`."""

    partitions: frozenset[int] | None = None
    first: int = 0
    end: int | None = None
    from_ms: int | None = None


EVERYTHING = FilterRange()


def narrowing_of(conditions: Iterable[FilterCondition]) -> FilterRange:
    """The range that fulfils all conditions; a condition on another column doesn't narrow it."""
    found = EVERYTHING
    for condition in conditions:
        found = _with(found, condition)
    return found


def _with(found: FilterRange, condition: FilterCondition) -> FilterRange:
    column, operator, value = condition
    lowest, highest = _bounds(operator, value)
    partitions, first, end, from_ms = found.partitions, found.first, found.end, found.from_ms
    if column == "partition" and operator in ("=", "in"):
        wanted = frozenset(value) if operator == "in" else frozenset({value})
        partitions = wanted if partitions is None else partitions & wanted
    elif column == "offset":
        first = first if lowest is None else max(first, lowest)
        end = end if highest is None else highest + 1 if end is None else min(end, highest + 1)
    elif column == "timestamp" and lowest is not None and lowest >= 0:
        # An upper bound can't narrow: producers set timestamps, so a later record may have an earlier one. Nor can a time
        # before 1970: to brokers -1 is the end of the log, -2 its start, and others are errors.
        from_ms = lowest if from_ms is None else max(from_ms, lowest)
    return FilterRange(partitions, first, end, from_ms)


def _bounds(operator: Operator, value: Any) -> tuple[int | None, int | None]:
    """The lowest and the highest integer that fulfil a comparison, None without a bound."""
    if operator == "in":
        return (min(value), max(value)) if value else (None, None)
    return {
        "=": (value, value),
        ">": (value + 1, None),
        ">=": (value, None),
        "<": (None, value - 1),
        "<=": (None, value),
    }[operator]


def narrowed(
    ranges: Iterable[TaskRange], narrowing: FilterRange, from_offsets: Mapping[TopicPartition, int]
) -> list[TaskRange]:
    """The parts of the ranges that can have records within the filters, empty ones included.

    `from_offsets` has the first offset at or after `from_ms` by partition, -1 without one.
    """
    found = []
    for r in ranges:
        start = max(r.start, narrowing.first)
        end = r.end if narrowing.end is None else min(r.end, narrowing.end)
        if narrowing.from_ms is not None:
            start = max(start, from_offsets[r.tp]) if from_offsets[r.tp] >= 0 else end
        if narrowing.partitions is not None and r.partition not in narrowing.partitions:
            start = end
        found.append(replace(r, start=min(start, end), end=end))
    return found


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
    return [replace(r, start=begin, end=end) for begin, end in pairwise(cuts)]


def rest_after(loss: DataLossError, position: int, r: TaskRange) -> TaskRange | None:
    """The part of a range that is read after a loss; None where nothing is left to read.

    `position` is the offset behind the last record that was returned, or the start of the range. The result never begins
    before it. It is None for a topic that was created again, in which the same offsets are other records.
    """
    start, end = position, r.end
    if isinstance(loss, LogTruncationError):
        if r.leader_epoch >= 0 and loss.divergent_offset is not None:
            end = min(end, loss.divergent_offset)
    elif isinstance(loss, FetchOffsetOutOfRangeError):
        start = end if loss.log_start_offset is None else loss.log_start_offset
        if start <= position:
            return None  # the log ends before the position
    else:
        return None
    return replace(r, start=start, end=end) if start < end else None
