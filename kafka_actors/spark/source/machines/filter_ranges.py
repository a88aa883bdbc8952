"""Narrowing of offset ranges by a query's filters.

Theory of operation. `pushFilters` of the batch reader passes the filters that compare `partition`, `offset` or `timestamp`
with constants. `narrowing_of` intersects them to one `FilterRange`; `narrowed` cuts the planned ranges to it. This only
avoids reading: Spark applies all filters to the rows again, so a filter that can't narrow is simply ignored, and a
range may always be too wide but never too narrow. Timestamps narrow only from below, by the first offset at or after
the bound (ListOffsets), because producers set timestamps and a later record may have an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from kafka_actors.types import TopicPartition

from .offset_ranges import TaskRange

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
        found.append(TaskRange(r.topic, r.partition, min(start, end), end, r.topic_id))
    return found
