"""Results of decoding and of encoding: one row or one error for each value, one value or one error for each row, and never another's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .errors import DeserializationError, SerializationError
from .registry import Schema, SchemaKey

Numbers: TypeAlias = npt.NDArray[np.int32]
Array: TypeAlias = Any  # pyarrow publishes no types of its own
Failure: TypeAlias = tuple[int, str]
"""Number of a value or row, and why it couldn't be decoded or encoded."""


# ---------------------------------------------------------------- decoding


class DecodedRows(NamedTuple):
    """Decoded rows, the number of each one's value (ascending), and the values that failed. `schemas`: ids and GUIDs of those that values were
    written by, where they have frames."""

    batch: pa.RecordBatch
    records: Numbers
    failures: list[Failure]
    schemas: tuple[SchemaKey, ...] = ()


class ValueDecoder(Protocol):
    """ValueDecoder of a binary column. It can be pickled; what it compiles is made again where it arrives."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows, which don't depend on the values."""
        ...

    @property
    def framed(self) -> bool:
        """Whether values have the frame of a registry's serializer, which may be in a header of the record."""
        ...

    @property
    def of_records(self) -> bool:
        """Whether values are records; otherwise the only column, `value`, is the value itself."""
        ...

    @property
    def fails_again(self) -> bool:
        """Whether a value that fails does so each time it is decoded; not where its schema may be in the registry by then."""
        ...

    def decode(self, values: Array) -> DecodedRows:
        """Decodes an Arrow array of type binary. A null, and a value that can't be decoded, is a failure. Raises
        `SchemaRegistryError` where the registry can't be asked for a schema: then nothing is known of the values."""
        ...

    def read_by(self, schema: Schema, references: Mapping[str, str]) -> ValueDecoder:
        """A decoder of the same values into the columns of another schema of the registry; `references` are the texts to which that refers.
        Raises `ConfigError` for one that can't be a reader's."""
        ...

    def knowing(self, known: Mapping[SchemaKey, Schema]) -> ValueDecoder:
        """A decoder of the same values that knows more writers' schemas beforehand, by id or GUID."""
        ...

    def refusal(self, schema: Schema) -> str:
        """Why no value by a writer's schema can be decoded; empty where there is no such reason."""
        ...


def row_of_each(records: Any, count: int) -> Array:
    """Indices for `take`, which make rows of some of `count` records as long as all of them: for each record the number of its row, null
    where it has none. `records` are the records' numbers, one for each row."""
    at = np.full(count, -1, dtype=np.int32)
    at[records] = np.arange(len(records), dtype=np.int32)
    return pa.array(at, mask=at < 0)


def decoded_struct(decoder: ValueDecoder, values: Array) -> Array:
    """The rows as a StructArray as long as `values`, with nulls for nulls. Raises `DeserializationError` for the first other value that
    can't be decoded, and as `decode`."""
    rows = decoder.decode(values)
    for number, reason in rows.failures:
        if values[number].is_valid:
            raise DeserializationError(number, reason)
    made = rows.batch.to_struct_array()
    return made if len(made) == len(values) else made.take(row_of_each(rows.records, len(values)))


# ---------------------------------------------------------------- encoding


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


NULL_ROW = "the row is null"


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
