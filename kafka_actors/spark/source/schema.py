"""Columns of Spark's Kafka source, and the selection that a user's schema makes of them."""

from __future__ import annotations

import difflib

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_actors.errors import ConfigError

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
HEADERS = StructField("headers", ArrayType(_HEADER))
COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
WITH_HEADERS = StructType([*COLUMNS.fields, HEADERS])
_NULLABLE = frozenset({"key", "value", "headers"})


def schema(include_headers: bool) -> StructType:
    """The seven columns, and with `includeHeaders` the column `headers`."""
    return WITH_HEADERS if include_headers else COLUMNS


class SourceColumns(Struct, frozen=True):
    """Columns to return to Spark, in order. `required` are NOT NULL in the user's schema."""

    names: tuple[str, ...]
    required: frozenset[str] = frozenset()

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """These columns of a batch. Spark requires that Arrow's schema equals its own, NOT NULL included."""
        chosen = batch.select(list(self.names))
        if not self.required:
            return chosen
        fields = [field.with_nullable(field.name not in self.required) for field in chosen.schema]
        return pa.RecordBatch.from_arrays(chosen.columns, schema=pa.schema(fields))


def columns_of(wanted: StructType, include_headers: bool) -> SourceColumns:
    """The columns of `wanted`, the user's `.schema(…)` or the source's own, in its order.

    Raises `ConfigError` for an unknown column, one of another type, and a NOT NULL column that may be null.
    """
    offered = {field.name: field for field in schema(include_headers).fields}
    for field in wanted.fields:
        if field.name == "headers" and not include_headers:
            raise ConfigError("includeHeaders", "has to be true where the schema has the column 'headers'")
        if field.name not in offered:
            close = difflib.get_close_matches(field.name, offered, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(offered)}"
            raise ConfigError("schema", f"column {field.name!r} is not one of this source{hint}")
        expected = offered[field.name].dataType
        if field.dataType != expected:
            given, have = field.dataType.simpleString(), expected.simpleString()
            raise ConfigError("schema", f"column {field.name!r} is {given}, but the source has {have}")
        if not field.nullable and field.name in _NULLABLE:
            raise ConfigError("schema", f"column {field.name!r} is NOT NULL, but records may have none")
    return SourceColumns(
        names=tuple(wanted.fieldNames()),
        required=frozenset(field.name for field in wanted.fields if not field.nullable),
    )
