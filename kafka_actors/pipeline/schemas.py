"""Conversion of users' schemas to Arrow's: from a pyarrow Schema, a DDL string or a msgspec Struct."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec
import pyarrow as pa
from msgspec import inspect as mi

from kafka_actors.errors import ConfigError, kind_of

from .rows import check_names

_SIMPLE: dict[str, Any] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SIZED = {"varchar", "char"}
_DECIMALS = {"decimal", "dec", "numeric"}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|[A-Za-z_0-9]+|[<>(),:])", re.DOTALL)


def parse_ddl(text: str) -> pa.Schema:
    """The Arrow schema of a DDL string, as Spark's `DataFrame.schema` reads it. Names may be in backticks.

    Raises `ConfigError` (option `schema`) with what was expected.
    """
    return pa.schema(_Parser(text).fields(end=None))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def fields(self, end: str | None) -> list[Any]:
        found = [self._field()]
        while self._peek() == ",":
            self._take()
            found.append(self._field())
        if end is None and self._peek() is not None:
            self._fail("a comma or the end")
        if end is not None:
            self._expect(end)
        return found

    def _field(self) -> Any:
        name = self._name()
        if self._peek() == ":":  # Spark accepts it at the top level too
            self._take()
        kind = self._type()
        nullable = True
        if self._word() == "not":
            self._take()
            if self._word() != "null":
                self._fail("NULL after NOT")
            self._take()
            nullable = False
        if self._word() == "comment":
            self._take()
            self._take()
        return pa.field(name, kind, nullable)

    def _type(self) -> Any:
        word = self._word()
        if word is None:
            self._fail("a type")
        self._take()
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word in _SIZED:
            self._numbers()
            return pa.string()
        if word in _DECIMALS:
            return self._decimal()
        if word == "array":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return pa.list_(element)
        if word == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return pa.map_(key, value)
        if word == "struct":
            self._expect("<")
            return pa.struct(self.fields(end=">"))
        self._at -= 1
        self._fail(
            "a type (BOOLEAN, TINYINT … BIGINT, FLOAT, DOUBLE, DECIMAL, STRING, BINARY, DATE, TIMESTAMP, ARRAY, MAP, STRUCT)"
        )

    def _decimal(self) -> Any:
        numbers = self._numbers() if self._peek() == "(" else [10, 0]
        precision, scale = (*numbers, 0)[:2]
        if not 1 <= precision <= 38 or scale > precision:
            raise ConfigError(
                "schema", f"DECIMAL({precision},{scale}): accepts a precision of 1 to 38, a scale up to that"
            )
        return pa.decimal128(precision, scale)

    def _numbers(self) -> list[int]:
        self._expect("(")
        found = [self._number()]
        while self._peek() == ",":
            self._take()
            found.append(self._number())
        self._expect(")")
        return found

    def _number(self) -> int:
        token = self._peek()
        if token is None or not token.isdigit():
            self._fail("a number")
        self._take()
        return int(token)

    def _name(self) -> str:
        token = self._peek()
        if token is None or token in "<>(),:" or token[0] == "'":
            self._fail("a column's name")
        self._take()
        return token[1:-1].replace("``", "`") if token[0] == "`" else token

    def _word(self) -> str | None:
        token = self._peek()
        return None if token is None or token[0] == "`" else token.lower()

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self) -> None:
        self._at += 1

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            self._fail(repr(token))
        self._take()

    def _fail(self, wanted: str) -> NoReturn:
        token = self._peek()
        found = "the end" if token is None else repr(token)
        raise ConfigError("schema", f"{self._text!r}: expected {wanted}, found {found}")


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError("schema", f"{text!r}: can't read it from {text[at:].strip()[:10]!r} on")
        yield match.group(1)
        at = match.end()


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


def as_schema(stage: str, definition: Any) -> pa.Schema:
    """The Arrow schema of an argument `schema`. Raises `ConfigError`, naming the stage."""
    try:
        schema = _as_schema(definition)
    except ConfigError as error:
        raise ConfigError(stage, f"{error.option}: {error.message}") from None
    check_names(stage, schema)
    if not len(schema):
        raise ConfigError(stage, "schema: has no columns")
    return schema


def _as_schema(definition: Any) -> pa.Schema:
    if isinstance(definition, pa.Schema):
        return definition
    if isinstance(definition, str):
        return parse_ddl(definition)
    if is_struct(definition):
        return struct_schema(definition)
    raise ConfigError(
        "schema",
        f"is {definition!r}, {kind_of(definition)}: accepts a pyarrow Schema, a DDL string such as 'id BIGINT, name STRING', "
        "or a msgspec Struct class",
    )


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


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
