"""Arrow RecordBatches with the columns of Spark's Kafka source, from the kernel's buffers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_actors.base.batches import HEADER_TYPE, HEADERS_TYPE, SCHEMA

from .batch import BinaryBuffers, ColumnBuffers, HeaderBuffers

Array: TypeAlias = Any  # pyarrow publishes no types of its own

EMPTY: pa.RecordBatch = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in SCHEMA], schema=SCHEMA)


def fixed_width(values: npt.NDArray[Any], kind: pa.DataType) -> Array:
    """Returns an array over a numpy array's memory. `pa.array` would do, but its first call imports pandas if that is
    installed, which delays the first batch by half a second."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.data)], 0)


def record_batch(topic: str, partition: int, columns: ColumnBuffers) -> pa.RecordBatch:
    """Returns a batch of one partition; columns that are equal in all rows share memory between batches."""
    rows = columns.rows
    if rows == 0:
        return EMPTY
    bucket = 1 << (rows - 1).bit_length()
    arrays = [
        _binary(rows, columns.key),
        _binary(rows, columns.value),
        _constant_string(topic, bucket)[:rows],
        _constant_int32(partition, bucket)[:rows],
        pa.Array.from_buffers(pa.int64(), rows, [None, columns.offset], 0),
        pa.Array.from_buffers(SCHEMA.field(5).type, rows, [None, columns.timestamp], 0),
        pa.Array.from_buffers(pa.int32(), rows, [None, columns.timestamp_type], 0),
        _headers(rows, bucket, columns.headers),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _binary(rows: int, column: BinaryBuffers) -> Array:
    return pa.Array.from_buffers(
        pa.binary(), rows, [column.validity, column.offsets, column.data], column.nulls
    )


@lru_cache(maxsize=16)
def _constant_string(value: str, rows: int) -> Array:
    data = value.encode()
    offsets = np.arange(rows + 1, dtype=np.int64) * len(data)
    if offsets[-1] < 2**31:
        buffers = [None, pa.py_buffer(offsets.astype(np.int32).data), pa.py_buffer(data * rows)]
        return pa.Array.from_buffers(pa.string(), rows, buffers, 0)
    raise OverflowError(f"{rows} rows of topic {value} pass 2 GB in one column; lower chunk_rows")


@lru_cache(maxsize=32)
def _constant_int32(value: int, rows: int) -> Array:
    return fixed_width(np.full(rows, value, dtype=np.int32), pa.int32())


@lru_cache(maxsize=8)
def _no_headers(rows: int) -> Array:
    zeros = pa.py_buffer(bytes(4 * (rows + 1)))  # no bit is set and no list has elements
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [zeros, zeros], rows, 0, [pa.nulls(0, HEADER_TYPE)])


def _headers(rows: int, bucket: int, headers: HeaderBuffers | None) -> Array:
    if headers is None:
        return _no_headers(bucket)[:rows]
    element = pa.StructArray.from_arrays(
        [_header_keys(headers), _binary(headers.count, headers.value)], fields=list(HEADER_TYPE)
    )
    buffers: list[pa.Buffer | None] = [headers.validity, headers.offsets]
    return pa.Array.from_buffers(HEADERS_TYPE, rows, buffers, headers.nulls, 0, [element])


def _header_keys(headers: HeaderBuffers) -> Array:
    """Returns header keys as strings; Arrow demands valid UTF-8, so invalid bytes become U+FFFD, as in Java."""
    raw: Array = _binary(headers.count, headers.key)
    if headers.ascii:
        return raw.view(pa.string())
    keys = [key.decode("utf-8", "replace").encode() for key in raw.to_pylist()]
    offsets = np.zeros(len(keys) + 1, dtype=np.int32)
    np.cumsum([len(key) for key in keys], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(b"".join(keys))]
    return pa.Array.from_buffers(pa.string(), len(keys), buffers, 0)
