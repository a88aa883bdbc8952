"""What a query's filters say about the ranges that have to be read at all. Spark applies the filters all the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from kafka_actors.types import TopicPartition

from .offset_ranges import TaskRange

Operator = Literal["=", "<", "<=", ">", ">=", "in"]


class FilterCondition(NamedTuple):
    """A column compared with a value; with "in" the values. Timestamps are milliseconds since 1970."""

    column: str
    operator: Operator
    value: Any


class FilterRange(Struct, frozen=True):
    """Partitions (None: all), offsets from `first` to before `end`, and records not older than `from_ms`."""

    partitions: frozenset[int] | None = None
    first: int = 0
    end: int | None = None
    from_ms: int | None = None


EVERYTHING = FilterRange()


def narrowing_of(conditions: Iterable[FilterCondition]) -> FilterRange:
    """What all these conditions together leave. One about another column leaves everything."""
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
        # An upper bound says nothing: producers set timestamps, so a later record may have an earlier one. Nor does a time
        # before 1970: asked for -1, brokers give the end of the log, for -2 its start, and for another one an error.
        from_ms = lowest if from_ms is None else max(from_ms, lowest)
    return FilterRange(partitions, first, end, from_ms)


def _bounds(operator: Operator, value: Any) -> tuple[int | None, int | None]:
    """The lowest and the highest value that fulfil it."""
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
    ranges: Iterable[TaskRange], narrowing: FilterRange, young: Mapping[TopicPartition, int]
) -> list[TaskRange]:
    """The parts of the ranges that can have such records, empty ones included.

    `young` has the first offset that isn't older than `from_ms`, -1 where there is none.
    """
    found = []
    for r in ranges:
        start = max(r.start, narrowing.first)
        end = r.end if narrowing.end is None else min(r.end, narrowing.end)
        if narrowing.from_ms is not None:
            start = max(start, young[r.tp]) if young[r.tp] >= 0 else end
        if narrowing.partitions is not None and r.partition not in narrowing.partitions:
            start = end
        found.append(TaskRange(r.topic, r.partition, min(start, end), end, r.topic_id))
    return found
