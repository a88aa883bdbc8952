"""The sink of a pipeline as its last stage: the same on every engine. It gets rows with the columns, keys and encoding that the
stage's arguments ask for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from kafka_actors.config import ClientConfig
from kafka_actors.pipeline.casts import as_utc, is_bytes, with_children
from kafka_actors.pipeline.engines import CheckedPipeline, CheckedStage
from kafka_actors.pipeline.expressions import evaluate, uses_kafka
from kafka_actors.pipeline.fused import StageGuard
from kafka_actors.pipeline.rows import NO_RECORD, Array, StageRows
from kafka_actors.pipeline.source import ReadKafka, producer_config
from kafka_actors.pipeline.stages import SENDABLE, WithKey, WriteFunction, WriteKafka, WriteParquet

from .kafka import KafkaWriter
from .parquet import ParquetWriter
from .sink import UserSink, Writer

_ENCODE = msgspec.json.Encoder(decimal_format="number").encode


def json_values(batch: pa.RecordBatch) -> Array:
    """Encodes each row as a JSON object of its columns. Bytes become base64, times ISO 8601, NaN and infinities null.

    Raises the errors of Arrow and msgspec for values that JSON can't hold.
    """
    columns = [_plain(column).to_pylist(maps_as_pydicts="strict") for column in batch.columns]
    row = _row_of(tuple(batch.schema.names))
    return pa.array(list(map(_ENCODE, map(row, *columns))), pa.binary())


def _plain(column: Array) -> Array:
    """The column with types that msgspec encodes. Raises for nanoseconds that are not whole microseconds."""
    plain = _plain_type(column.type)
    return column if plain == column.type else column.cast(plain)


@lru_cache(maxsize=1024)
def _plain_type(kind: Any) -> Any:
    """The type that msgspec encodes. Values of nanosecond types would be objects of pandas; decimals and booleans as keys of a map
    would be encoded without quotes, or not at all. Spark has instants in UTC only, so all engines write them so."""
    types = pa.types
    if types.is_timestamp(kind):
        return as_utc(kind, "us" if kind.unit == "ns" else kind.unit)
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_time64(kind):
        return pa.time64("us")
    if types.is_map(kind) and (types.is_decimal(kind.key_type) or types.is_boolean(kind.key_type)):
        return pa.map_(pa.string(), kind.item_field.with_type(_plain_type(kind.item_type)))
    return with_children(kind, _plain_type)


@lru_cache(maxsize=1024)
def _row_of(names: tuple[str, ...]) -> Callable[..., Any]:
    """A function that makes a row from its values: a Struct, which is encoded much faster than a dict, or a dict for names that
    a Struct can't have."""
    fields = [(f"f{number}", Any) for number in range(len(names))]
    rename = {f"f{number}": name for number, name in enumerate(names)}
    try:
        return msgspec.defstruct("Row", fields, rename=rename, gc=False)
    except ValueError:
        return lambda *values: dict(zip(names, values, strict=True))


def key_values(column: Array) -> Array:
    """Encodes keys as bytes: strings in UTF-8, other values as their text, null as no key. Times are in microseconds and UTC,
    as Spark has them: another text for the same time would send the key to another partition."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_bytes(column.type) or pa.types.is_binary_view(column.type):
        return column.cast(pa.binary())
    if pa.types.is_timestamp(column.type):
        column = column.cast(as_utc(column.type))
    return column.cast(pa.string()).cast(pa.binary())


Prepare = Callable[[StageRows, pa.RecordBatch], pa.RecordBatch]


def preparation(checked: CheckedPipeline) -> Prepare:
    """A function that prepares rows for the sink of a definition that has one."""
    assert checked.sink is not None
    stage = checked.sink.stage
    if isinstance(stage, WriteKafka):
        return _columns if stage.format == "columns" else _json(checked)
    assert isinstance(stage, (WriteParquet, WriteFunction))
    if stage.kafka:
        return lambda rows, source: rows.with_kafka(source)
    return lambda rows, source: rows.batch


def _columns(rows: StageRows, source: pa.RecordBatch) -> pa.RecordBatch:
    return rows.batch.select([name for name in rows.batch.schema.names if name in SENDABLE])


def _json(checked: CheckedPipeline) -> Prepare:
    key = _key(checked)

    def prepare(rows: StageRows, source: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [key_values(key(rows, source)), json_values(rows.batch)], names=["key", "value"]
        )

    return prepare


def _key(checked: CheckedPipeline) -> Callable[[StageRows, pa.RecordBatch], Array]:
    """A function for the keys of rows: those of `with_key`, or else the keys of their records."""
    if checked.key is None:
        return _own_key
    stage, columns = checked.key.stage, checked.columns
    assert isinstance(stage, WithKey)
    assert columns is not None
    expression = stage.expression(columns)
    kafka = uses_kafka([expression], columns)

    def key(rows: StageRows, source: pa.RecordBatch) -> Array:
        batch = rows.with_kafka(source) if kafka else rows.batch
        return evaluate([expression], batch)[0]

    return key


def _own_key(rows: StageRows, source: pa.RecordBatch) -> Array:
    return source.column("key").take(pa.array(rows.origin, mask=rows.origin == NO_RECORD))


def opened(step: CheckedStage, source: ReadKafka) -> Writer:
    """Opens the sink of a pipeline. Raises what its constructor raises."""
    stage = step.stage
    if isinstance(stage, WriteKafka):
        return KafkaWriter(producer_config(stage.name, source, stage.options), stage.topic)
    if isinstance(stage, WriteParquet):
        return ParquetWriter(stage.path, stage.compression)
    assert isinstance(stage, WriteFunction)
    return UserSink(stage.target, stage.arguments).open(ClientConfig())


class SinkStage:
    """Last stage, which writes to the sink: an error that `write` raises is one of its rows, for the sink's `on_error` policy."""

    retriable = True

    def __init__(
        self, checked: CheckedPipeline, write: Callable[[pa.RecordBatch, pa.RecordBatch], None]
    ) -> None:
        self._prepare = preparation(checked)
        self._write = write

    def run(self, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        if rows.batch.num_rows:
            self._write(self._prepare(rows, source), source)
        return []

    def close(self) -> None:
        pass


def guarded(
    checked: CheckedPipeline, write: Callable[[pa.RecordBatch, pa.RecordBatch], None], retries: int
) -> StageGuard:
    """The sink's stage with its `on_error` policy and retries."""
    assert checked.sink is not None
    return StageGuard(
        checked.sink.stage.name, checked.sink.on_error, retries, SinkStage(checked, write), time.sleep
    )
