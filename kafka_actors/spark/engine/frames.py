"""The DataFrames inside a pipeline: the user's columns, and hidden ones that say which record a row came from.

Rows leave one Python worker for the JVM packed, and are unpacked by the next: a stage behind the source, or the sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_actors.base.batches import HEADERS_TYPE, SCHEMA
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.arrays import cast_to
from kafka_actors.pipeline.columns import (
    KAFKA,
    KAFKA_FIELD,
    KAFKA_FIELDS,
    KAFKA_TYPE,
    NO_RECORD,
    Numbers,
    kafka_struct,
)
from kafka_actors.pipeline.rows import FailedRecord, StageRows
from kafka_actors.pipeline.source import STAGE

from .arrow_types import as_spark

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
"""What a failed record is, under "dead_letter": a row of its own, whose other columns are null."""

_WITH_VALUE = pa.field(KAFKA, pa.struct([*KAFKA_TYPE, pa.field("value", pa.binary())]))


class FramePart(NamedTuple):
    """Rows of one partition, and one row of `source`, with the columns of `SCHEMA`, for each record they came from.

    Where a DataFrame doesn't tell, `source` has one row of nulls, and no row belongs to a record.
    """

    rows: StageRows
    source: pa.RecordBatch


class PipelineFrame(msgspec.Struct, frozen=True, eq=False):
    """`columns`: the user's. `kafka`: there is the column `_kafka`; `value`: with the record's value in it, for the
    dead letters of a later stage. `errors`: there is the column `_error`. `stage`: what made it, for errors."""

    columns: Any
    kafka: bool = False
    value: bool = False
    errors: bool = False
    stage: str = STAGE

    @property
    def user_schema(self) -> pa.Schema:
        """The user's columns, as Spark has them. Raises `ConfigError`."""
        if self.errors and ERROR in self.columns.names:
            raise ConfigError(
                "on_error", f"is 'dead_letter', which makes a column {ERROR!r}: call your own otherwise"
            )
        return as_spark(self.stage, self.columns, nullable=self.errors)

    @property
    def schema(self) -> pa.Schema:
        """All columns. Raises `ConfigError` for types that Spark has not."""
        schema = self.user_schema
        if self.kafka:
            schema = schema.append(_WITH_VALUE if self.value else KAFKA_FIELD)
        return schema.append(ERROR_FIELD) if self.errors else schema

    # ------------------------------------------------------------ into the JVM

    def pack(self, rows: StageRows, source: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the hidden columns. Raises `CastError`."""
        made = cast_to(self.user_schema, rows.batch)
        errors = [pa.nulls(made.num_rows, ERROR_FIELD.type)] if self.errors else []
        return self._with_hidden(made.columns, rows.origin, source, errors)

    def pack_failed(self, failed: Sequence[FailedRecord], source: pa.RecordBatch) -> pa.RecordBatch:
        """Failed records, as rows with nothing but what is hidden."""
        numbers = np.array([f.record for f in failed], dtype=np.int32)
        return self._with_hidden(self._nulls(len(failed)), numbers, source, [errors_of(failed, source)])

    def pack_again(self, failed: pa.RecordBatch) -> pa.RecordBatch:
        """Failed records of a DataFrame before this one, as its `split` gave them."""
        errors = failed.column(ERROR)
        numbers = np.arange(failed.num_rows, dtype=np.int32)
        return self._with_hidden(self._nulls(failed.num_rows), numbers, records_of(errors), [errors])

    def _nulls(self, rows: int) -> list[Any]:
        return [pa.nulls(rows, field.type) for field in self.user_schema]

    def _with_hidden(
        self, columns: list[Any], origin: Numbers, source: pa.RecordBatch, errors: list[Any]
    ) -> pa.RecordBatch:
        hidden = [self._kafka(origin, source)] if self.kafka else []
        return pa.RecordBatch.from_arrays([*columns, *hidden, *errors], schema=self.schema)

    def _kafka(self, origin: Numbers, source: pa.RecordBatch) -> Any:
        kafka = kafka_struct(source, origin)
        if not self.value:
            return kafka
        none = origin == NO_RECORD
        children = [pc.struct_field(kafka, name) for name in KAFKA_FIELDS]
        children.append(source.column("value").take(pa.array(origin, mask=none)))
        return pa.StructArray.from_arrays(children, fields=list(_WITH_VALUE.type), mask=pa.array(none))

    # ------------------------------------------------------------ and out of it

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The rows without `_error`, which have that column no more, and those with one, if there are any."""
        batch = cast_to(self.schema, batch)  # Spark gives timestamps the session's time zone, for one
        if not self.errors:
            return batch, None
        errors = batch.column(ERROR)
        names = [name for name in batch.schema.names if name != ERROR]
        if errors.null_count == batch.num_rows:
            return batch.select(names), None
        good = errors.is_null()
        return batch.filter(good).select(names), batch.filter(pc.invert(good))

    def parts(self, good: pa.RecordBatch) -> Iterator[FramePart]:
        """The rows, as `split` gave them: as many as follow each other of one partition at a time."""
        if not good.num_rows:
            return
        plain = good.select(self.columns.names)
        if not self.kafka:
            yield FramePart(StageRows(plain, _no_record(good.num_rows)), _NOWHERE)
            return
        kafka = good.column(KAFKA)
        starts = _runs(kafka)
        for first, end in zip(starts, [*starts[1:], good.num_rows], strict=True):
            yield _part(plain.slice(first, end - first), kafka.slice(first, end - first))


_NOWHERE = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in SCHEMA], schema=SCHEMA)


def _no_record(rows: int) -> Numbers:
    return np.full(rows, NO_RECORD, dtype=np.int32)


def _runs(kafka: Any) -> list[int]:
    """Where rows of another partition begin. A row of no record belongs to what is before it."""
    valid = kafka.is_valid().to_numpy(zero_copy_only=False)
    topics = pc.struct_field(kafka, "topic").dictionary_encode().indices
    numbers = pc.fill_null(topics, 0).to_numpy(zero_copy_only=False).astype(np.int64) << 32
    numbers += pc.fill_null(pc.struct_field(kafka, "partition"), 0).to_numpy(zero_copy_only=False)
    known = np.flatnonzero(valid)
    changes = known[1:][np.diff(numbers[known]) != 0]
    return [0, *changes.tolist()]


def _part(plain: pa.RecordBatch, kafka: Any) -> FramePart:
    """Rows that follow each other with the same offset came from the same record."""
    valid = kafka.is_valid().to_numpy(zero_copy_only=False)
    at = np.flatnonzero(valid)
    if not len(at):
        return FramePart(StageRows(plain, _no_record(plain.num_rows)), _NOWHERE)
    offsets = pc.struct_field(kafka, "offset").to_numpy(zero_copy_only=False)[at].astype(np.int64)
    new = np.concatenate([[True], np.diff(offsets) != 0])
    origin = _no_record(plain.num_rows)
    origin[at] = np.cumsum(new, dtype=np.int32) - 1
    records = kafka.take(pa.array(at[new]))
    names = [field.name for field in kafka.type]
    columns = [
        pc.struct_field(records, field.name) if field.name in names else pa.nulls(len(records), field.type)
        for field in SCHEMA
    ]
    return FramePart(StageRows(plain, origin), pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def errors_of(failed: Sequence[FailedRecord], source: pa.RecordBatch) -> Any:
    """The column `_error` of these records."""
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
