"""Columns of decoded values: the schema is resolved once, where the query is planned, and travels to the tasks with its decoder.

The `DataFrame` has the columns of a pipeline with `_kafka`: those of the schema, all nullable, and behind them `_kafka`, and with
decode.mode=PERMISSIVE `_error`. A null value, a tombstone, is a row whose decoded columns are null.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.types import StructField, StructType

from kafka_actors.base.backoff import CALL_BACKOFF_S, exponential_backoff
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.casts import CastError, cast_to, unfit_rows
from kafka_actors.pipeline.decoders import avro_decoder, protobuf_decoder
from kafka_actors.pipeline.fused import REGISTRY_BACKOFF_MAX_S, FailedRecord, stage_error
from kafka_actors.pipeline.json_schema import JsonSchemaDecoder
from kafka_actors.pipeline.rows import KAFKA, KAFKA_FIELD, check_names, kafka_struct
from kafka_actors.schemas import Schema, SchemaRegistryUnavailableError
from kafka_actors.schemas.framing import framed
from kafka_actors.schemas.reader_schema import ReaderSchema, versions_of_topics
from kafka_actors.schemas.registry import SchemaType
from kafka_actors.schemas.results import DecodedRows, numbers_without, row_of_each
from kafka_actors.spark.python_worker import WorkerCache

from .arrow_types import ERROR, ERROR_FIELD, as_spark, errors_of, spark_schema
from .decode_options import DECODE, SCHEMA, SUBJECT, VERSION, DecodeOptions
from .machines.stream_offsets import KeptSchema
from .query_schema import QuerySchema, ReadBy
from .schema import SourceColumns, selected
from .selection import AssignPartitions, Selection, SubscribeTopics

logger = logging.getLogger(__name__)

_TYPES: dict[str, SchemaType | None] = {
    "avro": "AVRO",
    "protobuf": "PROTOBUF",
    "json_schema": "JSON",
    "registry": None,
}
_METADATA_KEY = "schema.registry"
"""Key in the metadata of the column `_kafka`, which Spark passes back: the schema that was chosen."""


class ValueDecoding(Struct, frozen=True, eq=False):
    """Decoding of values, pickled to the tasks. `key` identifies the decoder in a worker's cache; `schema` is the one that was chosen in a
    registry, None where one was given; `pinned`: the options name it."""

    key: str
    decoder: Any
    registry: Any
    schema: Schema | None
    permissive: bool
    pinned: bool

    @property
    def kept(self) -> KeptSchema | None:
        """The schema as a query's checkpoint has it."""
        return None if self.schema is None else kept_of(self.schema)

    @property
    def available(self) -> StructType:
        """Spark's columns, of which a user may select. Raises `ConfigError` for types that Spark doesn't have."""
        return self._spark(self.decoder.schema)

    def _spark(self, columns: pa.Schema) -> StructType:
        own = [spark_field(field) for field in columns]
        hidden = [KAFKA_FIELD, *([ERROR_FIELD] if self.permissive else [])]
        fields = [*spark_schema(pa.schema([*own, *hidden])).fields]
        if self.kept is not None:
            at = len(own)
            metadata = {_METADATA_KEY: {name: getattr(self.kept, name) for name in ("id", "subject")}}
            if self.kept.version is not None:
                metadata[_METADATA_KEY]["version"] = self.kept.version
            fields[at] = StructField(fields[at].name, fields[at].dataType, fields[at].nullable, metadata)
        return StructType(fields)

    def columns_of(self, wanted: StructType, timeout_ms: int) -> DecodedColumns:
        """The columns of `wanted`, the user's `.schema(…)` or the source's own. Raises as `schema.columns_of`."""
        names = set(wanted.fieldNames())
        own: pa.Schema = self.decoder.schema
        # A column that Spark has no type for may be left out; one that isn't there is refused with those that are.
        offered = [field for field in own if field.name in names or _fits(field)]
        chosen = selected(wanted, self._spark(pa.schema(offered)), frozenset((*own.names, KAFKA, ERROR)))
        return DecodedColumns(self, chosen, timeout_ms / 1000)


def kept_of(schema: Schema) -> KeptSchema:
    """A schema as a query's checkpoint has it."""
    return KeptSchema(schema.id, schema.subject, schema.version)


def kept_in(schema: StructType) -> KeptSchema | None:
    """The schema that was chosen when Spark got these columns, as a table has them."""
    for field in schema.fields:
        if field.name == KAFKA and _METADATA_KEY in field.metadata:
            return KeptSchema(**field.metadata[_METADATA_KEY])
    return None


def spark_field(field: Any) -> Any:
    """A decoded column with Spark's type, nullable. Raises `ConfigError` where Spark has no such type."""
    try:
        return as_spark(DECODE, pa.schema([field]), nullable=True).field(0)
    except ConfigError:
        raise ConfigError(
            DECODE,
            f"column {field.name!r} is {field.type}, which Spark doesn't have: name the other columns in .schema('…')",
        ) from None


def _fits(field: Any) -> bool:
    try:
        spark_field(field)
    except ConfigError:
        return False
    return True


# ---------------------------------------------------------------- where a query is planned


def decoding_of(
    options: DecodeOptions, selection: Selection, kept: KeptSchema | None = None
) -> ValueDecoding:
    """Resolves the schema: the registry is asked now, and only now. `kept`: the schema that was chosen before. Raises `ConfigError`, and
    `SchemaRegistryError` where the registry can't be asked."""
    topics = _topics(selection)
    registry = None if options.registry is None else options.registry.registry()
    if options.schema is not None:
        decoder: Any = _by_text(options, registry)
        schema = None
        if registry is not None:
            # Tasks needn't ask for the schemas that writers of the topics use.
            known = versions_of_topics(DECODE, registry, topics, options.on_new_schema)
            decoder = decoder.knowing(known)
    else:
        assert registry is not None  # the options are checked together
        if topics is None and options.subject is None and options.schema_id is None:
            raise ConfigError(SUBJECT, "is missing: topics are given by a pattern, so say whose schema holds")
        reader = ReaderSchema(
            registry=registry,
            subject=options.subject,
            version=options.version or "latest",
            schema_id=options.schema_id,
            schema_type=_TYPES[options.kind],
            message=options.message,
            enums=options.enums,
            validate=options.validate,
            on_new_schema=options.on_new_schema,
            json_decoder=JsonSchemaDecoder,
        )
        again = kept is not None and not options.pinned
        decoder, schema, _ = (
            reader.again(DECODE, kept.id, kept.subject, kept.version, topics)
            if kept is not None and again
            else reader.chosen(DECODE, topics)
        )
        logger.info("values are decoded by %s", schema)
    check_names(DECODE, decoder.schema)
    if options.permissive and ERROR in decoder.schema.names:
        raise ConfigError("decode.mode", f"is PERMISSIVE, which makes a column {ERROR!r}: the schema has one")
    return ValueDecoding(uuid.uuid4().hex, decoder, registry, schema, options.permissive, options.pinned)


def _topics(selection: Selection) -> tuple[str, ...] | None:
    if isinstance(selection, SubscribeTopics):
        return selection.topics
    if isinstance(selection, AssignPartitions):
        return tuple(sorted({tp.topic for tp in selection.partitions}))
    return None


def _by_text(options: DecodeOptions, registry: Any) -> Any:
    """The decoder by a schema that was given, as a text or as the path of a file."""
    text = options.schema or ""
    if options.kind == "protobuf":
        return protobuf_decoder(SCHEMA, text, options.message, options.enums, registry, options.on_new_schema)
    if text.lstrip()[:1] not in ("{", "[", '"'):
        try:
            with open(text, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                SCHEMA,
                f"is {text!r}, neither JSON nor a file: {getattr(error, 'strerror', None) or 'not UTF-8'}",
            ) from None
    if options.kind == "avro":
        return avro_decoder(SCHEMA, text, None, registry, options.on_new_schema)
    try:
        return JsonSchemaDecoder(
            text, registry=registry, validate=options.validate, on_new_schema=options.on_new_schema
        )
    except ConfigError as error:
        raise ConfigError(SCHEMA, error.message) from None


# ---------------------------------------------------------------- in the tasks


class DecodedColumns(Struct, frozen=True, eq=False):
    """Columns of decoded values to return to Spark, in order."""

    decoding: ValueDecoding
    chosen: SourceColumns
    timeout_s: float

    @property
    def schema(self) -> QuerySchema | None:
        """The schema, for the stream's driver; None where it isn't a registry's."""
        decoding = self.decoding
        if decoding.schema is None:
            return None
        return QuerySchema(
            decoding.decoder,
            decoding.registry,
            decoding.schema,
            pinned=decoding.pinned,
            option=VERSION,
            pin=f"{VERSION}=",
        )

    def reading_by(self, read_by: ReadBy) -> DecodedColumns:
        """The columns of values that are decoded by another schema, which gives the same ones."""
        key = f"{self.decoding.key} {read_by.schema.id}"
        decoder = _cache.get(key, lambda: self.decoding.decoder.read_by(read_by.schema, read_by.references))
        return replace(self, decoding=replace(self.decoding, key=key, decoder=decoder, schema=read_by.schema))

    def of(
        self,
        batch: pa.RecordBatch,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> pa.RecordBatch:
        """These columns of a batch of records. Raises `StageError` for a value that can't be decoded, unless the mode is permissive, and
        `SchemaRegistryUnavailableError` where a schema is needed that the registry didn't give for as long as records are waited for."""
        names = [name for name in self.chosen.names if name not in (KAFKA, ERROR)]
        made: dict[str, Any] = {}
        if names or ERROR in self.chosen.names:
            rows, failed = self._decoded(names, batch, clock, sleep)
            columns = rows.batch
            if len(rows.records) < batch.num_rows:
                columns = columns.take(row_of_each(rows.records, batch.num_rows))
            made |= {name: columns.column(name) for name in names}
            if ERROR in self.chosen.names:
                made[ERROR] = _errors(failed, batch)
        if KAFKA in self.chosen.names:
            made[KAFKA] = kafka_struct(batch, np.arange(batch.num_rows, dtype=np.int32))
        hidden = {KAFKA: KAFKA_FIELD, ERROR: ERROR_FIELD}
        fields = [hidden.get(name) or pa.field(name, made[name].type) for name in self.chosen.names]
        return pa.RecordBatch.from_arrays(
            [made[name] for name in self.chosen.names], schema=pa.schema(fields)
        )

    def _decoded(
        self,
        names: list[str],
        batch: pa.RecordBatch,
        clock: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> tuple[DecodedRows, list[FailedRecord]]:
        """The rows with these columns in Spark's types, and the records that have none though they have a value."""
        decoder = _cache.get(self.decoding.key, lambda: self.decoding.decoder)
        values = framed(batch) if decoder.framed else batch.column("value")
        rows = _as_spark(self._answered(lambda: decoder.decode(values), batch, clock, sleep), names)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        failed = [FailedRecord(number, DECODE, reason) for number, reason in rows.failures if valid[number]]
        if failed and not self.decoding.permissive:
            record, _, reason = failed[0]
            raise stage_error(DECODE, batch, record, record, 1, reason)
        return rows, failed

    def _answered(
        self,
        decode: Callable[[], DecodedRows],
        batch: pa.RecordBatch,
        clock: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> DecodedRows:
        """Decodes, and where the registry can't be asked, again: that is no value's error."""
        deadline, attempt = clock() + self.timeout_s, 0
        while True:
            try:
                return decode()
            except SchemaRegistryUnavailableError as error:
                attempt += 1
                pause = exponential_backoff(attempt, CALL_BACKOFF_S, REGISTRY_BACKOFF_MAX_S)
                if clock() + pause >= deadline:
                    topic, partition, offset = (
                        batch.column(name)[0] for name in ("topic", "partition", "offset")
                    )
                    raise SchemaRegistryUnavailableError(
                        f"{topic}-{partition} from offset {offset}: {error}; waited for kafkaConsumer.pollTimeoutMs"
                    ) from None
                logger.warning("waiting for the registry: %s", error)
                sleep(pause)


def _as_spark(rows: DecodedRows, names: list[str]) -> DecodedRows:
    """The rows with these columns in Spark's types. A value that its type can't hold, such as milliseconds beyond what microseconds in 64
    bits hold, is a failure."""
    columns = rows.batch.select(names)
    schema = pa.schema([spark_field(field) for field in columns.schema])
    try:
        return rows._replace(batch=cast_to(schema, columns))
    except CastError:
        unfit = [(row, f"on Spark, {value.reason}") for row, value in unfit_rows(schema, columns).items()]
    good = numbers_without(columns.num_rows, unfit)
    failures = [(int(rows.records[row]), reason) for row, reason in unfit]
    return rows._replace(
        batch=cast_to(schema, columns.take(pa.array(good))),
        records=rows.records[good],
        failures=sorted([*rows.failures, *failures]),
    )


_cache: WorkerCache[Any] = WorkerCache(lambda decoder: None)


def _errors(failed: list[FailedRecord], batch: pa.RecordBatch) -> Any:
    """The column `_error`, which is null but for values that failed."""
    if not failed:
        return pa.nulls(batch.num_rows, ERROR_FIELD.type)
    at = row_of_each([one.record for one in failed], batch.num_rows)
    return errors_of(failed, batch).take(at)
