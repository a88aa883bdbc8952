"""DataFrames inside a pipeline: their Arrow types, the user's columns, and hidden ones that say which record a row came from.

One Python worker packs its rows into such a DataFrame for the JVM, and the next one, of a stage behind the source or of
the sink, unpacks them. Spark requires that the batches of a Python data source equal its own schema exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_actors.base.batches import SCHEMA
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.casts import cast_to
from kafka_actors.pipeline.fused import FailedRecord
from kafka_actors.pipeline.rows import (
    KAFKA,
    KAFKA_FIELD,
    KAFKA_FIELDS,
    KAFKA_TYPE,
    NO_RECORD,
    Numbers,
    StageRows,
    kafka_struct,
)
from kafka_actors.pipeline.source import STAGE
from kafka_actors.spark.source.arrow_types import ERROR, ERROR_FIELD, as_spark, errors_of, records_of

_WITH_VALUE = pa.field(KAFKA, pa.struct([*KAFKA_TYPE, pa.field("value", pa.binary())]))


class FramePart(NamedTuple):
    """Rows of one partition, and `source`, with the columns of `SCHEMA` and one row for each of their records.

    In a DataFrame without `_kafka`, `source` has one row of nulls, and no row belongs to a record.
    """

    rows: StageRows
    source: pa.RecordBatch


class PipelineFrame(msgspec.Struct, frozen=True, eq=False):
    """Columns of a DataFrame inside a pipeline. `columns`: the user's. `kafka`: it has the column `_kafka`; `value`: with the
    record's value in it, for the dead letters of a later stage. `errors`: it has the column `_error`. `stage`: the stage
    that made it, for errors."""

    columns: Any
    kafka: bool = False
    value: bool = False
    errors: bool = False
    stage: str = STAGE

    @property
    def user_schema(self) -> pa.Schema:
        """The user's columns, with Spark's types. Raises `ConfigError`."""
        if self.errors and ERROR in self.columns.names:
            raise ConfigError(
                "on_error", f"is 'dead_letter', which makes a column {ERROR!r}: rename your own"
            )
        return as_spark(self.stage, self.columns, nullable=self.errors)

    @property
    def schema(self) -> pa.Schema:
        """All columns. Raises `ConfigError` for types that Spark doesn't have."""
        schema = self.user_schema
        if self.kafka:
            schema = schema.append(_WITH_VALUE if self.value else KAFKA_FIELD)
        return schema.append(ERROR_FIELD) if self.errors else schema

    # ------------------------------------------------------------ into the JVM

    def pack(self, rows: StageRows, source: pa.RecordBatch) -> pa.RecordBatch:
        """Packs rows: adds the hidden columns. Raises `CastError`."""
        made = cast_to(self.user_schema, rows.batch)
        errors = [pa.nulls(made.num_rows, ERROR_FIELD.type)] if self.errors else []
        return self._with_hidden(made.columns, rows.origin, source, errors)

    def pack_failed(self, failed: Sequence[FailedRecord], source: pa.RecordBatch) -> pa.RecordBatch:
        """Packs failed records, as rows in which only the hidden columns are not null."""
        numbers = np.array([f.record for f in failed], dtype=np.int32)
        return self._with_hidden(self._nulls(len(failed)), numbers, source, [errors_of(failed, source)])

    def pack_again(self, failed: pa.RecordBatch) -> pa.RecordBatch:
        """Packs failed records that the `split` of an earlier frame returned."""
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
        """Separates the rows without `_error`, from which that column is removed, and the rows with one, None without any."""
        batch = cast_to(self.schema, batch)  # Spark gives timestamps the session's time zone, for example
        if not self.errors:
            return batch, None
        errors = batch.column(ERROR)
        names = [name for name in batch.schema.names if name != ERROR]
        if errors.null_count == batch.num_rows:
            return batch.select(names), None
        good = errors.is_null()
        return batch.filter(good).select(names), batch.filter(pc.invert(good))

    def for_user(self, good: pa.RecordBatch, *, kafka: bool) -> pa.RecordBatch:
        """The rows that `split` returned as a user sees them: without `_kafka`, or with it but without the record's value."""
        if not self.kafka or (kafka and not self.value):
            return good
        plain = good.select(self.columns.names)
        if not kafka:
            return plain
        hidden = good.column(KAFKA)
        children = [pc.struct_field(hidden, field.name) for field in KAFKA_TYPE]
        column = pa.StructArray.from_arrays(children, fields=list(KAFKA_TYPE), mask=hidden.is_null())
        return plain.append_column(KAFKA_FIELD, column)

    def parts(self, good: pa.RecordBatch) -> Iterator[FramePart]:
        """Unpacks the rows that `split` returned, in runs of one partition."""
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
    """The numbers of rows at which another partition begins. A row without a record belongs to the run before it."""
    valid = kafka.is_valid().to_numpy(zero_copy_only=False)
    topics = pc.struct_field(kafka, "topic").dictionary_encode().indices
    numbers = pc.fill_null(topics, 0).to_numpy(zero_copy_only=False).astype(np.int64) << 32
    numbers += pc.fill_null(pc.struct_field(kafka, "partition"), 0).to_numpy(zero_copy_only=False)
    known = np.flatnonzero(valid)
    changes = known[1:][np.diff(numbers[known]) != 0]
    return [0, *changes.tolist()]


def _part(plain: pa.RecordBatch, kafka: Any) -> FramePart:
    """Unpacks a run of one partition. Consecutive rows with the same offset belong to the same record."""
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
