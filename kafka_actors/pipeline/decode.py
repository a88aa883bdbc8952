"""Decoders: each record becomes one row or one error, and never takes the place of another record's row. For JSON also the types
into which msgspec decodes rows for an Arrow schema, and the getters that take columns out of them.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta
from msgspec import inspect as mi

from kafka_actors.base import decoders
from kafka_actors.errors import ConfigError
from kafka_actors.schemas.results import Array, DecodedRows, Numbers

from .casts import FLOAT32_MAX, columns_of, is_bytes, is_list, is_text, one_line
from .schemas import LISTS, RECORDS, optional, plain_values

_BOM = b"\xef\xbb\xbf"


Decode = Callable[[Array], DecodedRows]
"""Decodes an Arrow array of type binary."""


def json_decoder(
    schema: pa.Schema, row: type[msgspec.Struct], getters: Sequence[Callable[[Any], Any]]
) -> Decode:
    """Decodes each value by itself into `row`; `getters` take the columns out of the rows.

    This was measured to be faster than pyarrow's JSON reader over joined values, which besides can't tell rows apart.
    """
    decode = decoders.json(row).decode
    return lambda values: _each(values.to_pylist(), decode, getters, schema, _json_reason)


def json_rows(schema: pa.Schema, decode: Callable[[bytes], Any], values: Sequence[bytes]) -> DecodedRows:
    """Decodes values by `decode`, which returns rows of `row_type(schema)`, or raises for a wrong one."""
    return _each(values, decode, row_getters(schema), schema, _json_reason)


def _each(
    values: Sequence[bytes | None],
    decode: Callable[[bytes], Any],
    getters: Sequence[Callable[[Any], Any]],
    schema: pa.Schema,
    reason: Callable[[bytes, Exception], str],
) -> DecodedRows:
    rows: list[Any] = []
    failures: dict[int, str] = {}
    add = rows.append
    for number, value in enumerate(values):
        try:
            add(decode(value))  # type: ignore[arg-type]  # None raises as well
        except Exception as error:  # any error is one of this record
            failures[number] = _NULL if value is None else reason(value, error)
    numbers = _others(len(values), failures)
    columns, unfit = columns_of(rows, getters, schema)
    if unfit:
        failures |= {int(numbers[row]): why for row, why in unfit}
        kept = np.delete(np.arange(len(rows)), [row for row, _ in unfit])
        columns = [column.take(pa.array(kept)) for column in columns]
        numbers = numbers[kept]
    return DecodedRows(pa.RecordBatch.from_arrays(columns, schema=schema), numbers, sorted(failures.items()))


_NULL = "the value is null (a tombstone): drop those first with .filter(pc.field('value').is_valid())"


def _others(count: int, failures: dict[int, str]) -> Numbers:
    numbers = np.arange(count, dtype=np.int32)
    return np.delete(numbers, list(failures)) if failures else numbers


def _json_reason(value: bytes, error: Exception) -> str:
    if not value.strip():
        return "the value is empty" if not value else "the value is only whitespace"
    if value.startswith(_BOM):
        return "the value starts with a byte order mark, which JSON has not"
    if not isinstance(error, msgspec.ValidationError) and (why := _not_utf8(value)):
        return why
    return _reason(value, error)


def _not_utf8(value: bytes) -> str:
    """Reason for a value that is not UTF-8, which versions of msgspec say differently; empty for one that is."""
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"the value is not UTF-8: byte 0x{value[error.start]:02x} at position {error.start}"
    return ""


def _reason(value: bytes, error: Exception) -> str:
    return one_line(error)


_AS_THEY_ARE = (bytes, bytearray, datetime.datetime, datetime.date, datetime.time, decimal.Decimal)

Make = Callable[[Any], Any]


def getters_of(struct: type[msgspec.Struct]) -> list[Make]:
    """A getter for each attribute of a Struct, whose values are plain: no objects, enums or uuids, which Arrow doesn't take."""
    if plain_values(struct):
        return [attrgetter(name) for name in struct.__struct_fields__]
    info = mi.type_info(struct)
    assert isinstance(info, mi.StructType)
    return [_getter(field) for field in info.fields]


def builtin_getter(attribute: str) -> Make:
    """Makes a getter of an attribute's value as it is in JSON, with dicts for objects."""
    get = attrgetter(attribute)
    return lambda row: _builtin(get(row))


def _getter(field: mi.Field) -> Make:
    get, make = attrgetter(field.name), _maker(field.type)
    return lambda row: make(get(row))


def _maker(kind: mi.Type) -> Make:
    """Makes a converter to plain values. msgspec's own is much faster, but gives a Struct its form in JSON, which may have
    other names, be a list, or lack attributes with default values."""
    kind, _ = optional(kind)
    made = _by_attributes(kind) if _differs(kind) else _builtin
    return lambda value: None if value is None or value is msgspec.UNSET else made(value)


def _builtin(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=_AS_THEY_ARE)


def _differs(kind: mi.Type) -> bool:
    """Whether the type holds a Struct whose form in JSON differs from its attributes."""
    kind, _ = optional(kind)
    if isinstance(kind, mi.StructType):
        config = kind.cls.__struct_config__
        if kind.array_like or config.omit_defaults or any(f.name != f.encode_name for f in kind.fields):
            return True
    return any(map(_differs, _inside(kind)))


def _inside(kind: mi.Type) -> list[mi.Type]:
    if isinstance(kind, LISTS):
        return [kind.item_type]
    if isinstance(kind, mi.DictType):
        return [kind.key_type, kind.value_type]
    return [field.type for field in kind.fields] if isinstance(kind, RECORDS) else []


def _by_attributes(kind: mi.Type) -> Make:
    if isinstance(kind, LISTS):
        item = _maker(kind.item_type)
        return lambda values: [item(value) for value in values]
    if isinstance(kind, mi.DictType):
        key, of_key = _maker(kind.key_type), _maker(kind.value_type)
        return lambda pairs: {key(name): of_key(value) for name, value in pairs.items()}
    assert isinstance(kind, RECORDS)
    makers = [(field.name, _maker(field.type)) for field in kind.fields]
    if isinstance(kind, mi.TypedDictType):
        return lambda value: {name: make(value.get(name)) for name, make in makers}
    return lambda value: {name: make(getattr(value, name)) for name, make in makers}


def row_type(stage: str, schema: pa.Schema) -> type[msgspec.Struct]:
    """Makes a Struct with attributes f0, f1, … for the columns, which have the columns' names in JSON.

    A nullable column may be missing or null; others are errors of the record. Raises `ConfigError`, naming the
    stage, for a type that JSON can't give.
    """
    return _struct(stage, "Row", [(f.name, _kind(stage, f.name, f.type), f.nullable) for f in schema])


def row_getters(schema: pa.Schema) -> list[Callable[[Any], Any]]:
    """A getter for each column of a row of `row_type`, with dicts for structs."""
    return [
        builtin_getter(f"f{number}") if _holds_struct(field.type) else attrgetter(f"f{number}")
        for number, field in enumerate(schema)
    ]


def _struct(stage: str, class_name: str, fields: list[tuple[str, Any, bool]]) -> type[msgspec.Struct]:
    """Makes a Struct for JSON; a field is its name, its type and whether it may be missing or null."""
    attributes: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        (f"f{number}", kind | None, None) if nullable else (f"f{number}", kind)
        for number, (_, kind, nullable) in enumerate(fields)
    ]
    names = {f"f{number}": name for number, (name, _, _) in enumerate(fields)}
    try:
        return msgspec.defstruct(class_name, attributes, rename=names, kw_only=True, gc=False)
    except ValueError as error:
        raise ConfigError(stage, f"schema: {error}") from None


def _kind(stage: str, name: str, arrow: Any) -> Any:
    if pa.types.is_dictionary(arrow):
        return _kind(stage, name, arrow.value_type)
    kind = _number(arrow) or _plain(arrow)
    if kind is not None:
        return kind
    if is_list(arrow):
        return list[_item(stage, name, arrow.value_field)]  # type: ignore[misc]  # made of data
    if pa.types.is_map(arrow):
        if not is_text(arrow.key_type):
            raise ConfigError(
                stage, f"column {name!r} is {arrow}: keys of JSON objects are strings; make them STRING"
            )
        return dict[str, _item(stage, name, arrow.item_field)]  # type: ignore[misc]  # made of data
    if pa.types.is_struct(arrow):
        return _nested(stage, name, arrow)
    raise ConfigError(
        stage, f"column {name!r} is {arrow}, which JSON can't give: decode it as text or number, then cast it"
    )


def _item(stage: str, name: str, field: Any) -> Any:
    kind = _kind(stage, name, field.type)
    return kind | None if field.nullable else kind


def _nested(stage: str, name: str, arrow: Any) -> Any:
    """A TypedDict for a struct, as Arrow makes structs of dicts; a Struct where a name isn't ASCII, which msgspec doesn't
    find in a TypedDict."""
    inner = [arrow.field(at) for at in range(arrow.num_fields)]
    fields = [(f.name, _kind(stage, f"{name}.{f.name}", f.type), f.nullable) for f in inner]
    if not _is_ascii(arrow):
        return _struct(stage, "Inner", fields)
    keys = {field: NotRequired[kind | None] if nullable else kind for field, kind, nullable in fields}
    return TypedDict(name, keys)  # type: ignore[operator]  # made of data


def _is_ascii(struct: Any) -> bool:
    return all(struct.field(at).name.isascii() for at in range(struct.num_fields))


def _holds_struct(arrow: Any) -> bool:
    """Whether values decoded for a type hold objects, which have to become dicts."""
    types = pa.types
    if types.is_struct(arrow):
        inner = [arrow.field(at).type for at in range(arrow.num_fields)]
        return not _is_ascii(arrow) or any(map(_holds_struct, inner))
    if types.is_map(arrow):
        return _holds_struct(arrow.item_type)
    return is_list(arrow) and _holds_struct(arrow.value_type)


def _number(arrow: Any) -> Any:
    """The type for numbers, with bounds where msgspec can check them; other overflows are found when the column is made."""
    if pa.types.is_integer(arrow):
        bits = arrow.bit_width
        if pa.types.is_unsigned_integer(arrow):
            return Annotated[int, Meta(ge=0, le=2**bits - 1)] if bits < 64 else Annotated[int, Meta(ge=0)]
        return Annotated[int, Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)] if bits < 64 else int
    if pa.types.is_float64(arrow):
        return float
    if pa.types.is_float32(arrow):
        return Annotated[float, Meta(ge=-FLOAT32_MAX, le=FLOAT32_MAX)]
    if pa.types.is_decimal(arrow):
        return decimal.Decimal
    return None


def _plain(arrow: Any) -> Any:
    types = pa.types
    if is_text(arrow):
        return str
    if types.is_boolean(arrow):
        return bool
    if is_bytes(arrow):
        return bytes  # base64 in JSON
    if types.is_timestamp(arrow):
        return datetime.datetime
    if types.is_date(arrow):
        return datetime.date
    if types.is_time(arrow):
        return datetime.time
    return None
