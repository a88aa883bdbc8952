"""What msgspec is told to decode for an Arrow schema: exactly its columns, each of its type."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import pyarrow as pa
from msgspec import Meta

from kafka_actors.errors import ConfigError

from .nested_types import is_list
from .struct_values import builtin_getter

FLOAT32_MAX = 3.4028234663852886e38


def row_type(stage: str, schema: pa.Schema) -> type[msgspec.Struct]:
    """A Struct with the attributes f0, f1, … for the columns, under their names in JSON.

    A nullable column may be missing or null; others are errors of the record. Raises `ConfigError`, naming the
    stage, for a type that JSON can't give.
    """
    return _struct(stage, "Row", [(f.name, _kind(stage, f.name, f.type), f.nullable) for f in schema])


def row_getters(schema: pa.Schema) -> list[Callable[[Any], Any]]:
    """What gets the columns out of a row of `row_type`, with dicts for structs."""
    return [
        builtin_getter(f"f{number}") if _holds_struct(field.type) else attrgetter(f"f{number}")
        for number, field in enumerate(schema)
    ]


def _struct(stage: str, called: str, fields: list[tuple[str, Any, bool]]) -> type[msgspec.Struct]:
    """Of names in JSON, with types, and whether they may be missing or null."""
    given: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        (f"f{number}", kind | None, None) if nullable else (f"f{number}", kind)
        for number, (_, kind, nullable) in enumerate(fields)
    ]
    names = {f"f{number}": name for number, (name, _, _) in enumerate(fields)}
    try:
        return msgspec.defstruct(called, given, rename=names, kw_only=True, gc=False)
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
        if not _is_text(arrow.key_type):
            raise ConfigError(
                stage, f"column {name!r} is {arrow}: in JSON the keys of a map are texts; make them STRING"
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
    """A TypedDict: Arrow makes structs of dicts. But msgspec finds no key of one that isn't ASCII."""
    inner = [arrow.field(at) for at in range(arrow.num_fields)]
    fields = [(f.name, _kind(stage, f"{name}.{f.name}", f.type), f.nullable) for f in inner]
    if not _is_ascii(arrow):
        return _struct(stage, "Inner", fields)
    keys = {field: NotRequired[kind | None] if nullable else kind for field, kind, nullable in fields}
    return TypedDict(name, keys)  # type: ignore[operator]  # made of data


def _is_ascii(struct: Any) -> bool:
    return all(struct.field(at).name.isascii() for at in range(struct.num_fields))


def _holds_struct(arrow: Any) -> bool:
    """Whether what is decoded for a type holds objects, which have to become dicts."""
    types = pa.types
    if types.is_struct(arrow):
        inner = [arrow.field(at).type for at in range(arrow.num_fields)]
        return not _is_ascii(arrow) or any(map(_holds_struct, inner))
    if types.is_map(arrow):
        return _holds_struct(arrow.item_type)
    return is_list(arrow) and _holds_struct(arrow.value_type)


def _number(arrow: Any) -> Any:
    """Bounds as far as msgspec checks them; what is left is found when the column is made."""
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
    if _is_text(arrow):
        return str
    if types.is_boolean(arrow):
        return bool
    if types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_fixed_size_binary(arrow):
        return bytes  # base64 in JSON
    if types.is_timestamp(arrow):
        return datetime.datetime
    if types.is_date(arrow):
        return datetime.date
    if types.is_time(arrow):
        return datetime.time
    return None


def _is_text(arrow: Any) -> bool:
    return bool(pa.types.is_string(arrow) or pa.types.is_large_string(arrow))
