"""Record batches of format v2 from Arrow columns."""

from __future__ import annotations

import gzip
from itertools import pairwise
from typing import Any, Final, Literal

import cramjam
import pyarrow as pa
import zstandard

from kafka_actors.records._reference import crc32c
from kafka_actors.records.batch import (
    ATTRIBUTES_AT,
    CONTROL,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from kafka_actors.records.compression import CODECS
from kafka_actors.records.record import write_record

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]

_MAGIC: Final = 2
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
) -> bytes:
    """One record batch of format v2 with the rows of `batch`.

    Of the eight columns any may be missing: keys and values are then null, offsets count up from `base_offset`
    (default 0; else the first row's), timestamps (microseconds, written as milliseconds) are -1 ms, headers none.
    `topic`, `partition` and `timestampType` are not part of the format. `last_offset` may lie behind the last row,
    as in a compacted log. `level` is the codec's own. Raises ValueError for an unknown codec and for offsets that
    don't rise or don't fit one batch.
    """
    if codec not in CODECS:
        raise ValueError(f"codec is one of {', '.join(CODECS)}, not {codec!r}")
    rows = batch.num_rows
    offsets = _offsets(batch, base_offset)
    base = base_offset if base_offset is not None else (offsets[0] if offsets else 0)
    last = last_offset if last_offset is not None else (offsets[-1] if offsets else base)
    _check_offsets(offsets, base, last)
    timestamps = _timestamps(batch)
    base_timestamp = timestamps[0] if timestamps else _NO_TIMESTAMP
    body = _records(batch, [offset - base for offset in offsets], timestamps, base_timestamp)
    flags = {
        TIMESTAMP_TYPE: timestamp_type == "log_append_time",
        TRANSACTIONAL: is_transactional,
        CONTROL: is_control,
    }
    attributes = CODECS[codec] | sum(bit for bit, is_set in flags.items() if is_set)
    packed = _compress(codec, level, bytes(body))
    length = HEADER_SIZE - LOG_OVERHEAD + len(packed)
    max_timestamp = max(timestamps, default=_NO_TIMESTAMP)
    start = (base, length, partition_leader_epoch, _MAGIC, 0, attributes, last - base)
    header = HEADER.pack(
        *start, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, rows
    )
    return _sealed(header, packed)


def _sealed(header: bytes, packed: bytes) -> bytes:
    """The whole batch, with its checksum set."""
    out = bytearray(header + packed)
    out[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(out)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(out)


def _column(batch: pa.RecordBatch, name: str) -> list[Any] | None:
    if name not in batch.schema.names:
        return None
    values: list[Any] = batch.column(name).to_pylist()
    return values


def _offsets(batch: pa.RecordBatch, base: int | None) -> list[int]:
    offsets = _column(batch, "offset")
    return offsets if offsets is not None else [(base or 0) + i for i in range(batch.num_rows)]


def _check_offsets(offsets: list[int], base: int, last: int) -> None:
    rising = all(a < b for a, b in pairwise(offsets))
    if not rising or not 0 <= base <= last < base + 2**31 or (offsets and not base <= offsets[0]):
        raise ValueError("the offsets of a batch rise from its base offset on, and span less than 2^31")
    if offsets and offsets[-1] > last:
        raise ValueError(f"last_offset {last} is before the last record's offset {offsets[-1]}")


def _timestamps(batch: pa.RecordBatch) -> list[int]:
    """Milliseconds; what is missing or null is -1."""
    if "timestamp" not in batch.schema.names:
        return [_NO_TIMESTAMP] * batch.num_rows
    micros = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).view(pa.int64()).to_pylist()
    return [_NO_TIMESTAMP if t is None else t // 1000 for t in micros]


def _records(
    batch: pa.RecordBatch, deltas: list[int], timestamps: list[int], base_timestamp: int
) -> bytearray:
    nothing: list[Any] = [None] * batch.num_rows
    keys, values = _column(batch, "key") or nothing, _column(batch, "value") or nothing
    headers = _column(batch, "headers") or nothing
    out = bytearray()
    for delta, timestamp, key, value, pairs in zip(deltas, timestamps, keys, values, headers, strict=True):
        encoded = [(pair["key"].encode(), pair["value"]) for pair in pairs or ()]
        write_record(out, timestamp - base_timestamp, delta, key, value, encoded)
    return out


def _compress(codec: Codec, level: int | None, body: bytes) -> bytes:
    if codec == "gzip":
        return gzip.compress(body, 6 if level is None else level, mtime=0)
    if codec == "snappy":
        return bytes(cramjam.snappy.compress_raw(body))
    if codec == "lz4":
        # Java reads frames of independent blocks only, and cramjam's one-shot call links them.
        frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        frame.compress(body)
        return bytes(frame.finish())
    if codec == "zstd":
        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(body)
    return body
