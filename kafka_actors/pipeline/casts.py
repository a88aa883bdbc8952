"""Casts of Python values and Arrow columns to the types of a schema, in which no value changes.

`batch_of` and `columns_of` make columns of Python values, `cast_to` casts a batch. pyarrow's own conversions, though it
calls them safe, change some values silently; `check_values` finds these in Python values, `check_cast` in Arrow columns,
`null_in` finds nulls under NOT NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, time
from functools import lru_cache
from itertools import chain
from math import isfinite
from numbers import Integral, Number, Real
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kafka_actors.base.callables import error_text

from .rows import Array

FLOAT32_MAX = 3.4028234663852886e38


def with_children(kind: Any, of: Callable[[Any], Any]) -> Any:
    """The nested type with `of` applied to the types inside it; any other type as it is."""

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
    """Whether a type is one of Arrow's list types."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: Any) -> bool:
    """Whether a type is one of Arrow's string types that decoders and Spark take."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: Any) -> bool:
    """Whether a type is one of Arrow's binary types that decoders and Spark take."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def as_utc(kind: Any, unit: str = "us") -> Any:
    """The timestamp type with this unit, an instant in UTC: Spark has no other zone, and no other unit than microseconds."""
    return pa.timestamp(unit, tz=None if kind.tz is None else "UTC")


def entries(column: Any) -> tuple[Any, Any]:
    """The keys and the values of all maps in a column."""
    column = column.drop_null() if column.null_count else column
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return column.keys.slice(first, last - first), column.items.slice(first, last - first)


def check_cast(column: Array, made: Array) -> None:
    """Raises `ValueError` where a cast from `column` to `made` has changed a value: a timestamp to a date or to one without a zone, 2 to true,
    a large number to infinity. Rounding of floats is allowed, and fields that a struct lacks are ignored."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    source, wanted = column.type, made.type
    types = pa.types
    if types.is_timestamp(source) and types.is_time(wanted):
        raise ValueError(f"{source} has a date, too")
    if (
        types.is_timestamp(source)
        and source.tz is not None
        and types.is_timestamp(wanted)
        and wanted.tz is None
    ):
        if column.null_count < len(column):
            raise ValueError("its times have a zone")
    elif types.is_timestamp(source) and types.is_date(wanted):
        _same(column, made, "has a time of day")
    elif types.is_boolean(wanted) and (types.is_integer(source) or types.is_floating(source)):
        _same(column, made, "is neither 0 nor 1")
    elif types.is_floating(source) and types.is_floating(wanted) and wanted.bit_width < source.bit_width:
        _check_finite(column, made)
    elif types.is_struct(source) and types.is_struct(wanted):
        if column.null_count:  # the fields of a null struct may hold anything
            column, made = column.drop_null(), made.drop_null()
        for field in wanted:
            if source.get_field_index(field.name) >= 0:
                check_cast(column.field(field.name), made.field(field.name))
    elif is_list(source) and is_list(wanted):
        check_cast(column.flatten(), made.flatten())
    elif types.is_map(source) and types.is_map(wanted):
        for ours, theirs in zip(entries(column), entries(made), strict=True):
            check_cast(ours, theirs)


def _same(column: Array, made: Array, text: str) -> None:
    different = pc.not_equal(made.cast(column.type), column)
    if (at := pc.index(different, True).as_py()) >= 0:
        raise ValueError(f"{column[at]} {text}")


def _check_finite(column: Array, made: Array) -> None:
    lost = pc.and_not(pc.is_inf(made.cast(column.type)), pc.is_inf(column))
    if (at := pc.index(lost, True).as_py()) >= 0:
        raise ValueError(f"{column[at]} is too large")


def check_values(values: Iterable[Any], kind: Any) -> None:
    """Raises `ValueError` or `OverflowError` for a value that pyarrow would change in a column of this type: a fraction in integers, a time
    of day in dates, nanoseconds, a zone in times without one."""
    types = pa.types
    there = [value for value in values if value is not None]
    if types.is_integer(kind):
        for value in there:
            if isinstance(value, Number) and not isinstance(value, Integral) and value != int(value):  # type: ignore[call-overload]  # another type's TypeError is an answer as well
                raise ValueError(f"{value} is no whole number")
    elif types.is_float32(kind):
        for value in there:
            if isinstance(value, Real) and isfinite(value) and abs(float(value)) > FLOAT32_MAX:
                raise ValueError(f"{value} is too large")
    elif types.is_date(kind):
        for value in there:
            if isinstance(value, datetime) and value.time() != time.min:
                raise ValueError(f"{value} has a time of day")
    elif types.is_timestamp(kind) or types.is_time(kind):
        for value in there:
            if kind.unit != "ns" and getattr(value, "nanosecond", 0):  # a Timestamp of pandas
                raise ValueError(f"{value} has nanoseconds")
            if _has_no_zone(kind) and getattr(value, "tzinfo", None) is not None:
                raise ValueError(f"{value} has a time zone")
    elif types.is_struct(kind):
        for field in kind:
            check_values([value.get(field.name) for value in there if isinstance(value, Mapping)], field.type)
    elif types.is_map(kind):
        pairs = [p for value in there for p in (value.items() if isinstance(value, Mapping) else value)]
        check_values([key for key, _ in pairs], kind.key_type)
        check_values([item for _, item in pairs], kind.item_type)
    elif is_list(kind):
        check_values(chain.from_iterable(there), kind.value_type)


def null_in(column: Array, field: Any, path: str = "") -> str | None:
    """The path of the first NOT NULL field that has nulls, at the top or nested; None without one. Arrow allows such columns,
    but Spark's JVM fails on them or reads wrong values."""
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


def _inner_fields(kind: Any) -> list[Any]:
    """The fields inside a type. Keys of maps, which never are null, are none."""
    types = pa.types
    if types.is_struct(kind):
        return [kind.field(at) for at in range(kind.num_fields)]
    if types.is_map(kind):
        return [kind.item_field]
    return [kind.value_field] if is_list(kind) else []


@lru_cache(maxsize=1024)
def _says_not_null(kind: Any) -> bool:
    """Whether a field inside the type is NOT NULL."""
    return any(not field.nullable or _says_not_null(field.type) for field in _inner_fields(kind))


@lru_cache(maxsize=1024)
def _has_no_zone(kind: Any) -> bool:
    """Whether the type is, or holds, one of times without a zone, of which pyarrow makes UTC's silently, or drops the zone."""
    plain = pa.types.is_time(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)
    return plain or any(_has_no_zone(field.type) for field in _inner_fields(kind))


CONVERSION: TypeAlias = tuple[type[Exception], ...]
CONVERSION_ERRORS: CONVERSION = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""Errors that pyarrow raises for a value that a type can't hold."""


def column_of(values: Sequence[Any], kind: Any) -> Array:
    """A column of Python values; a number among times counts the type's own unit. Raises one of `CONVERSION_ERRORS` where a time would
    be rounded."""
    exact = _exact_type(kind)
    if exact == kind:
        return pa.array(values, kind)
    return pa.array([_in_microseconds(value, kind) for value in values], exact).cast(kind)


_MICROSECONDS = {"s": 1_000_000, "ms": 1_000}


def _in_microseconds(value: Any, kind: Any) -> Any:
    """The value with microseconds in place of numbers that count a coarser unit of time."""
    if value is None or isinstance(value, bool):
        return value
    types = pa.types
    if isinstance(value, Integral):
        counts = types.is_timestamp(kind) or types.is_time(kind) or types.is_duration(kind)
        return int(value) * _MICROSECONDS.get(kind.unit, 1) if counts else value
    if types.is_struct(kind) and isinstance(value, Mapping):
        names = [field.name for field in kind if field.name in value]
        return {name: _in_microseconds(value[name], kind.field(name).type) for name in names}
    if types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [
            (_in_microseconds(key, kind.key_type), _in_microseconds(item, kind.item_type))
            for key, item in pairs
        ]
    if is_list(kind):
        return [_in_microseconds(item, kind.value_type) for item in value]
    return value


@lru_cache(maxsize=1024)
def _exact_type(kind: Any) -> Any:
    """The type with microseconds in place of coarser units of time, to which pyarrow silently rounds Python's times."""
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_time32(kind):
        return pa.time64("us")
    if pa.types.is_duration(kind) and kind.unit in ("s", "ms"):
        return pa.duration("us")
    return with_children(kind, _exact_type)


Failure = tuple[int, str]
"""Number of a row, and the reason why it failed."""


def columns_of(
    rows: Sequence[Any], getters: Iterable[Callable[[Any], Any]], schema: pa.Schema
) -> tuple[list[Array], list[Failure]]:
    """A column for each field of the schema, whose values the getters take from the rows; and the failures.

    A row with a value that its type can't hold is a failure, and has a null there.
    """
    columns: list[Array] = []
    failures: dict[int, str] = {}
    for get, field in zip(getters, schema, strict=True):
        values = list(map(get, rows))
        try:
            columns.append(_checked(values, field.type))
        except CONVERSION_ERRORS:
            columns.append(_one_by_one(values, field, failures))
    return columns, sorted(failures.items())


def _checked(values: list[Any], kind: Any) -> Array:
    """A column of decoded values, of which `check_values` has to see only times without a zone."""
    if _has_no_zone(kind):
        check_values(values, kind)
    return column_of(values, kind)


def _one_by_one(values: list[Any], field: Any, failures: dict[int, str]) -> Array:
    """Converts values one by one, for a column in which some don't fit, and adds these to `failures`."""
    for row, value in enumerate(values):
        try:
            _checked([value], field.type)
        except CONVERSION_ERRORS as error:
            failures.setdefault(row, f"column {field.name!r}: {_reason(error, field.type)}")
            values[row] = None
    return column_of(values, field.type)


def one_line(error: BaseException) -> str:
    """The first line of an error's text, or its class name."""
    return error_text(error).strip().partition("\n")[0] or type(error).__name__


def _reason(error: Exception, kind: Any) -> str:
    """The text of a conversion error; for a number that is too large one of our own, as pyarrow's names a type of C."""
    text = one_line(error)
    if isinstance(error, OverflowError) or "PyLong is too large" in text:
        return f"a number is too large for {kind}"
    return text


class CastError(ValueError):
    """Batch that doesn't fit the schema that its stage declares."""


def batch_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of a user's rows, null where a row lacks a column. Raises `CastError`, naming the column."""
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        try:
            check_values(values, field.type)
            columns.append(column_of(values, field.type))
        except CONVERSION_ERRORS as error:
            raise CastError(f"column {field.name!r}: {_reason(error, field.type)}") from None
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


class UnfitValue(NamedTuple):
    """Value that the type of its column can't hold."""

    column: str
    reason: str


def unfit_rows(schema: pa.Schema, batch: pa.RecordBatch) -> dict[int, UnfitValue]:
    """The rows that `cast_to` refuses, by number, each with its first such value. They are found by casts of halves of a column, as Arrow's
    errors name no row."""
    found: dict[int, UnfitValue] = {}
    for field in schema:
        for row, reason in _unfit(pa.schema([field]), batch.select([field.name]), 0):
            found.setdefault(row, UnfitValue(field.name, reason))
    return dict(sorted(found.items()))


def _unfit(schema: pa.Schema, column: pa.RecordBatch, first: int) -> Iterator[Failure]:
    try:
        cast_to(schema, column)
    except CastError as error:
        half = column.num_rows // 2
        if not half:
            yield first, str(error)
            return
        yield from _unfit(schema, column.slice(0, half), first)
        yield from _unfit(schema, column.slice(half), first + half)


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
