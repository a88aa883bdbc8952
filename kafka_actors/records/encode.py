"""`encode`: record batches of format v2 from Arrow columns."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Final, Literal, get_args

import cramjam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

from .batch import CONTROL, HEADER_SIZE, MAX_BINARY, TIMESTAMP_TYPE, TRANSACTIONAL, Kernel
from .columns import row_columns
from .compression import CODECS
from .kernel import ACTIVE

if TYPE_CHECKING:
    from typing_extensions import Buffer

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
