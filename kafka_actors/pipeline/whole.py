"""Numbers of the user's in columns of integers: pyarrow cuts off what is behind the point, without a word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from numbers import Integral, Number
from typing import Any

import pyarrow as pa


def check_whole(values: Iterable[Any], kind: Any) -> None:
    """Raises `ValueError` or `OverflowError` for a number that an integer of the type, or within it, can't be."""
    types = pa.types
    there = [value for value in values if value is not None]
    if types.is_integer(kind):
        for value in there:
            if isinstance(value, Number) and not isinstance(value, Integral) and value != int(value):  # type: ignore[call-overload]
                raise ValueError(f"{value} is no whole number")
    elif types.is_struct(kind):
        for field in kind:
            check_whole([value.get(field.name) for value in there if isinstance(value, Mapping)], field.type)
    elif types.is_map(kind):
        pairs = [p for value in there for p in (value.items() if isinstance(value, Mapping) else value)]
        check_whole([key for key, _ in pairs], kind.key_type)
        check_whole([item for _, item in pairs], kind.item_type)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        check_whole(chain.from_iterable(there), kind.value_type)
