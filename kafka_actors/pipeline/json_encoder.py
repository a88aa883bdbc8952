"""Rows as JSON objects: of all of their columns, or by a JSON Schema of a registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_actors.errors import ConfigError
from kafka_actors.schemas.framing import frame
from kafka_actors.schemas.json_schema import arrow_schema, is_required, loaded
from kafka_actors.schemas.results import (
    NULL_ROW,
    EncodedValues,
    Failure,
    Numbers,
    encoded_column,
    numbers_without,
    struct_of,
)

from .casts import as_utc, entries, is_bytes, is_list, is_text, one_line, with_children
from .rows import Array

_ENCODE = msgspec.json.Encoder(decimal_format="number").encode


def json_values(batch: pa.RecordBatch) -> Array:
    """Encodes each row as a JSON object of its columns. Bytes become base64, times ISO 8601, NaN and infinities null.

    Raises the errors of Arrow and msgspec for values that JSON can't hold.
    """
    columns = [_plain(column).to_pylist(maps_as_pydicts="strict") for column in batch.columns]
    row = _row_of(tuple(batch.schema.names), batch.num_columns)
    return pa.array(list(map(_ENCODE, map(row, *columns))), pa.binary())


def _plain(column: Array) -> Array:
    """The column with types that msgspec encodes. Raises for nanoseconds that are not whole microseconds."""
    plain = _plain_type(column.type)
    return column if plain == column.type else column.cast(plain)


@lru_cache(maxsize=1024)
def _plain_type(kind: Any) -> Any:
    """The type that msgspec encodes. Values of nanosecond types would be objects of pandas; decimals and booleans as keys of a map
    would be encoded without quotes, or not at all. Spark has instants in UTC only, so all engines write them so."""
    types = pa.types
    if types.is_timestamp(kind):
        return as_utc(kind, "us" if kind.unit == "ns" else kind.unit)
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_time64(kind):
        return pa.time64("us")
    if types.is_map(kind) and (types.is_decimal(kind.key_type) or types.is_boolean(kind.key_type)):
        return pa.map_(pa.string(), kind.item_field.with_type(_plain_type(kind.item_type)))
    return with_children(kind, _plain_type)


@lru_cache(maxsize=1024)
def _row_of(names: tuple[str, ...], required: int) -> Callable[..., Any]:
    """A function that makes a row from its values, of which those behind the first `required` ones are left out where they are None: a
    Struct, which is encoded much faster than a dict, or a dict for names that a Struct can't have."""
    fields = [
        (f"f{number}", Any) if number < required else (f"f{number}", Any, None)
        for number in range(len(names))
    ]
    rename = {f"f{number}": name for number, name in enumerate(names)}
    try:
        return msgspec.defstruct("Row", fields, rename=rename, gc=False, omit_defaults=True)
    except ValueError:
        return lambda *values: {
            name: value
            for at, (name, value) in enumerate(zip(names, values, strict=True))
            if at < required or value is not None
        }


class JsonSchemaEncoder:
    """Encodes rows as JSON objects of a JSON Schema, a dict or JSON text.

    Columns are found by the names of the schema's properties. A property without a column is left out, as one that isn't required is where
    its value is null. A column that is no property, or of a type that can't become the property's, raises `ConfigError`, as a required
    property without a column does. A null that the schema doesn't allow, and NaN, are errors of their row. What else a schema says, such as
    `pattern` or `minimum`, isn't checked.

    `references` are texts by the addresses by which the schema refers to them. With `schema_id` each value has a registry's frame in front.
    It can be called with a RecordBatch or a StructArray, for a BinaryArray as long as it; `encode` returns values and failures apart.
    """

    def __init__(
        self, schema: Any, *, references: Mapping[str, str] | None = None, schema_id: int | None = None
    ) -> None:
        self._document = loaded(schema)
        self._frame = b"" if schema_id is None else frame(schema_id)
        made = arrow_schema(self._document, references, marked=True)
        self._row = pa.field("", pa.struct(list(made)), True)

    def __repr__(self) -> str:
        return f"<JsonSchemaEncoder {', '.join(field.name for field in self._row.type)}>"

    def __call__(self, rows: Any) -> Array:
        """The rows as a BinaryArray, null where the row is. Raises `SerializationError` for the first one that can't be encoded, and
        `ConfigError` for columns that can never be."""
        return encoded_column(self, rows)

    def check(self, columns: pa.Schema) -> None:
        """Raises `ConfigError`, naming the path, for columns that can't be written by the schema."""
        _check(self._row.type, pa.struct(list(columns)), "")

    def encode(self, rows: Any) -> EncodedValues:
        """Encodes a RecordBatch or a StructArray. Raises `ConfigError` for columns that can't be written by the schema."""
        array = struct_of(rows)
        _check(self._row.type, array.type, "")
        nulls = np.flatnonzero(~np.asarray(array.is_valid())) if array.null_count else ()
        found: dict[int, str] = {int(row): NULL_ROW for row in nulls}
        _find_failures(_Part(array, self._row, np.arange(len(array), dtype=np.int32), ""), found)
        good = numbers_without(len(array), list(found.items()))
        values, failed = self._texts(array if len(good) == len(array) else array.take(pa.array(good)))
        failures = [*found.items(), *((int(good[at]), reason) for at, reason in failed)]
        return EncodedValues(values, numbers_without(len(array), failures), sorted(failures))

    def _texts(self, rows: Array) -> tuple[Array, list[Failure]]:
        """Values of rows whose nulls are where they may be; and the rows that have a value which JSON can't hold."""
        try:
            return pa.array(self._all(rows), pa.binary()), []
        except Exception:  # of Arrow or msgspec, for one row or several
            values: list[bytes] = []
            failures: list[Failure] = []
            for at in range(len(rows)):
                try:
                    values += self._all(rows.slice(at, 1))
                except Exception as error:
                    failures.append((at, one_line(error)))
            return pa.array(values, pa.binary()), failures

    def _all(self, rows: Array) -> list[bytes]:
        return [self._frame + _ENCODE(row) for row in _objects(rows, self._row)]


# ---------------------------------------------------------------- whether columns fit


def _check(wanted: Any, arrow: Any, path: str) -> None:
    types = pa.types
    if types.is_dictionary(arrow):
        arrow = arrow.value_type
    if types.is_struct(wanted) and types.is_struct(arrow):
        return _check_properties(wanted, arrow, path)
    if types.is_list(wanted) and is_list(arrow):
        return _check(wanted.value_type, arrow.value_type, f"{path}[]")
    if types.is_map(wanted) and types.is_map(arrow) and is_text(arrow.key_type):
        return _check(wanted.item_type, arrow.item_type, f"{path}{{}}")
    if not any(is_wanted(wanted) and any(one(arrow) for one in fitting) for is_wanted, fitting in _FITTING):
        raise ConfigError(
            "schema", f"{path}: the column is {arrow}, the schema has {_WORDS.get(wanted, wanted)}"
        )


def _check_properties(wanted: Any, arrow: Any, path: str) -> None:
    names = [field.name for field in arrow]
    for field in arrow:
        at, where = wanted.get_field_index(field.name), _joined(path, field.name)
        if at < 0:
            raise ConfigError(
                "schema",
                f"{where}: the schema has no such property, so the column would be one that nobody knows",
            )
        if names.count(field.name) > 1:
            raise ConfigError("schema", f"{where}: there is more than one such column")
        _check(wanted.field(at).type, field.type, where)
    for field in wanted:
        if is_required(field) and field.name not in names:
            raise ConfigError(
                "schema", f"{_joined(path, field.name)}: there is no such column, and the schema requires it"
            )


def _with_zone(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


_FITTING: list[tuple[Callable[[Any], bool], tuple[Callable[[Any], bool], ...]]] = [
    (pa.types.is_string, (is_text, pa.types.is_date, pa.types.is_time, pa.types.is_timestamp)),
    (pa.types.is_integer, (pa.types.is_integer,)),
    (pa.types.is_floating, (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)),
    (pa.types.is_boolean, (pa.types.is_boolean,)),
    (pa.types.is_null, (pa.types.is_null,)),
    (pa.types.is_timestamp, (_with_zone,)),
    (pa.types.is_date, (pa.types.is_date,)),
    (pa.types.is_binary, (is_bytes,)),
    (lambda wanted: True, (pa.types.is_null,)),
]
"""Types of columns for each of a schema's: those whose JSON is of the schema's type."""
_WORDS = {
    pa.int64(): "integer",
    pa.float64(): "number",
    pa.timestamp("us", "UTC"): "date-time",
    pa.date32(): "date",
}


# ---------------------------------------------------------------- values


class _Part(NamedTuple):
    """Values of a column, the schema's field, and the number of each value's row."""

    array: Array
    field: Any
    rows: Numbers
    path: str


def _find_failures(part: _Part, found: dict[int, str]) -> None:
    """Adds rows with a null that the schema doesn't allow, and with numbers that JSON doesn't have."""
    array, field, rows, path = part
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count:
        valid = np.asarray(array.is_valid())
        if not field.nullable:
            _add(found, rows[~valid], f"{path}: the value is null, which the schema doesn't allow")
        array, rows = array.drop_null(), rows[valid]
    if pa.types.is_floating(array.type):
        finite = np.asarray(pc.is_finite(array))
        _add(found, rows[~finite], f"{path}: NaN and infinities are no numbers of JSON")
    elif pa.types.is_struct(array.type):
        for name in (one.name for one in array.type):
            child = field.type.field(field.type.get_field_index(name))
            _find_failures(_Part(array.field(name), child, rows, _joined(path, name)), found)
    elif pa.types.is_map(array.type):
        items = entries(array)[1]
        _find_failures(_Part(items, field.type.item_field, _repeated(array, rows), f"{path}{{}}"), found)
    elif is_list(array.type):
        items = array.flatten()
        _find_failures(_Part(items, field.type.value_field, _repeated(array, rows), f"{path}[]"), found)


def _repeated(array: Array, rows: Numbers) -> Numbers:
    """The row of each item in a column of lists or maps without nulls."""
    return np.repeat(rows, _sizes(array))


def _sizes(array: Array) -> Numbers:
    """The number of items in each list or map; of a null one nothing is said."""
    if pa.types.is_fixed_size_list(array.type):
        return np.full(len(array), array.type.list_size, dtype=np.int32)
    return np.diff(np.asarray(array.offsets)).astype(np.int32)


def _add(found: dict[int, str], rows: Numbers, reason: str) -> None:
    for row in rows.tolist():
        found.setdefault(row, reason)


def _objects(array: Array, field: Any) -> list[Any]:
    """The values as msgspec encodes them, column by column."""
    types = pa.types
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_struct(field.type) and types.is_struct(array.type):
        return _structs(array, field.type)
    if types.is_map(field.type) and types.is_map(array.type):
        keys, items = entries(array)
        pairs = zip(keys.to_pylist(), _objects(items, field.type.item_field), strict=True)
        return [None if part is None else _distinct(part) for part in _parts(array, list(pairs))]
    if types.is_list(field.type) and is_list(array.type):
        return _parts(array, _objects(array.flatten(), field.type.value_field))
    found: list[Any] = _plain(array).to_pylist()
    return found


def _structs(array: Array, kind: Any) -> list[Any]:
    given = [kind.field(kind.get_field_index(one.name)) for one in array.type]
    ordered = sorted(given, key=lambda one: not is_required(one))
    row = _row_of(tuple(one.name for one in ordered), sum(map(is_required, ordered)))
    if not ordered:
        return [row() for _ in range(len(array))]
    made = list(map(row, *(_objects(array.field(one.name), one) for one in ordered)))
    return (
        made
        if not array.null_count
        else [
            value if there else None for value, there in zip(made, array.is_valid().to_pylist(), strict=True)
        ]
    )


def _parts(array: Array, items: list[Any]) -> list[Any]:
    """The items of each list or map; None for a null one, which has none."""
    sizes = _sizes(array)
    valid = np.asarray(array.is_valid())
    made, at = [], 0
    for size, there in zip(np.where(valid, sizes, 0).tolist(), valid.tolist(), strict=True):
        made.append(items[at : at + size] if there else None)
        at += size
    return made


def _distinct(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a map has the same key twice")
    return made


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
