"""Columns of Spark's Kafka source, the selection that a user's schema makes of them, and the options of catalog tables.

For a table, `CREATE TABLE orders USING kafka_actors OPTIONS (…)`, Spark passes the options when it asks for the schema, but
not when the table is read (as tried with 4.1 to 4.3). It does pass back the metadata of the schema's columns, so the
options are stored there.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Container, Mapping
from typing import ClassVar

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

from kafka_actors.config.java import login_of
from kafka_actors.config.references import refers
from kafka_actors.config.security import SECRETS
from kafka_actors.errors import ConfigError, UsageError

from .data_source_options import KAFKA
from .decode_options import SECRETS as REGISTRYS_SECRETS

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

    schema: ClassVar[None] = None
    """Values aren't decoded."""

    def reading_by(self, read_by: object) -> SourceColumns:
        return self

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
    if "headers" in wanted.fieldNames() and not include_headers:
        raise ConfigError("includeHeaders", "has to be true where the schema has the column 'headers'")
    return selected(wanted, schema(include_headers), _NULLABLE)


def selected(wanted: StructType, available: StructType, nullable: Container[str]) -> SourceColumns:
    """The columns of `wanted`, in its order; of the `available` ones those in `nullable` may be null. Raises as `columns_of`."""
    offered = {field.name: field for field in available.fields}
    for field in wanted.fields:
        if field.name not in offered:
            close = difflib.get_close_matches(field.name, offered, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(offered)}"
            raise ConfigError("schema", f"column {field.name!r} is not one of this source{hint}")
        expected = offered[field.name].dataType
        if field.dataType != expected:
            requested, own = field.dataType.simpleString(), expected.simpleString()
            raise ConfigError("schema", f"column {field.name!r} is {requested}, but the source has {own}")
        if not field.nullable and field.name in nullable:
            raise ConfigError("schema", f"column {field.name!r} is NOT NULL, but records may have none")
    return SourceColumns(
        names=tuple(wanted.fieldNames()),
        required=frozenset(field.name for field in wanted.fields if not field.nullable),
    )


_METADATA_KEY = "kafka_actors.options"
_OF_CATALOG = "provider"
"""Option that the catalog adds to those of a table."""


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema; for a table with its options in the first column's metadata.

    Raises `ConfigError` for a secret in plain text, because a catalog shows its tables' options.
    """
    if _OF_CATALOG not in options:
        return schema
    for name, value in options.items():
        if name.startswith(KAFKA) or name in REGISTRYS_SECRETS:
            _check_secret(name, value)
    first, *others = schema.fields
    metadata = {_METADATA_KEY: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def options_of(options: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """The options, and those in the metadata of a table's schema. Raises `UsageError` where there are neither."""
    for field in schema.fields:
        if _METADATA_KEY in field.metadata:
            kept: dict[str, str] = json.loads(field.metadata[_METADATA_KEY])
            return {**kept, **options}
    if not options:
        raise UsageError(
            "Spark passed no options: a table has to be created without columns of its own, so that it keeps them"
        )
    return options


def _check_secret(name: str, value: str) -> None:
    field = name.removeprefix(KAFKA).replace(".", "_")
    if field == "sasl_jaas_config":
        secrets = [text for ours, text in login_of(name, value).items() if ours in SECRETS]
    else:
        secret = name in REGISTRYS_SECRETS or field in SECRETS or "password" in field or "secret" in field
        secrets = [value] if secret else []
    if not all(refers(text) for text in secrets):
        raise ConfigError(
            name,
            "is in plain text, and a catalog shows a table's options: refer to it by ${env:NAME} or ${file:path:key}",
        )
