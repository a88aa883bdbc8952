"""Conversion of users' schemas to Arrow's: from a pyarrow Schema, a DDL string or a msgspec Struct."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from msgspec import inspect as mi

from kafka_actors.errors import ConfigError, kind_of

from .ddl import parse_ddl
from .rows import check_names

_PLAIN: dict[type[mi.Type], Any] = {
    mi.BoolType: pa.bool_(),
    mi.IntType: pa.int64(),
    mi.FloatType: pa.float64(),
    mi.StrType: pa.string(),
    mi.BytesType: pa.binary(),
    mi.ByteArrayType: pa.binary(),
    mi.DateTimeType: pa.timestamp("us", tz="UTC"),
    mi.DateType: pa.date32(),
    mi.TimeType: pa.time64("us"),
    mi.DecimalType: pa.decimal128(38, 18),
    mi.UUIDType: pa.string(),
    mi.NoneType: pa.null(),
}
LISTS = (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType, mi.CollectionType)
RECORDS = (mi.StructType, mi.TypedDictType, mi.DataclassType, mi.NamedTupleType)


def as_schema(stage: str, given: Any) -> pa.Schema:
    """The Arrow schema of an argument `schema`. Raises `ConfigError`, naming the stage."""
    try:
        schema = _as_schema(given)
    except ConfigError as error:
        raise ConfigError(stage, f"{error.option}: {error.message}") from None
    check_names(stage, schema)
    if not len(schema):
        raise ConfigError(stage, "schema: has no columns")
    return schema


def _as_schema(given: Any) -> pa.Schema:
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, str):
        return parse_ddl(given)
    if is_struct(given):
        return struct_schema(given)
    raise ConfigError(
        "schema",
        f"is {given!r}, {kind_of(given)}: accepts a pyarrow Schema, a DDL string such as 'id BIGINT, name STRING', "
        "or a msgspec Struct class",
    )


def is_struct(given: Any) -> bool:
    return isinstance(given, type) and issubclass(given, msgspec.Struct)


def struct_schema(struct: type[msgspec.Struct]) -> pa.Schema:
    """The columns of a msgspec Struct, named as its attributes. Raises `ConfigError` for types that no single Arrow column
    holds."""
    info = mi.type_info(struct)
    assert isinstance(info, mi.StructType)
    return pa.schema([_attribute(f, (struct,)) for f in info.fields])


def plain_values(struct: type[msgspec.Struct]) -> bool:
    """Whether Arrow takes the attributes' values as they are: no objects, enums or uuids among them."""
    info = mi.type_info(struct)
    assert isinstance(info, mi.StructType)
    plain = _PLAIN.keys() - {mi.UUIDType}
    return all(type(optional(f.type)[0]) in plain and not may_lack(f) for f in info.fields)


def may_lack(field: mi.Field) -> bool:
    """Whether the value may be missing: UNSET in a Struct, no such key in a TypedDict."""
    return not field.required and field.default is field.default_factory is msgspec.NODEFAULT


def _attribute(field: mi.Field, inside: tuple[Any, ...]) -> Any:
    made = _field(field.name, field.type, inside)
    return made.with_nullable(True) if may_lack(field) else made


def _field(name: str, kind: mi.Type, inside: tuple[Any, ...]) -> Any:
    kind, nullable = optional(kind)
    return pa.field(name, _arrow(name, kind, inside), nullable)


def optional(kind: mi.Type) -> tuple[mi.Type, bool]:
    """The type without None, and whether None was part of it."""
    if isinstance(kind, mi.Metadata):
        return optional(kind.type)
    if not isinstance(kind, mi.UnionType):
        return kind, isinstance(kind, mi.NoneType)
    others = [t for t in kind.types if not isinstance(t, mi.NoneType)]
    return (others[0], kind.includes_none) if len(others) == 1 else (kind, kind.includes_none)


def _arrow(name: str, kind: mi.Type, inside: tuple[Any, ...]) -> Any:
    if type(kind) in _PLAIN:
        return _PLAIN[type(kind)]
    if isinstance(kind, mi.EnumType):
        return _of_values(name, [member.value for member in kind.cls])
    if isinstance(kind, mi.LiteralType):
        return _of_values(name, list(kind.values))
    if isinstance(kind, LISTS):
        item = kind.item_type
        return pa.list_(_field("element", item, inside))
    if isinstance(kind, mi.DictType):
        key, _ = optional(kind.key_type)
        value = _field("value", kind.value_type, inside)
        return pa.map_(_arrow(f"{name} (key)", key, inside), value)
    if isinstance(kind, RECORDS):
        if kind.cls in inside:
            raise ConfigError("schema", f"field {name!r} holds itself: no Arrow column can")
        inner = (*inside, kind.cls)
        return pa.struct([_attribute(f, inner) for f in kind.fields])
    raise ConfigError(
        "schema", f"field {name!r} is {_called(kind)}: no one Arrow column holds it; give a pyarrow Schema"
    )


def _of_values(name: str, values: list[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return pa.string()
    if all(isinstance(value, int) for value in values):
        return pa.int64()
    raise ConfigError("schema", f"field {name!r} mixes strings and numbers: give a pyarrow Schema")


def _called(kind: mi.Type) -> str:
    return type(kind).__name__.removesuffix("Type").lower()
