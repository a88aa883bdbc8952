"""Avro schemas: parsed into types that know their full names, aliases and logical types, and as Arrow's columns.

Rules are those of the Avro 1.12 specification. A logical type that isn't valid on its type is ignored, as it says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from msgspec import UNSET, Struct, field

from kafka_actors.errors import ConfigError, kind_of

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class Logical(Struct, frozen=True):
    """Logical type; `precision` and `scale` are a decimal's."""

    name: str
    precision: int = 0
    scale: int = 0


class Primitive(Struct, frozen=True):
    name: str
    logical: Logical | None = None


class Fixed(Struct, frozen=True):
    name: str
    size: int
    aliases: tuple[str, ...] = ()
    logical: Logical | None = None


class Enum(Struct, frozen=True):
    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = ()


class Array(Struct):
    items: AvroType


class Map(Struct):
    values: AvroType


class Union(Struct):
    branches: list[AvroType]


class Field(Struct):
    """Field of a record. `default` is in JSON's form, UNSET where there is none."""

    name: str
    type: AvroType
    default: Any = UNSET
    aliases: tuple[str, ...] = ()


class AvroRecord(Struct):
    """AvroRecord; its fields come after it is made, because they may refer to it."""

    name: str
    fields: list[Field] = field(default_factory=list)
    aliases: tuple[str, ...] = ()


AvroType: TypeAlias = Primitive | Fixed | Enum | Array | Map | Union | AvroRecord


def parse(schema: Any, references: Mapping[str, str] | None = None) -> AvroType:
    """Parses a schema: a dict, a list, JSON text, or the name of a primitive. `references` are texts of schemas that define names
    which it uses, by any key, each after those that it uses itself. Raises `ConfigError`."""
    parser = _SchemaParser()
    for text in (references or {}).values():
        parser.parse(_loaded(text), "")
    return parser.parse(_loaded(schema), "")


def _loaded(schema: Any) -> Any:
    if not isinstance(schema, str):
        if not isinstance(schema, (Mapping, list)):
            raise ConfigError("schema", f"is {kind_of(schema)}: accepts an Avro schema, a dict or JSON text")
        return schema
    if schema in PRIMITIVES:
        return schema
    try:
        return json.loads(schema)
    except ValueError as error:
        raise ConfigError("schema", f"is no Avro schema in JSON: {error}") from None


def full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


class _SchemaParser:
    """Names that were defined so far, in all parts of a schema."""

    def __init__(self) -> None:
        self._known: dict[str, AvroType] = {}

    def parse(self, avro: Any, namespace: str) -> AvroType:
        if isinstance(avro, str):
            return self._named(avro, namespace)
        if isinstance(avro, list):
            return self._union(avro, namespace)
        if not isinstance(avro, Mapping):
            raise ConfigError("schema", f"has {avro!r} where a type belongs")
        kind = avro.get("type")
        if isinstance(kind, (Mapping, list)):
            return self.parse(kind, namespace)
        if not isinstance(kind, str):
            raise ConfigError("schema", f"has {_short(avro)}, which has no type")
        if kind in PRIMITIVES:
            return Primitive(kind, _logical(avro, kind))
        return self._complex(kind, avro, namespace)

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        found = self._known.get(full_name(name, namespace)) or self._known.get(name)
        if found is None:
            raise ConfigError("schema", f"names the type {name!r}, which isn't defined before")
        return found

    def _union(self, avro: list[Any], namespace: str) -> AvroType:
        branches = [self.parse(branch, namespace) for branch in avro]
        names = [name_of(branch) for branch in branches]
        if not branches:
            raise ConfigError("schema", "has a union of no types")
        if any(isinstance(branch, Union) for branch in branches):
            raise ConfigError("schema", "has a union directly in a union")
        if len(set(names)) < len(names):
            raise ConfigError("schema", f"has a union with the same type twice: {', '.join(names)}")
        return Union(branches)

    def _complex(self, kind: str, avro: Mapping[str, Any], namespace: str) -> AvroType:
        if kind == "array":
            return Array(self.parse(_part(avro, "items"), namespace))
        if kind == "map":
            return Map(self.parse(_part(avro, "values"), namespace))
        if kind not in ("record", "error", "enum", "fixed"):
            return self._named(kind, namespace)
        name = _part(avro, "name")
        if not isinstance(name, str):
            raise ConfigError("schema", f"has a name that is {kind_of(name)}")
        within = name.rpartition(".")[0] if "." in name else str(avro.get("namespace") or namespace)
        full = full_name(name, within)
        if full in self._known:
            raise ConfigError("schema", f"defines the type {full!r} twice")
        aliases = tuple(full_name(str(alias), within) for alias in avro.get("aliases", ()))
        if kind == "enum":
            return self._keep(full, _enum(full, aliases, avro))
        if kind == "fixed":
            return self._keep(full, _fixed(full, aliases, avro))
        record = AvroRecord(full, aliases=aliases)
        self._known[full] = record
        record.fields = [self._field(full, one, within) for one in _part(avro, "fields")]
        names = [one.name for one in record.fields]
        for one in names:
            if names.count(one) > 1:
                raise ConfigError("schema", f"has the field {one!r} twice in {full}")
        return record

    def _keep(self, name: str, made: AvroType) -> AvroType:
        self._known[name] = made
        return made

    def _field(self, record: str, avro: Any, namespace: str) -> Field:
        if not isinstance(avro, Mapping) or not isinstance(avro.get("name"), str):
            raise ConfigError("schema", f"has a field without a name in {record}")
        kind = self.parse(_part(avro, "type"), namespace)
        return Field(avro["name"], kind, avro.get("default", UNSET), tuple(avro.get("aliases", ())))


def _part(avro: Mapping[str, Any], name: str) -> Any:
    if name not in avro:
        raise ConfigError("schema", f"has {_short(avro)}, which has no {name!r}")
    return avro[name]


def _short(avro: Any) -> str:
    text = json.dumps(avro, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _enum(name: str, aliases: tuple[str, ...], avro: Mapping[str, Any]) -> Enum:
    symbols = tuple(_part(avro, "symbols"))
    default = avro.get("default")
    if default is not None and default not in symbols:
        raise ConfigError("schema", f"has the default {default!r} in {name}, which is none of its symbols")
    if len(set(symbols)) < len(symbols):
        raise ConfigError("schema", f"has a symbol twice in {name}")
    return Enum(name, symbols, default, aliases)


def _fixed(name: str, aliases: tuple[str, ...], avro: Mapping[str, Any]) -> Fixed:
    size = _part(avro, "size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
        raise ConfigError("schema", f"has the size {size!r} in {name}: it must be a number of 0 or more")
    return Fixed(name, size, aliases, _logical(avro, "fixed", size))


_OF_TYPE = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
    "uuid": "string",
}
"""The type that each logical type belongs to; decimal, duration and uuid on fixed have rules of their own."""


def _logical(avro: Mapping[str, Any], kind: str, size: int = 0) -> Logical | None:
    """The logical type, None where there is none, or it isn't valid."""
    name = str(avro.get("logicalType"))
    if name == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(avro, kind, size)
    if kind == "fixed":
        return Logical(name) if (name, size) in (("duration", 12), ("uuid", 16)) else None
    return Logical(name) if _OF_TYPE.get(name) == kind else None


_MOST_DIGITS = 76
"""Digits of Arrow's largest decimal."""


def _decimal(avro: Mapping[str, Any], kind: str, size: int) -> Logical | None:
    precision, scale = avro.get("precision"), avro.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        return None
    if precision <= 0 or (kind == "fixed" and 10**precision > 2 ** (8 * size - 1)):
        return None
    if precision > _MOST_DIGITS:
        raise ConfigError(
            "schema", f"has a decimal with precision {precision}: columns have at most {_MOST_DIGITS}"
        )
    return Logical("decimal", precision, scale)


def name_of(kind: AvroType) -> str:
    """The name of a type in a union: a named type's full name."""
    if isinstance(kind, (Primitive, Fixed, Enum, AvroRecord)):
        return kind.name
    return type(kind).__name__.lower()


# ---------------------------------------------------------------- Arrow

_ARROW: dict[str, Any] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: dict[str, Any] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "timestamp-nanos": pa.timestamp("ns", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
    "duration": pa.month_day_nano_interval(),
    "uuid": pa.string(),
}


def arrow_schema(kind: AvroType) -> pa.Schema:
    """The columns of a record, or one column `value` of any other type. Raises `ConfigError`, naming the field, for a type that
    holds itself."""
    if isinstance(kind, AvroRecord):
        return pa.schema(list(_Arrow().record(kind)))
    return pa.schema([_Arrow().field("value", kind)])


class _Arrow:
    """Arrow types of Avro's. `open` are the records around the present one."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def record(self, record: AvroRecord) -> Any:
        self._open.append(id(record))
        made = pa.struct([self.field(one.name, one.type) for one in record.fields])
        self._open.pop()
        return made

    def field(self, name: str, kind: AvroType) -> Any:
        made = self._type(name, kind)
        return pa.field(name, made, is_nullable(kind))

    def _type(self, name: str, kind: AvroType) -> Any:
        if isinstance(kind, Union):
            members = members_of(kind)
            if len(members) == 1:
                return self._type(name, members[0])
            return pa.struct([self._member(name, number, one) for number, one in enumerate(members)])
        if isinstance(kind, AvroRecord):
            if id(kind) in self._open:
                raise ConfigError(
                    "schema", f"field {name!r} is {kind.name}, which holds itself: no Arrow column can"
                )
            return self.record(kind)
        if isinstance(kind, Array):
            return pa.list_(self.field("element", kind.items))
        if isinstance(kind, Map):
            return pa.map_(pa.string(), self.field("value", kind.values))
        if isinstance(kind, Enum):
            return pa.string()
        return _simple(kind)

    def _member(self, name: str, number: int, kind: AvroType) -> Any:
        return pa.field(f"member{number}", self._type(name, kind), nullable=True)


def _simple(kind: Primitive | Fixed) -> Any:
    logical = kind.logical
    if logical is not None and logical.name == "decimal":
        make: Callable[[int, int], Any] = pa.decimal128 if logical.precision <= 38 else pa.decimal256
        return make(logical.precision, logical.scale)
    if logical is not None:
        return _LOGICAL[logical.name]
    return pa.binary(kind.size) if isinstance(kind, Fixed) else _ARROW[kind.name]


def is_null(kind: AvroType) -> bool:
    return isinstance(kind, Primitive) and kind.name == "null"


def is_nullable(kind: AvroType) -> bool:
    return is_null(kind) or (isinstance(kind, Union) and any(map(is_null, kind.branches)))


def members_of(union: Union) -> list[AvroType]:
    """The types of a union's column: its branches without null; int and long are one long, float and double one double, as Spark's
    `from_avro` has them. More than one make a struct of `member0`, `member1` …"""
    others = [branch for branch in union.branches if not is_null(branch)]
    plain = {one.name for one in others if isinstance(one, Primitive) and one.logical is None}
    if len(others) == 2 and plain in ({"int", "long"}, {"float", "double"}):
        return [Primitive("long" if "long" in plain else "double")]
    return others or [Primitive("null")]
