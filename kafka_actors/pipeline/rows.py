"""Rows on their way through the stages, each with the number of the record that it came from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .columns import KAFKA_FIELD, NO_RECORD, Numbers, kafka_struct


class StageRows(NamedTuple):
    """`origin[i]` is the number, in the batch that was read, of the record that row i came from; -1: of no single one.

    So the hidden `_kafka` costs nothing until somebody asks for it.
    """

    batch: pa.RecordBatch
    origin: Numbers

    def take(self, mask: npt.NDArray[np.bool_]) -> StageRows:
        """The rows that the mask marks."""
        return StageRows(self.batch.filter(pa.array(mask)), self.origin[mask])

    def slice(self, first: int, count: int) -> StageRows:
        return StageRows(self.batch.slice(first, count), self.origin[first : first + count])

    def with_kafka(self, source: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the hidden column at its end."""
        return self.batch.append_column(KAFKA_FIELD, kafka_struct(source, self.origin))

    def records(self, count: int) -> Numbers:
        """The records that these rows came from, ascending, of `count`: all where one belongs to no single record."""
        if (self.origin == NO_RECORD).any():
            return np.arange(count, dtype=np.int32)
        return np.unique(self.origin)


def rows_of(source: pa.RecordBatch) -> StageRows:
    """A batch as it was read."""
    return StageRows(source, np.arange(source.num_rows, dtype=np.int32))


class FailedRecord(NamedTuple):
    """A record that a stage could not take: its number in the batch that was read, and why."""

    record: int
    stage: str
    reason: str
