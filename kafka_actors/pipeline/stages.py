"""Stages of a pipeline: frozen values, each of which derives its output columns from its input columns.

`output(columns)` is the check of a stage before anything starts. It takes the input columns, None where only Spark or a
registry will know them, and returns the output columns; it raises `ConfigError` with the stage's name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
import pyarrow as pa

from kafka_actors.base.batches import SCHEMA
from kafka_actors.base.callables import is_async, type_and_text
from kafka_actors.errors import ConfigError
from kafka_actors.schemas.writer_schema import WriterSchema

from .decode import row_type
from .expressions import readable, reference, types_of
from .rows import KAFKA
from .schemas import as_schema

OnError: TypeAlias = Literal["fail", "skip", "dead_letter"]
Ordering: TypeAlias = Literal["partition", "key", "unordered"]
Columns: TypeAlias = pa.Schema | None

RAY, SPARK = "ray", "spark"


class Stage(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Base of all stages. `on_error` None is the pipeline's policy."""

    name: str
    on_error: OnError | None = None

    engines: ClassVar[tuple[str, ...]] = (RAY, SPARK)
    is_sink: ClassVar[bool] = False

    def output(self, columns: Columns) -> Columns:
        """The output columns for these input columns. Raises `ConfigError` where the stage doesn't fit them."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self.name}>"


LATE = "comes after a stage whose columns are known only at the start: decode before it"


def own_columns(stage: Stage, columns: Columns, *names: str) -> None:
    """Raises `ConfigError` where the record's own columns of these names, which the stage reads, are not among the columns."""
    if columns is None:
        raise ConfigError(stage.name, LATE)
    for name in names:
        at = columns.get_field_index(name)
        if at < 0 or not pa.types.is_binary(columns.field(at).type):
            raise ConfigError(
                stage.name,
                f"needs the record's own column {name!r}: put one decoder, before what changes the columns",
            )


class DecodeJson(Stage, frozen=True, kw_only=True, eq=False):
    """Decodes JSON values. `row` is the user's msgspec Struct, None where a type is made from the schema."""

    schema: pa.Schema
    row: Any = None

    def output(self, columns: Columns) -> Columns:
        own_columns(self, columns, "value")
        if self.row is None:
            row_type(self.name, self.schema)
        return self.schema


class Raw(Stage, frozen=True, kw_only=True, eq=False):
    """Key and value as bytes; with `text` as strings, and bytes that are not UTF-8 are an error of their record."""

    text: bool = False

    def output(self, columns: Columns) -> Columns:
        own_columns(self, columns, "key", "value")
        kind = pa.string() if self.text else pa.binary()
        return pa.schema([pa.field("key", kind), pa.field("value", kind)])


class Filter(Stage, frozen=True, kw_only=True, eq=False):
    """Keeps the rows for which the expression is true, and drops those for which it is false or null."""

    expression: Any

    def output(self, columns: Columns) -> Columns:
        if columns is not None:
            (kind,) = types_of(self.name, [self.expression], columns)
            if not pa.types.is_boolean(kind):
                raise ConfigError(
                    self.name, f"{readable(str(self.expression))} is {kind}: must be true or false"
                )
        return columns


class Select(Stage, frozen=True, kw_only=True, eq=False):
    """Selects or computes columns. An item is a name and an expression, or the name or path of a column; without a name the
    result is named as that column, or by the last part of the path."""

    items: tuple[tuple[str | None, Any], ...]

    def output(self, columns: Columns) -> Columns:
        if columns is None:
            return None
        expressions = self.expressions(columns)
        types = types_of(self.name, list(expressions.values()), columns)
        return pa.schema(
            [
                _selected_field(columns, expression, name, kind)
                for name, (_, expression), kind in zip(expressions, self.items, types, strict=True)
            ]
        )

    def expressions(self, columns: pa.Schema) -> dict[str, Any]:
        """Expressions by the names of the columns that they make. Raises `ConfigError` for a duplicate name and for `_kafka`."""
        found: dict[str, Any] = {}
        for item_name, expression in self.items:
            name = _last_part(expression, columns) if item_name is None else item_name
            if name in found:
                raise ConfigError(self.name, f"names the column {name!r} twice")
            if name == KAFKA:
                raise ConfigError(self.name, f"{name!r} can't be a column's name")
            found[name] = (
                reference(self.name, expression, columns) if isinstance(expression, str) else expression
            )
        return found


def _last_part(path: str, columns: pa.Schema) -> str:
    """The last part of a path; the whole name of a column that has a dot in it."""
    return path if path in columns.names else path.rpartition(".")[2]


def _selected_field(columns: pa.Schema, expression: Any, name: str, kind: Any) -> Any:
    """The field of a selected column: a column that is only chosen, not computed, stays NOT NULL."""
    chosen = isinstance(expression, str) and expression in columns.names
    return pa.field(name, kind, columns.field(expression).nullable if chosen else True)


class WithColumns(Stage, frozen=True, kw_only=True, eq=False):
    """Keeps all columns, and adds or replaces some by expressions."""

    items: tuple[tuple[str, Any], ...]

    def output(self, columns: Columns) -> Columns:
        if columns is None:
            return None
        types = types_of(self.name, [expression for _, expression in self.items], columns)
        schema = columns
        for (name, _), kind in zip(self.items, types, strict=True):
            at = schema.get_field_index(name)
            made = pa.field(name, kind)
            schema = schema.append(made) if at < 0 else schema.set(at, made)
        return schema


class Function(Stage, frozen=True, kw_only=True, eq=False):
    """Calls the user's code: a function, or an object of a class that is made once per process. `ordering` and `concurrency` are what
    it says of the run on Ray, None where it has no word."""

    target: Any
    schema: pa.Schema | None = None
    arguments: dict[str, Any] = {}
    num_gpus: float = 0
    kafka: bool = False
    ordering: Ordering | None = None
    concurrency: int | None = None

    @property
    def is_class(self) -> bool:
        return inspect.isclass(self.target)

    @property
    def is_async(self) -> bool:
        """Whether a call has to be awaited."""
        return is_async(self.target.__call__ if self.is_class else self.target)

    def output(self, columns: Columns) -> Columns:
        if self.schema is not None:
            return self.schema
        declared = getattr(self.target, "output_schema", None)
        if declared is None:
            raise ConfigError(
                self.name,
                "has no output schema: give schema=, or the function an attribute output_schema (a schema, or a "
                "function from the schema that comes in)",
            )
        if callable(declared) and not isinstance(declared, type):
            if columns is None:
                raise ConfigError(
                    self.name,
                    "its output_schema depends on columns that are known only at the start: give schema=",
                )
            try:
                declared = declared(columns)
            except Exception as error:
                raise ConfigError(self.name, f"its output_schema raised {type_and_text(error)}") from error
        return as_schema(self.name, declared)


class MapBatches(Function, frozen=True, kw_only=True, eq=False):
    """Calls a function with each RecordBatch; it returns a RecordBatch, a Table, several of them, or None for no rows."""


class MapMessages(Function, frozen=True, kw_only=True, eq=False):
    """Calls a function with each record as a `Message`; it returns a row as a dict, or None for no row."""

    def output(self, columns: Columns) -> Columns:
        if columns is None or not columns.equals(SCHEMA):
            raise ConfigError(
                self.name,
                "gets records as they were read: put it before what changes their columns; a function over rows is for flat_map",
            )
        return super().output(columns)


class FlatMap(Function, frozen=True, kw_only=True, eq=False):
    """Calls a function with each row as a dict; it returns any number of rows as dicts."""


class WithKey(Stage, frozen=True, kw_only=True, eq=False):
    """Key of the records that the Kafka sink sends: a column's name or an expression."""

    key: Any

    def output(self, columns: Columns) -> Columns:
        if columns is not None:
            (kind,) = types_of(self.name, [self.expression(columns)], columns)
            if pa.types.is_nested(kind):
                raise ConfigError(self.name, f"is {kind}: a key is a string, a number or bytes")
        return columns

    def expression(self, columns: pa.Schema) -> Any:
        return reference(self.name, self.key, columns) if isinstance(self.key, str) else self.key


class DataFrames(Stage, frozen=True, kw_only=True, eq=False):
    """DataFrame stage: `transform` takes and returns a Spark DataFrame; or `sql` is a query, in which {this} is the
    DataFrame.

    `kafka`: the DataFrame has the column `_kafka`; a query has it when its text names it."""

    transform: Callable[[Any], Any] | None = None
    sql: str | None = None
    kafka: bool = False

    engines: ClassVar[tuple[str, ...]] = (SPARK,)

    def output(self, columns: Columns) -> Columns:
        if self.sql is not None and "{this}" not in self.sql:
            raise ConfigError(self.name, f"{self.sql!r} doesn't name {{this}}, the DataFrame it is about")
        return None


# ---------------------------------------------------------------- sinks

SENDABLE = ("key", "value", "topic", "partition", "headers", "timestamp")
"""Columns that a producer takes."""


Delivery = Literal["at_least_once", "exactly_once"]
Format: TypeAlias = Literal["json", "columns", "avro", "json_schema", "protobuf"]


class WriteKafka(Stage, frozen=True, kw_only=True, eq=False):
    """Kafka sink. `format`: "json" makes each row a JSON object; "columns" sends key, value, headers … as they are; others have a `writer`,
    which says by which schema of a registry rows are encoded, an `encoder` once the pipeline is made ready, and `chosen`, the schema that
    it was. `marker_topic`: with `delivery` "exactly_once" the topic under which tasks of Spark commit their markers, None for `topic`."""

    topic: str | None
    format: Format = "json"
    writer: WriterSchema | None = None
    encoder: Any = None
    chosen: str = ""
    options: dict[str, Any] = {}
    delivery: Delivery = "at_least_once"
    marker_topic: str | None = None

    is_sink: ClassVar[bool] = True

    def output(self, columns: Columns) -> Columns:
        if self.format != "columns":
            if self.topic is None:
                raise ConfigError(self.name, "topic: is missing")
            self._check_encoder(columns)
            return columns
        for name in columns.names if columns is not None else ():
            if name not in SENDABLE and name not in ("offset", "timestampType"):
                raise ConfigError(
                    self.name,
                    f"has format='columns', and there is a column {name!r}: columns that can be sent are "
                    f"{', '.join(SENDABLE)}; select them, or use format='json'",
                )
        if columns is not None and "value" not in columns.names:
            raise ConfigError(self.name, "has format='columns', and there is no column 'value'")
        for name in ("key", "value"):
            if columns is not None and name in columns.names and _no_bytes(columns.field(name).type):
                raise ConfigError(
                    self.name,
                    f"has format='columns', and column {name!r} is {columns.field(name).type}: it must be binary or string; "
                    "cast it, or use format='json'",
                )
        if columns is not None and self.topic is None and "topic" not in columns.names:
            raise ConfigError(self.name, "topic: is missing, and there is no column 'topic'")
        return columns

    def _check_encoder(self, columns: Columns) -> None:
        if self.encoder is not None and columns is not None:
            try:
                self.encoder.check(columns)
            except ConfigError as error:
                raise ConfigError(self.name, f"{self.chosen}: {error.message}") from error

    def ready(self, columns: Columns) -> WriteKafka:
        """The stage with its encoder, for which the registry is asked. Raises `ConfigError`, `SchemaRegistryError`."""
        if self.encoder is not None or self.writer is None:
            return self
        assert self.topic is not None  # the check asks for it
        encoder, schema = self.writer.chosen(self.name, self.topic, columns)
        return msgspec.structs.replace(self, encoder=encoder, chosen=str(schema))


def _no_bytes(kind: Any) -> bool:
    """Whether values of a type can never be sent as they are."""
    types = pa.types
    return bool(types.is_primitive(kind) or types.is_nested(kind) or types.is_decimal(kind))


class WriteParquet(Stage, frozen=True, kw_only=True, eq=False):
    """Parquet sink. `kafka`: the files have the column `_kafka` too."""

    path: str
    compression: str = "zstd"
    kafka: bool = False

    is_sink: ClassVar[bool] = True

    def output(self, columns: Columns) -> Columns:
        return columns


class WriteFunction(Stage, frozen=True, kw_only=True, eq=False):
    """User sink: a function over batches, or a class with `write(batch)` and optionally `flush()` and `close()`."""

    target: Any
    arguments: dict[str, Any] = {}
    kafka: bool = False

    is_sink: ClassVar[bool] = True

    def output(self, columns: Columns) -> Columns:
        return columns
