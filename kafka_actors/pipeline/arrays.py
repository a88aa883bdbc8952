"""Python values as Arrow columns, and batches cast to the schema that was promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from .columns import Array
from .lossless_casts import check_cast
from .nested_types import with_children
from .not_null import null_in
from .whole_values import check_whole

CONVERSION: TypeAlias = tuple[type[Exception], ...]
CONVERSION_ERRORS: CONVERSION = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What pyarrow raises for a value that a type can't hold."""


def column_of(values: Sequence[Any], kind: Any) -> Array:
    """The values as a column; raises one of `CONVERSION_ERRORS` rather than round them."""
    fine = _fine(kind)
    made = pa.array(values, fine)
    return made if fine == kind else made.cast(kind)


@lru_cache(maxsize=1024)
def _fine(kind: Any) -> Any:
    """The type, with the times in it as fine as Python's: pyarrow makes coarser ones of them without a word."""
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_time32(kind):
        return pa.time64("us")
    if pa.types.is_duration(kind) and kind.unit in ("s", "ms"):
        return pa.duration("us")
    return with_children(kind, _fine)


Failure = tuple[int, str]
"""The number of a row and why it can't be."""


def columns_of(
    rows: Sequence[Any], getters: Iterable[Callable[[Any], Any]], schema: pa.Schema
) -> tuple[list[Array], list[Failure]]:
    """A column for each field of the schema, its values got from the rows.

    Rows with a value that its type can't hold are failures, and have nulls in their place.
    """
    columns: list[Array] = []
    failures: dict[int, str] = {}
    for get, field in zip(getters, schema, strict=True):
        values = list(map(get, rows))
        try:
            columns.append(column_of(values, field.type))
        except CONVERSION_ERRORS:
            columns.append(_one_by_one(values, field, failures))
    return columns, sorted(failures.items())


def _one_by_one(values: list[Any], field: Any, failures: dict[int, str]) -> Array:
    """The slow way, for a column with a value that doesn't fit: which of them?"""
    for row, value in enumerate(values):
        try:
            column_of([value], field.type)
        except CONVERSION_ERRORS as error:
            failures.setdefault(row, f"column {field.name!r}: {_why(error, field.type)}")
            values[row] = None
    return column_of(values, field.type)


def one_line(error: BaseException) -> str:
    """The first line of what an error says, or its class."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _why(error: Exception, kind: Any) -> str:
    """What pyarrow says, but for a number that is too large, of which it says how C calls the type."""
    said = one_line(error)
    if isinstance(error, OverflowError) or "PyLong is too large" in said:
        return f"a number is too large for {kind}"
    return said


class CastError(ValueError):
    """A batch that isn't what its schema promised."""


def batch_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """A user's rows with these columns, null where a row has none. Raises `CastError`, naming the column."""
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        try:
            check_whole(values, field.type)
            columns.append(column_of(values, field.type))
        except CONVERSION_ERRORS as error:
            raise CastError(f"column {field.name!r}: {_why(error, field.type)}") from None
    made = pa.RecordBatch.from_arrays(columns, schema=schema)
    _check_nulls(schema, made)
    return made


def cast_to(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with exactly these columns, in this order, each cast so that no value changes.

    Raises `CastError`, naming the column.
    """
    if batch.schema.equals(schema):
        _check_nulls(schema, batch)
        return batch
    for name in batch.schema.names:
        if schema.get_field_index(name) < 0:
            raise CastError(f"it gave a column {name!r} that its schema lacks; there are {_names(schema)}")
    columns = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            raise CastError(f"it gave no column {field.name!r}; there are {_names(batch.schema)}")
        columns.append(_cast(batch.column(at), field))
    made = pa.RecordBatch.from_arrays(columns, schema=schema)
    _check_nulls(schema, made)
    return made


def _cast(column: Array, field: Any) -> Array:
    if column.type == field.type:
        return column
    try:
        made = column.cast(field.type)
        check_cast(column, made)
        return made
    except CONVERSION_ERRORS as error:
        raise CastError(
            f"column {field.name!r} is {column.type} and its schema says {field.type}: {one_line(error)}"
        ) from None


def _check_nulls(schema: pa.Schema, batch: pa.RecordBatch) -> None:
    for at, field in enumerate(schema):
        if (path := null_in(batch.column(at), field)) is not None:
            raise CastError(f"column {path!r} has nulls, and its schema says NOT NULL")


def _names(schema: pa.Schema) -> str:
    return ", ".join(schema.names) or "none"
