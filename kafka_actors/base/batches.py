"""Schema of record batches, and the batches in what a user's function returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_actors.errors import kind_of

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(pa.field("element", HEADER_TYPE))

_FIELDS: list[Any] = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
    pa.field("headers", HEADERS_TYPE),
]

SCHEMA: pa.Schema = pa.schema(_FIELDS)
"""Schema of every batch of records: eight columns, with the types of Spark's Kafka source.

`timestampType` is 0 for CreateTime, 1 for LogAppendTime, -1 where the format (v0) has none; `timestamp` is then
-1 ms, as in Java and Spark. `headers` is null for a record without headers."""


_DTYPES: dict[int, np.dtype[Any]] = {32: np.dtype(np.int32), 64: np.dtype(np.int64)}


def numbers(column: Any) -> npt.NDArray[Any]:
    """A view of a column of numbers or times without nulls, as a numpy array without a copy. `to_numpy` would import pandas,
    which takes longer than reading a consumer's first records."""
    dtype = _DTYPES[column.type.bit_width]
    _, data = column.buffers()
    if data is None:  # a column without rows
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype, len(column), column.offset * dtype.itemsize)


def rows_of(batch: pa.RecordBatch, rows: Sequence[int]) -> pa.RecordBatch:
    """Rows of a batch by their numbers, in this order. `pa.array` would import pandas where that is installed: half a second, and 45 MB in each process."""
    indices = np.array(rows, np.int32)
    return batch.take(pa.Array.from_buffers(pa.int32(), len(indices), [None, pa.py_buffer(indices)]))


def rows_where(batch: pa.RecordBatch, mask: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Rows of a batch for which a mask says so. Without pandas, as `rows_of`."""
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return batch.filter(pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits]))


def copy_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy of a batch in memory of its own. Without pandas, as `rows_of`."""
    return pa.concat_batches([batch.slice(0, 1), batch.slice(1)])


def first_and_last_offset(batch: pa.RecordBatch) -> tuple[int, int]:
    """The offsets of the first and the last record of a fetched batch with rows."""
    offsets = numbers(batch.column("offset"))
    return int(offsets[0]), int(offsets[-1])


def batches_of(result: Any, function: str, within: str = "") -> Iterator[pa.RecordBatch]:
    """Yields the batches in what `function` returned: a RecordBatch, a Table, an iterable of these, or None.

    Raises `TypeError` for anything else; its text names the function, and the type of the iterable (`within`).
    """
    if result is None:
        return
    if isinstance(result, pa.RecordBatch):
        yield result
    elif isinstance(result, pa.Table):
        yield from result.combine_chunks().to_batches()
    elif isinstance(result, Iterable) and not isinstance(result, (str, bytes, dict)):
        for part in result:
            yield from batches_of(part, function, f" in {kind_of(result)}")
    else:
        what = kind_of(result) + within
        raise TypeError(f"{function} returned {what}: give a RecordBatch, a Table, several, or None")
