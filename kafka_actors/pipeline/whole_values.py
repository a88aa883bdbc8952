"""Values of the user's that pyarrow would cut off without a word: what is behind the point in a column of integers, the time of
day in one of dates, nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, time
from itertools import chain
from math import isfinite
from numbers import Integral, Number, Real
from typing import Any

import pyarrow as pa

from .json_types import FLOAT32_MAX
from .nested_types import is_list


def check_whole(values: Iterable[Any], kind: Any) -> None:
    """Raises `ValueError` or `OverflowError` for a value that the type, or one within it, can't hold whole."""
    types = pa.types
    there = [value for value in values if value is not None]
    if types.is_integer(kind):
        for value in there:
            if isinstance(value, Number) and not isinstance(value, Integral) and value != int(value):  # type: ignore[call-overload]  # a TypeError is one too
                raise ValueError(f"{value} is no whole number")
    elif types.is_float32(kind):
        for value in there:
            if isinstance(value, Real) and isfinite(value) and abs(float(value)) > FLOAT32_MAX:
                raise ValueError(f"{value} is too large")
    elif types.is_date(kind):
        for value in there:
            if isinstance(value, datetime) and value.time() != time.min:
                raise ValueError(f"{value} has a time of day")
    elif types.is_timestamp(kind) and kind.unit != "ns":
        for value in there:
            if getattr(value, "nanosecond", 0):  # a Timestamp of pandas
                raise ValueError(f"{value} has nanoseconds")
    elif types.is_struct(kind):
        for field in kind:
            check_whole([value.get(field.name) for value in there if isinstance(value, Mapping)], field.type)
    elif types.is_map(kind):
        pairs = [p for value in there for p in (value.items() if isinstance(value, Mapping) else value)]
        check_whole([key for key, _ in pairs], kind.key_type)
        check_whole([item for _, item in pairs], kind.item_type)
    elif is_list(kind):
        check_whole(chain.from_iterable(there), kind.value_type)
