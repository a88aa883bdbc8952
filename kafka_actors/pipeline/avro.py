"""Avro: conversion of its schemas to Arrow's, and a decoder of single values (without a container file around them)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import pyarrow as pa

from kafka_actors.errors import ConfigError, kind_of

from .rows import check_names

_PRIMITIVE: dict[str, Any] = {
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
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_MAGIC = 0


def parse_avro(stage: str, schema: Any) -> tuple[dict[str, Any], pa.Schema]:
    """Parses an Avro schema: returns it as a dict, and its columns. Raises `ConfigError`, naming the stage."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise ConfigError(stage, f"schema: is no Avro schema in JSON: {error}") from None
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise ConfigError(stage, f"schema: is {kind_of(schema)}: accepts an Avro schema of type record")
    avro = _without_uuid(schema)
    try:
        schema = pa.schema(_Named().fields(avro))
    except _Refused as refused:
        raise ConfigError(stage, f"schema: {refused}") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(stage, f"schema: is no valid Avro schema: {error!r}") from None
    check_names(stage, schema)
    return avro, schema


def checked_id(stage: str, schema_id: Any) -> int | None:
    """The id of a schema in a registry. Raises `ConfigError` for one that is no unsigned 32-bit number."""
    if schema_id is None or (
        isinstance(schema_id, int) and not isinstance(schema_id, bool) and 0 <= schema_id < 2**32
    ):
        return schema_id
    raise ConfigError(
        stage, f"schema_id is {schema_id!r}, {kind_of(schema_id)}: accepts a number from 0 to 2^32 - 1"
    )


class _Refused(Exception):
    pass


class _Named:
    """Named types of an Avro schema, by full name: a later field may refer to an earlier one's type. `namespace` is that
    of the enclosing type, to which names without a dot belong."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._open: set[str] = set()

    def fields(self, record: Mapping[str, Any], namespace: str = "") -> list[Any]:
        name, inside = _full_name(record, namespace)
        self._open.add(name)
        made = [self._field(str(f["name"]), f["type"], inside) for f in record["fields"]]
        self._open.discard(name)
        return made

    def _field(self, name: str, avro: Any, namespace: str) -> Any:
        nullable = False
        if isinstance(avro, list):
            others = [kind for kind in avro if kind != "null"] or ["null"]
            if len(others) != 1:
                raise _Refused(
                    f"field {name!r} is a union of {len(others)} types: no one Arrow column holds it"
                )
            nullable, avro = len(others) < len(avro), others[0]
        made = self._type(name, avro, namespace)
        return pa.field(name, made, nullable or pa.types.is_null(made))

    def _type(self, name: str, avro: Any, namespace: str) -> Any:
        if isinstance(avro, str):
            if avro in _PRIMITIVE:
                return _PRIMITIVE[avro]
            full, _ = _full_name({"name": avro}, namespace)
            if full in self._open:
                raise _Refused(f"field {name!r} holds itself: no Arrow column can")
            return self._known[full]
        if avro.get("logicalType") == "decimal":
            made = pa.decimal128(avro["precision"], avro.get("scale", 0))
        elif avro.get("logicalType") in _LOGICAL:
            made = _LOGICAL[avro["logicalType"]]
        else:
            made = self._complex(name, avro, namespace)
        if "name" in avro:
            self._known[_full_name(avro, namespace)[0]] = made
        return made

    def _complex(self, name: str, avro: Mapping[str, Any], namespace: str) -> Any:
        kind = avro["type"]
        if kind == "record":
            return pa.struct(self.fields(avro, namespace))
        if kind == "enum":
            return pa.string()
        if kind == "fixed":
            return pa.binary(avro["size"])
        if kind == "array":
            return pa.list_(self._field("element", avro["items"], namespace))
        if kind == "map":
            return pa.map_(pa.string(), self._field("value", avro["values"], namespace))
        return self._type(name, kind, namespace)


def _full_name(avro: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """The full name of a type that is defined within `namespace`, and the namespace of the types inside it."""
    name = str(avro["name"])
    within = name.rpartition(".")[0] if "." in name else str(avro.get("namespace", namespace))
    return name if "." in name or not within else f"{within}.{name}", within


def _without_uuid(avro: Any) -> Any:
    """The schema without the logical type uuid: such a value is written as a string and becomes a string column."""
    if isinstance(avro, list):
        return [_without_uuid(part) for part in avro]
    if not isinstance(avro, Mapping):
        return avro
    return {k: _without_uuid(v) for k, v in avro.items() if not (k == "logicalType" and v == "uuid")}


def avro_reader(
    stage: str, avro: dict[str, Any], names: list[str], schema_id: int | None
) -> tuple[Callable[[bytes], Any], list[Callable[[Any], Any]]]:
    """Makes a function that decodes one value, and a getter for each column of its result.

    With a `schema_id`, values begin with the five bytes of Confluent's framing: a zero and this id. Raises `ConfigError`
    where fastavro is not installed.
    """
    try:
        import fastavro
    except ModuleNotFoundError:
        raise ConfigError(stage, "needs fastavro: pip install 'kafka-actors[avro]'") from None
    try:
        parsed = fastavro.parse_schema(avro)
    except Exception as error:  # fastavro has no one class for what is wrong with a schema
        raise ConfigError(stage, f"schema: is no valid Avro schema: {error}") from None

    def decode(value: bytes) -> Any:
        body = value if schema_id is None else _unframed(value, schema_id)
        stream = io.BytesIO(body)
        try:
            row = fastavro.schemaless_reader(stream, parsed, None)
        except (EOFError, StopIteration):
            raise ValueError("the value ends before the schema does") from None
        left = len(body) - stream.tell()
        if left:
            raise ValueError(f"{left} bytes follow the record that the schema describes")
        return row

    return decode, [itemgetter(name) for name in names]


def _unframed(value: bytes, schema_id: int) -> bytes:
    if len(value) < 5 or value[0] != _MAGIC:
        raise ValueError(
            "the value does not begin with a schema id: leave schema_id out, or check the producer"
        )
    found = int.from_bytes(value[1:5], "big")
    if found != schema_id:
        raise ValueError(f"the value was written with schema id {found}, not {schema_id}")
    return value[5:]
