"""Sinks of a pipeline as its last stages, on every engine: each gets the same rows, with the columns, keys and encoding that its
arguments ask for, and has its own `on_error` policy and retries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from kafka_actors.config import ClientConfig
from kafka_actors.pipeline.casts import Failure, as_utc, is_bytes
from kafka_actors.pipeline.engines import CheckedSink
from kafka_actors.pipeline.expressions import evaluate, uses_kafka
from kafka_actors.pipeline.fused import FailedRecord, StageGuard
from kafka_actors.pipeline.json_encoder import json_values
from kafka_actors.pipeline.rows import NO_RECORD, Array, StageRows
from kafka_actors.pipeline.source import ReadKafka, producer_config
from kafka_actors.pipeline.stage_steps import RecordwiseStep
from kafka_actors.pipeline.stages import SENDABLE, Stage, WithKey, WriteFunction, WriteKafka, WriteParquet
from kafka_actors.schemas.results import ValueEncoder

from .kafka import KafkaWriter
from .parquet import ParquetWriter
from .sink import UserSink, Writer, close_all, flush_all, origin_of
from .transactional import ProducerSlot, transactional_writer


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


def preparation(sink: CheckedSink) -> Prepare:
    """A function that prepares rows for a sink."""
    stage = sink.step.stage
    if isinstance(stage, WriteKafka):
        if stage.format == "columns":
            return _columns
        assert stage.format == "json" or stage.encoder is not None  # the engine has made the pipeline ready
        return _keyed(sink, json_values if stage.encoder is None else _encoded)
    assert isinstance(stage, (WriteParquet, WriteFunction))
    if stage.kafka:
        return lambda rows, source: rows.with_kafka(source)
    return lambda rows, source: rows.batch


def _columns(rows: StageRows, source: pa.RecordBatch) -> pa.RecordBatch:
    return rows.batch.select([name for name in rows.batch.schema.names if name in SENDABLE])


def _keyed(sink: CheckedSink, values: Callable[[pa.RecordBatch], Array]) -> Prepare:
    key = _key(sink)

    def prepare(rows: StageRows, source: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [key_values(key(rows, source)), values(rows.batch)], names=["key", "value"]
        )

    return prepare


ENCODED = "\0encoded"
"""Hidden column of encoded values, which rows have between `EncodeStep` and the sink."""


def _encoded(batch: pa.RecordBatch) -> Array:
    return batch.column(batch.num_columns - 1)


class EncodeStep(RecordwiseStep):
    """Encodes rows by a schema: appends the column of encoded values to those that can be."""

    def __init__(self, encoder: ValueEncoder) -> None:
        self._encoder = encoder

    def run(self, rows: StageRows, source: pa.RecordBatch) -> tuple[StageRows, list[Failure]]:
        values, numbers, failures = self._encoder.encode(rows.batch)
        batch = rows.batch.take(pa.array(numbers)) if failures else rows.batch
        made = StageRows(batch.append_column(ENCODED, values), rows.origin[numbers])
        return made, self._of_records(failures, rows, source)


def _key(sink: CheckedSink) -> Callable[[StageRows, pa.RecordBatch], Array]:
    """A function for the keys of rows: those of `with_key`, or else the keys of their records."""
    if sink.key is None:
        return _own_key
    stage, columns = sink.key.stage, sink.step.before
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


def opened(
    stage: Stage, source: ReadKafka, slot: ProducerSlot | None = None, *, by_partition: bool = True
) -> Writer:
    """Opens a sink of a pipeline. `slot`: the producer of a worker with transactions; `by_partition`: the records of a partition come in
    order. Raises what its constructor raises."""
    if isinstance(stage, WriteKafka) and slot is not None:
        return transactional_writer(slot, producer_config(stage.name, source, stage.options), stage.topic)
    if isinstance(stage, WriteKafka):
        return KafkaWriter(producer_config(stage.name, source, stage.options), stage.topic)
    if isinstance(stage, WriteParquet):
        return ParquetWriter(stage.path, stage.compression, by_partition=by_partition)
    assert isinstance(stage, WriteFunction)
    return UserSink(stage.target, stage.arguments).open(ClientConfig())


class SinkStage:
    """Last stage, which writes to the sink: an error that `write` raises is one of its rows, for the sink's `on_error` policy."""

    retriable = True

    def __init__(self, sink: CheckedSink, writer: Writer) -> None:
        self._prepare = preparation(sink)
        self._writer = writer

    def run(self, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        if rows.batch.num_rows:
            self._writer.write(self._prepare(rows, source), origin_of(source))
        return []

    def close(self) -> None:
        pass


class OpenSinks:
    """Open sinks of a pipeline, each of which gets every row: a row that one of them refuses still goes to the others, and only
    the one that failed is tried again.

    Where one can't be opened, those before it are closed, and the error is raised. `open_sink`: in place of `opened`.
    """

    def __init__(
        self,
        sinks: Sequence[CheckedSink],
        source: ReadKafka,
        retries: int,
        open_sink: Callable[[Stage, ReadKafka], Writer] | None = None,
    ) -> None:
        self._writers: list[tuple[str, Writer]] = []
        self._guards: list[tuple[StageGuard | None, StageGuard]] = []
        try:
            for sink in sinks:
                writer = (open_sink or opened)(sink.step.stage, source)
                self._writers.append((sink.name, writer))
                guard = partial(StageGuard, sink.name, sink.step.on_error, retries, sleep=time.sleep)
                encoder = getattr(sink.step.stage, "encoder", None)
                encoding = None if encoder is None else guard(made=EncodeStep(encoder))
                self._guards.append((encoding, guard(made=SinkStage(sink, writer))))
        except BaseException as error:
            error.add_note(f"raised by the sink {sink.name}")
            self.close()
            raise

    def write(
        self,
        rows: StageRows,
        source: pa.RecordBatch,
        failures: list[FailedRecord],
        attempt: int | None = None,
    ) -> None:
        """Writes rows, whose records are in `source`, to all sinks. Records that a sink refuses are added to `failures`, as its
        policy says. Raises `StageError`; and, where the caller counts the attempts, the error of a sink before any of them has a row."""
        for encoding, guard in self._guards:
            for part in [rows] if encoding is None else encoding.run(rows, source, failures):
                guard.run(part, source, failures, attempt)
                attempt = None  # another attempt would write these rows again

    @property
    def writers(self) -> Sequence[tuple[str, Writer]]:
        """The sinks by their names."""
        return self._writers

    def flush(self) -> None:
        """Returns when all rows are durable in all sinks. Raises `SinkError` with the name of the sink."""
        flush_all(self._writers)

    def close(self) -> None:
        close_all(*(writer for _, writer in self._writers))
