"""`encode`: record batches of format v2 from Arrow columns; `row_columns`: the columns of a producer's users, of many types, as the
few types that are written.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import cramjam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

from .batch import (
    CONTROL,
    HEADER_SIZE,
    MAX_BINARY,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    BinaryColumn,
    HeadersColumn,
    Kernel,
    RowColumns,
)
from .compression import CODECS
from .kernel import ACTIVE

if TYPE_CHECKING:
    from typing_extensions import Buffer

Array: TypeAlias = Any  # pyarrow publishes no types of its own

_WIDE = (pa.large_binary(), pa.large_string())
_PLAIN = (pa.binary(), pa.string(), *_WIDE)


def row_columns(
    batch: pa.RecordBatch, default_timestamp: int, deltas: npt.NDArray[np.int64] | None = None
) -> RowColumns:
    """Returns the columns `key`, `value`, `headers` and `timestamp` of a batch, each of which may be missing.

    Keys and values are binary or text, headers a list of structs of a text `key` and a binary `value`, timestamps
    of any unit or integers in milliseconds; where one is null it is `default_timestamp`, in milliseconds. Raises
    `TypeError` with the column's name for any other type, `OverflowError` for a timestamp beyond 64 bits.
    """
    return RowColumns(
        batch.num_rows,
        _binary(_column(batch, "key"), "key"),
        _binary(_column(batch, "value"), "value"),
        _headers(_column(batch, "headers")),
        _timestamps(_column(batch, "timestamp"), default_timestamp),
        deltas,
    )


def _column(batch: pa.RecordBatch, name: str) -> Array | None:
    at = batch.schema.get_field_index(name)
    if at < 0:
        if batch.schema.names.count(name) > 1:
            raise TypeError(f"there is more than one column {name}")
        return None
    column = batch.column(at)
    return None if pa.types.is_null(column.type) else column


def _binary(array: Array | None, name: str) -> BinaryColumn | None:
    if array is None or pa.types.is_null(array.type):
        return None
    if array.type not in _PLAIN:
        array = _cast_to_binary(array, name)
    validity, offsets, data = array.buffers()
    if offsets is None:
        return None  # no rows
    return BinaryColumn(
        validity if array.null_count else None, offsets, data, array.offset, array.type in _WIDE
    )


def _cast_to_binary(array: Array, name: str) -> Array:
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    views = [getattr(pa.types, check, lambda _: False) for check in ("is_binary_view", "is_string_view")]
    if kind not in _PLAIN and not pa.types.is_fixed_size_binary(kind) and not any(v(kind) for v in views):
        raise TypeError(
            f"column {name} is {array.type}: it must be binary or string; cast it to what is to be sent"
        )
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.large_binary())


def _headers(array: Array | None) -> HeadersColumn | None:
    if array is None:
        return None
    if pa.types.is_map(array.type):
        at = 0
        key, value = array.keys, array.items
    elif pa.types.is_list(array.type) and pa.types.is_struct(array.type.value_type):
        at = _key_field(array.type.value_type)
        key, value = array.values.field(at), array.values.field(1 - at)
    elif pa.types.is_list(array.type) and pa.types.is_null(array.type.value_type):
        if len(array.flatten()):
            raise TypeError("column headers: a header is null")
        return None  # the type of lists that are all empty
    else:
        raise TypeError(
            f"column headers is {array.type}: it must be list<struct<key: string, value: binary>>"
        )
    if key.null_count or array.values.null_count:
        _check_written(array.flatten(), at)
    validity, offsets, *_ = array.buffers()
    keys, values = _binary(key, "headers.key"), _binary(value, "headers.value")
    if offsets is None or keys is None:
        return None  # no rows, or no header in any of them
    nothing = BinaryColumn(pa.py_buffer(bytes(len(value) // 8 + 1)), keys.offsets, None, 0, False)
    return HeadersColumn(
        validity if array.null_count else None, offsets, array.offset, keys, values or nothing
    )


def _key_field(header: pa.DataType) -> int:
    """Returns the number of the field `key`, of two. Both are read of all headers, from the first on, whatever the column's own offset is."""
    names = [field.name for field in header]
    if sorted(names) != ["key", "value"]:
        raise TypeError(f"column headers has the fields {', '.join(names)}: they must be key and value")
    return names.index("key")


def _check_written(headers: Array, key: int) -> None:
    """Raises `TypeError` where a header or its key is null. The headers are those of the rows that are written: those of null lists, and of rows
    in front of a slice and behind it, are in the same buffers."""
    if headers.null_count:
        raise TypeError("column headers: a header is null")
    if headers.field(key).null_count:
        raise TypeError("column headers: a header's key is null")


def _timestamps(array: Array | None, default: int) -> npt.NDArray[np.int64] | None:
    if array is None:
        return None
    if pa.types.is_timestamp(array.type):
        divisor, factor = {"s": (1, 1000), "ms": (1, 1), "us": (1000, 1), "ns": (1_000_000, 1)}[
            array.type.unit
        ]
        array = array.view(pa.int64())
    elif pa.types.is_integer(array.type):
        divisor, factor = 1, 1
    else:
        raise TypeError(f"column timestamp is {array.type}: it must be a timestamp, or int64 in milliseconds")
    try:
        plain: npt.NDArray[np.int64] = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        raise OverflowError("column timestamp has numbers beyond 64 bits, signed") from None
    if factor > 1 and len(plain) and max(int(plain.max()), -int(plain.min())) * factor >= 2**63:
        raise OverflowError("column timestamp has seconds beyond 64 bits of milliseconds")
    # Rounded down as Spark does it: also before 1970.
    millis = plain // divisor if divisor > 1 else plain * factor
    if array.null_count:
        millis = np.where(array.is_null().to_numpy(zero_copy_only=False), default, millis)
    return np.ascontiguousarray(millis)


Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]

_NO_TIMESTAMP: Final = -1


def encode(
    batch: pa.RecordBatch,
    *,
    codec: Codec = "none",
    level: int | None = None,
    base_offset: int | None = None,
    last_offset: int | None = None,
    timestamp_type: Literal["create_time", "log_append_time"] = "create_time",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    kernel: Kernel = ACTIVE,
) -> bytes:
    """Returns one record batch of format v2 with the rows of `batch`.

    Any of the eight columns may be missing: keys and values are then null, offsets count up from `base_offset`
    (default 0; else the first row's), timestamps (microseconds, written as milliseconds) are -1 ms, headers none.
    `topic`, `partition` and `timestampType` are not part of the format. `last_offset` may lie behind the last row,
    as in a compacted log. `level` is the codec's own. Raises ValueError for an unknown codec and for offsets that
    don't rise or don't fit one batch, TypeError for a column of a type that can't be written.
    """
    if codec not in get_args(Codec):
        raise ValueError(f"codec is one of {', '.join(CODECS)}, not {codec!r}")
    offsets = _offsets(batch, base_offset)
    rows = batch.num_rows
    base = base_offset if base_offset is not None else (int(offsets[0]) if rows else 0)
    last = last_offset if last_offset is not None else (int(offsets[-1]) if rows else base)
    _check_offsets(offsets, base, last)
    columns = row_columns(batch, _NO_TIMESTAMP, offsets - base)
    writer = kernel.writer(HEADER_SIZE + 2 * batch.nbytes // max(1, len(batch.schema)))
    writer.append(kernel.rows(columns, _NO_TIMESTAMP), None, 0, rows, MAX_BINARY)
    if CODECS[codec]:
        writer.pack(compress(codec, writer.body(), level), CODECS[codec])
    flags = {
        TIMESTAMP_TYPE: timestamp_type == "log_append_time",
        TRANSACTIONAL: is_transactional,
        CONTROL: is_control,
    }
    attributes = sum(bit for bit, is_set in flags.items() if is_set)
    return bytes(
        writer.seal(
            producer_id, producer_epoch, base_sequence, base, last - base, attributes, partition_leader_epoch
        )
    )


def _offsets(batch: pa.RecordBatch, base: int | None) -> npt.NDArray[np.int64]:
    if "offset" not in batch.schema.names:
        return np.arange(batch.num_rows, dtype=np.int64) + (base or 0)
    offsets: npt.NDArray[np.int64] = batch.column("offset").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return offsets


def _check_offsets(offsets: npt.NDArray[np.int64], base: int, last: int) -> None:
    rising = bool((offsets[1:] > offsets[:-1]).all())
    if not rising or not 0 <= base <= last < base + 2**31 or (len(offsets) and not base <= offsets[0]):
        raise ValueError("the offsets of a batch rise from its base offset on, and span less than 2^31")
    if len(offsets) and offsets[-1] > last:
        raise ValueError(f"last_offset {last} is before the last record's offset {offsets[-1]}")


def compress(codec: Codec, body: memoryview, level: int | None = None) -> Buffer:
    """Returns the records of a batch, compressed as a whole; `level` is the codec's own, None its default."""
    if codec == "gzip":
        return gzip.compress(body, 6 if level is None else level, mtime=0)
    if codec == "snappy":
        packed: Buffer = cramjam.snappy.compress_raw(body)
        return packed
    if codec == "lz4":
        # Java reads frames of independent blocks only, and cramjam's one-shot call links them.
        frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        frame.compress(bytes(body))  # it takes bytes only
        whole: Buffer = frame.finish()
        return whole
    if codec == "zstd":
        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(body)
    return body
