"""JSON Schema as Arrow's columns: types, formats, required properties, references; what no column can hold is refused by its path.

Drafts from 4 on mean the same by what is read here. A property that isn't required, or may be null, is a nullable column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from kafka_actors.base.paths import schema_text
from kafka_actors.errors import ConfigError, kind_of

_SCALARS: dict[str, Any] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "null": pa.null(),
}
_FORMATS: dict[str, Any] = {
    "date-time": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}
_CHOICES = ("oneOf", "anyOf")


def loaded(schema: Any) -> dict[str, Any]:
    """A schema as a dict, from a dict, JSON text, or the path of a `.json` file. Raises `ConfigError`."""
    schema = schema_text(schema, ".json")
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise ConfigError("schema", f"is no JSON Schema: {error}") from None
    if not isinstance(schema, Mapping):
        raise ConfigError(
            "schema", f"is {kind_of(schema)}: accepts a JSON Schema of an object, a dict or JSON text"
        )
    return dict(schema)


def arrow_schema(
    schema: Any, references: Mapping[str, str] | None = None, *, marked: bool = False
) -> pa.Schema:
    """The columns of a schema, which has to be of an object with properties. `references` are texts by the addresses by which it refers to
    them. `marked`: fields say whether they are required, for `is_required`. Raises `ConfigError`, naming the path."""
    return _JsonSchemaReader(schema, references or {}, marked).columns()


_REQUIRED = {b"required": b"1"}


def is_required(field: Any) -> bool:
    """Whether a field of marked columns has to be there, though it may be null."""
    return bool(field.metadata == _REQUIRED)


class _SchemaPart(NamedTuple):
    """A part of a schema, and the document in which its references are looked up."""

    schema: Any
    document: dict[str, Any]


class _JsonSchemaReader:
    """Reads one schema. `_open` are the references around the present part."""

    def __init__(self, schema: Any, references: Mapping[str, str], marked: bool) -> None:
        self._marked = marked
        self._main = loaded(schema)
        self._others = {name: loaded(text) for name, text in references.items()}
        self._open: list[int] = []

    def columns(self) -> pa.Schema:
        found = self._type(_SchemaPart(self._main, self._main), "")
        if not pa.types.is_struct(found.type):
            raise ConfigError("schema", f"is of {found.type}: accepts one of an object with properties")
        return pa.schema(list(found.type))

    def _type(self, place: _SchemaPart, path: str) -> Any:
        """A field without a name: the type, and whether null is allowed."""
        schema = place.schema
        if schema is True or schema == {}:
            raise _refused(path, "allows any value")
        if not isinstance(schema, Mapping):
            raise _refused(path, f"is {kind_of(schema)} and no schema")
        if "$ref" in schema:
            return self._referred(str(schema["$ref"]), place, path)
        for name in _CHOICES:
            if name in schema:
                return self._choice(schema[name], place, path, name)
        if "allOf" in schema:
            return self._merged(schema, place, path)
        return self._of_kind(schema, place, path)

    def _of_kind(self, schema: Mapping[str, Any], place: _SchemaPart, path: str) -> Any:
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else list(kinds or _kinds_of_values(schema))
        others = [kind for kind in kinds if kind != "null"] or ["null"]
        if set(others) == {"integer", "number"}:
            others = ["number"]
        if len(others) > 1:
            raise _refused(path, f"is {' or '.join(others)}: no one column holds it")
        if not kinds:
            raise _refused(path, "has no type")
        return pa.field("", self._made(others[0], schema, place, path), "null" in kinds)

    def _made(self, kind: str, schema: Mapping[str, Any], place: _SchemaPart, path: str) -> Any:
        if kind == "array":
            items = schema.get("items")
            if not isinstance(items, Mapping):
                raise _refused(path, "is an array whose items have no one schema")
            return pa.list_(self._type(place._replace(schema=items), f"{path}[]").with_name("element"))
        if kind == "object":
            return self._object(schema, place, path)
        if kind == "string" and schema.get("contentEncoding") == "base64":
            return pa.binary()
        if kind == "string" and schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        if kind not in _SCALARS:
            raise _refused(path, f"is of type {kind!r}, which JSON Schema doesn't have")
        return _SCALARS[kind]

    def _object(self, schema: Mapping[str, Any], place: _SchemaPart, path: str) -> Any:
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if properties:
            required = set(schema.get("required") or ())
            return pa.struct(
                [self._property(name, one, name in required, place, path) for name, one in properties.items()]
            )
        if isinstance(more, Mapping) and more:
            value = self._type(place._replace(schema=more), f"{path}{{}}")
            return pa.map_(pa.string(), value.with_name("value"))
        raise _refused(path, "is an object without properties")

    def _property(self, name: str, schema: Any, required: bool, place: _SchemaPart, path: str) -> Any:
        made = self._type(place._replace(schema=schema), f"{path}.{name}" if path else name)
        named = made.with_name(name).with_nullable(made.nullable or not required)
        return named.with_metadata(_REQUIRED if required and self._marked else None)

    # ------------------------------------------------------------ parts of parts

    def _choice(self, choices: Any, place: _SchemaPart, path: str, name: str) -> Any:
        found = [self._type(place._replace(schema=one), path) for one in choices]
        types = [one for one in found if not pa.types.is_null(one.type)]
        if len(types) != 1:
            raise _refused(path, f"is {name} of {len(types)} types: no one column holds it")
        return types[0].with_nullable(types[0].nullable or len(types) < len(found))

    def _merged(self, schema: Mapping[str, Any], place: _SchemaPart, path: str) -> Any:
        """Parts that hold all at once: the properties of all of them."""
        rest = {name: value for name, value in schema.items() if name != "allOf"}
        parts = [*schema["allOf"], *([rest] if "properties" in rest or "type" in rest else [])]
        found = [self._type(place._replace(schema=part), path) for part in parts if part not in ({}, True)]
        fields: dict[str, Any] = {}
        for one in found:
            if not pa.types.is_struct(one.type):
                if len(found) == 1:
                    return one
                raise _refused(path, f"is allOf of {len(found)} parts, which are not all objects")
            for field in one.type:
                before = fields.get(field.name)
                if before is not None and before.type != field.type:
                    raise _refused(f"{path}.{field.name}" if path else field.name, "has two types in allOf")
                fields[field.name] = field if before is None else _both(before, field)
        return pa.field("", pa.struct(list(fields.values())), all(one.nullable for one in found))

    def _referred(self, name: str, place: _SchemaPart, path: str) -> Any:
        address, _, pointer = name.partition("#")
        document = self._others.get(address) if address else place.document
        if document is None:
            raise _refused(path, f"refers to {address}, which isn't there")
        target: Any = document
        for part in filter(None, pointer.split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, Mapping) or key not in target:
                raise _refused(path, f"refers to {name}, which isn't there")
            target = target[key]
        if id(target) in self._open:
            raise _refused(path, f"refers to {name}, which holds itself: no Arrow column can")
        self._open.append(id(target))
        made = self._type(_SchemaPart(target, document), path)
        self._open.pop()
        return made


def _both(one: Any, other: Any) -> Any:
    """A property of two objects that hold at once."""
    made = one.with_nullable(one.nullable and other.nullable)
    return made.with_metadata(one.metadata or other.metadata)


def _kinds_of_values(schema: Mapping[str, Any]) -> list[str]:
    """Types of the values of `enum` or `const`; of a schema with properties, an object."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    kinds = ["null" if value is None else _KINDS.get(type(value), "object") for value in values]
    return list(dict.fromkeys(kinds)) or (["object"] if "properties" in schema else [])


_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}


def _refused(path: str, reason: str) -> ConfigError:
    return ConfigError("schema", f"{path or 'the value'} {reason}")
