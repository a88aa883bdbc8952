"""Rows on their way through the stages, each with the number of the record that it came from; and the hidden column `_kafka`."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_actors.base.batches import SCHEMA
from kafka_actors.errors import ConfigError

Array: TypeAlias = Any  # pyarrow publishes no types of its own
Numbers: TypeAlias = npt.NDArray[np.int32]

KAFKA = "_kafka"
KAFKA_FIELDS = ("topic", "partition", "offset", "timestamp", "key", "headers")
KAFKA_TYPE = pa.struct([SCHEMA.field(name) for name in KAFKA_FIELDS])
KAFKA_FIELD = pa.field(KAFKA, KAFKA_TYPE)
"""Hidden column: expressions may name it (`pc.field("_kafka", "offset")`), and functions get it with `kafka=True`."""

NO_RECORD = -1


def with_kafka(schema: pa.Schema) -> pa.Schema:
    """The schema with the hidden column appended."""
    return schema.append(KAFKA_FIELD)


def kafka_struct(source: pa.RecordBatch, origin: Numbers) -> Array:
    """The `_kafka` column of rows; null for a row that belongs to no single record."""
    none = origin == NO_RECORD
    if none.any():
        at = pa.array(origin, mask=none)
        children = [source.column(name).take(at) for name in KAFKA_FIELDS]
        return pa.StructArray.from_arrays(children, fields=list(KAFKA_TYPE), mask=pa.array(none))
    columns = [source.column(name) for name in KAFKA_FIELDS]
    if not _is_all(origin, source.num_rows):
        at = pa.array(origin)
        columns = [column.take(at) for column in columns]
    return pa.StructArray.from_arrays(columns, fields=list(KAFKA_TYPE))


def _is_all(origin: Numbers, rows: int) -> bool:
    return len(origin) == rows and bool((origin == np.arange(rows, dtype=np.int32)).all())


def check_names(stage: str, schema: pa.Schema) -> None:
    """Raises `ConfigError` for a schema with a duplicate name, or with the hidden column's."""
    names = schema.names
    for name in names:
        if name == KAFKA:
            raise ConfigError(
                stage, f"has a column {KAFKA!r}: that name is the hidden column's; give it another"
            )
        if names.count(name) > 1:
            raise ConfigError(stage, f"has more than one column {name!r}")


class StageRows(NamedTuple):
    """Rows with their records: `origin[i]` is the number, in the batch that was read, of the record of row i; -1: it belongs
    to no single record.

    The hidden column `_kafka` is made from these numbers only where it is used.
    """

    batch: pa.RecordBatch
    origin: Numbers

    def take(self, mask: npt.NDArray[np.bool_]) -> StageRows:
        """The rows for which the mask is true."""
        return StageRows(self.batch.filter(pa.array(mask)), self.origin[mask])

    def slice(self, first: int, count: int) -> StageRows:
        return StageRows(self.batch.slice(first, count), self.origin[first : first + count])

    def with_kafka(self, source: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the hidden column appended."""
        return self.batch.append_column(KAFKA_FIELD, kafka_struct(source, self.origin))

    def column_of(self, name: str, source: pa.RecordBatch) -> Array:
        """A column of the records that were read, for these rows; null for a row that belongs to no single record."""
        column = source.column(name)
        if _is_all(self.origin, source.num_rows):
            return column
        return column.take(pa.array(self.origin, mask=self.origin == NO_RECORD))

    def records(self, count: int) -> Numbers:
        """The numbers of the records of these rows, ascending; all of the `count` records where a row belongs to no single one."""
        if (self.origin == NO_RECORD).any():
            return np.arange(count, dtype=np.int32)
        return np.unique(self.origin)


def rows_of(source: pa.RecordBatch) -> StageRows:
    """The rows of a batch that was read, each its own record."""
    return StageRows(source, np.arange(source.num_rows, dtype=np.int32))
