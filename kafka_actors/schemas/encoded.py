"""Results of encoding: one value or one error for each row."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from .decoded import Array, Failure, Numbers, row_of_each
from .errors import SerializationError


class EncodedValues(NamedTuple):
    """Encoded values (a BinaryArray without nulls), the number of each one's row (ascending), and the rows that failed."""

    values: Array
    records: Numbers
    failures: list[Failure]


class ValueEncoder(Protocol):
    """ValueEncoder of rows. It can be pickled; what it compiles is made again where it arrives."""

    def check(self, columns: pa.Schema) -> None:
        """Raises `ConfigError`, naming the path, for columns that can't be written by the schema, whatever their values are."""
        ...

    def encode(self, rows: Any) -> EncodedValues:
        """Encodes a RecordBatch or a StructArray. A row that is null, or can't be encoded, is a failure. Raises as `check`."""
        ...


NULL = "the row is null"


def encoded_column(encoder: ValueEncoder, rows: Any) -> Array:
    """The values as a BinaryArray as long as `rows`, with nulls for null rows. Raises `SerializationError` for the first other row that
    can't be encoded, and as `encode`."""
    made = encoder.encode(rows)
    for number, reason in made.failures:
        if not (isinstance(rows, pa.StructArray) and rows[number].as_py() is None):
            raise SerializationError(number, reason)
    if len(made.values) == len(rows):
        return made.values
    return made.values.take(row_of_each(made.records, len(rows)))


def struct_of(rows: Any) -> Array:
    """The rows as a StructArray. Raises `TypeError`."""
    if isinstance(rows, pa.StructArray):
        return rows
    if isinstance(rows, pa.RecordBatch):
        if rows.num_columns:
            return rows.to_struct_array()
        return pa.array([{}] * rows.num_rows, pa.struct([]))
    raise TypeError(f"the rows are {type(rows).__name__}: give a RecordBatch or a StructArray")


def numbers_without(rows: int, failures: list[Failure]) -> Numbers:
    """The numbers of the rows that didn't fail."""
    good = np.ones(rows, dtype=bool)
    good[[row for row, _ in failures]] = False
    return np.flatnonzero(good).astype(np.int32)
