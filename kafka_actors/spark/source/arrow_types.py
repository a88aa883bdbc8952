"""Arrow's types as Spark has them, and the column `_error` of records that couldn't be processed."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from kafka_actors.base.batches import HEADERS_TYPE, SCHEMA
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.casts import as_utc, is_bytes, is_list, is_text
from kafka_actors.pipeline.fused import FailedRecord

# Before 4.2 PySpark has no argument for the time zone, and uses UTC.
_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


def spark_schema(schema: pa.Schema) -> StructType:
    """Spark's schema for Arrow's. Timestamps without a zone stay so, as is PySpark's default from 4.2 on."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Arrow's schema for Spark's, with instants in UTC."""
    return to_arrow_schema(schema, **_UTC)


def as_spark(stage: str, schema: pa.Schema, *, nullable: bool = False) -> pa.Schema:
    """The schema with the types that Spark has for its columns; `nullable`: without NOT NULL.

    Raises `ConfigError`, naming the stage and the column, for a type that Spark doesn't have.
    """
    return pa.schema([pa.field(f.name, _type(stage, f.name, f.type), nullable or f.nullable) for f in schema])


def _type(stage: str, name: str, kind: Any) -> Any:
    types = pa.types
    if types.is_dictionary(kind):
        return _type(stage, name, kind.value_type)
    if is_text(kind):
        return pa.string()
    if is_bytes(kind):
        return pa.binary()
    if types.is_boolean(kind) or types.is_signed_integer(kind) or types.is_decimal128(kind):
        return kind
    if types.is_float32(kind) or types.is_float64(kind):
        return kind
    if types.is_date(kind):
        return pa.date32()
    if types.is_timestamp(kind) and kind.unit != "ns":
        return as_utc(kind)
    if is_list(kind):
        return pa.list_(_field(stage, "element", kind.value_field))
    if types.is_map(kind):
        return pa.map_(_type(stage, name, kind.key_type), _field(stage, "value", kind.item_field))
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct([_field(stage, f.name, f) for f in fields])
    raise ConfigError(
        stage, f"column {name!r} is {kind}, which Spark doesn't have: cast it in with_columns or map_batches"
    )


def _field(stage: str, name: str, field: Any) -> Any:
    return pa.field(name, _type(stage, name, field.type), field.nullable)


ERROR = "_error"
ERROR_FIELD = pa.field(
    ERROR,
    pa.struct(
        [
            pa.field("stage", pa.string()),
            pa.field("reason", pa.string()),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", HEADERS_TYPE),
            pa.field("topic", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64()),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        ]
    ),
)
"""Column of failed records under "dead_letter": each is a row of its own, whose other columns are null."""


def errors_of(failed: Sequence[FailedRecord], source: pa.RecordBatch) -> Any:
    """The column `_error` of failed records."""
    taken = source.take(pa.array([f.record for f in failed], pa.int32()))
    texts = {"stage": pa.array([f.stage for f in failed]), "reason": pa.array([f.reason for f in failed])}
    return pa.StructArray.from_arrays(
        [texts[f.name] if f.name in texts else taken.column(f.name) for f in ERROR_FIELD.type],
        fields=list(ERROR_FIELD.type),
    )


def records_of(errors: Any) -> pa.RecordBatch:
    """The records in a column `_error`, with the columns of `SCHEMA`."""
    names = {field.name for field in ERROR_FIELD.type}
    columns = [
        pc.struct_field(errors, field.name) if field.name in names else pa.nulls(len(errors), field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
