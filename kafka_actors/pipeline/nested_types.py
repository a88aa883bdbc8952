"""Types within types, and values within values: a list's, a map's, a struct's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa


def with_children(kind: Any, of: Callable[[Any], Any]) -> Any:
    """The type with `of` applied to each type that it holds; any other type as it is."""

    def made(field: Any) -> Any:
        return field.with_type(of(field.type))

    types = pa.types
    if types.is_struct(kind):
        return pa.struct([made(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(made(kind.key_field), made(kind.item_field), keys_sorted=kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(made(kind.value_field), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(made(kind.value_field))
    if types.is_list(kind):
        return pa.list_(made(kind.value_field))
    return kind


def is_list(kind: Any) -> bool:
    """Whether it is one of Arrow's types of lists."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def entries(column: Any) -> tuple[Any, Any]:
    """The keys and the values of all maps in a column of them."""
    column = column.drop_null() if column.null_count else column
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return column.keys.slice(first, last - first), column.items.slice(first, last - first)
