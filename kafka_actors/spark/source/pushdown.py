"""Spark's pushed filters as conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from .machines.filter_ranges import FilterCondition, Operator

_OPERATORS: dict[type[Filter], Operator] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


def conditions_of(filters: Iterable[Filter]) -> Iterator[FilterCondition]:
    """Those that compare a number or a time; the others say nothing about what has to be read."""
    for each in filters:
        operator = _OPERATORS.get(type(each))
        if operator is None:
            continue
        given: Any = each
        values = [_number(value) for value in (given.value if operator == "in" else [given.value])]
        if None not in values:
            yield FilterCondition(
                ".".join(given.attribute), operator, values if operator == "in" else values[0]
            )


def _number(value: Any) -> int | None:
    """A time as milliseconds, rounded down; None for what is neither a time nor a whole number."""
    if isinstance(value, datetime):
        return None if value.tzinfo is None else int(value.timestamp() * 1000 // 1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
