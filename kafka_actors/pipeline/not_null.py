"""Nulls where a schema says NOT NULL, at the top or within a column. Arrow takes them; Spark's JVM fails on them, or reads
something else."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa

from .columns import Array
from .nested_types import entries, is_list


def null_in(column: Array, field: Any, path: str = "") -> str | None:
    """The path of the first field that may have no nulls and has some; None where all is well."""
    path = f"{path}.{field.name}" if path else field.name
    if not field.nullable and column.null_count:
        return path
    if not _says_not_null(field.type):
        return None
    there = column.drop_null() if column.null_count else column  # what is in a null may be anything
    for inner, values in _within(field.type, there):
        if (found := null_in(values, inner, path)) is not None:
            return found
    return None


def _within(kind: Any, column: Array) -> list[tuple[Any, Array]]:
    if pa.types.is_struct(kind):
        return [(kind.field(at), column.field(at)) for at in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [(kind.item_field, entries(column)[1])]
    return [(kind.value_field, column.flatten())]


@lru_cache(maxsize=1024)
def _says_not_null(kind: Any) -> bool:
    """Whether a field within the type does. Keys of maps can't be null anyway."""
    types = pa.types
    if types.is_struct(kind):
        inner = [kind.field(at) for at in range(kind.num_fields)]
    elif types.is_map(kind):
        inner = [kind.item_field]
    elif is_list(kind):
        inner = [kind.value_field]
    else:
        return False
    return any(not field.nullable or _says_not_null(field.type) for field in inner)
