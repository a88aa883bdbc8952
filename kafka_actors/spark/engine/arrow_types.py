"""Arrow's types as Spark has them: it wants the batches of a Python data source to equal its own schema exactly."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.nested_types import is_list

# Before 4.2 PySpark has no time zone to name, and UTC is what it takes.
_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns as Spark's. Times without a zone stay such, which PySpark has as its default from 4.2 on."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as Arrow's, instants in UTC."""
    return to_arrow_schema(schema, **_UTC)


def as_spark(stage: str, schema: pa.Schema, *, nullable: bool = False) -> pa.Schema:
    """The schema with the types that Spark gives such columns; `nullable`: all of them, whatever they were.

    Raises `ConfigError`, naming the stage and the column, for a type that Spark has not.
    """
    return pa.schema([pa.field(f.name, _type(stage, f.name, f.type), nullable or f.nullable) for f in schema])


def _type(stage: str, name: str, kind: Any) -> Any:
    types = pa.types
    if types.is_dictionary(kind):
        return _type(stage, name, kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_boolean(kind) or types.is_signed_integer(kind) or types.is_decimal128(kind):
        return kind
    if types.is_float32(kind) or types.is_float64(kind):
        return kind
    if types.is_date(kind):
        return pa.date32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if is_list(kind):
        return pa.list_(_field(stage, "element", kind.value_field))
    if types.is_map(kind):
        return pa.map_(_type(stage, name, kind.key_type), _field(stage, "value", kind.item_field))
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct([_field(stage, f.name, f) for f in fields])
    raise ConfigError(
        stage, f"column {name!r} is {kind}, which Spark has not: cast it in with_columns or map_batches"
    )


def _field(stage: str, name: str, field: Any) -> Any:
    return pa.field(name, _type(stage, name, field.type), field.nullable)
