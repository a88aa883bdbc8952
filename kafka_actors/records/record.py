"""Single records in plain Python, for the twin kernel: reads all formats, writes v2."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from .batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    MIN_LENGTH_V0,
    MIN_LENGTH_V1,
    MIN_RECORD,
    ColumnField,
    Fill,
)

NO_TIMESTAMP: Final = -1

Headers = Sequence[tuple[bytes, bytes | None]]


class MalformedError(Exception):
    """A record can't be read; `code` says why."""

    def __init__(self, code: Fill) -> None:
        super().__init__(code.name)
        self.code = code


class Record(NamedTuple):
    """A parsed record; `end` is the position behind it."""

    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


def wrap_int64(value: int) -> int:
    """Returns the value that 64 bits keep of an int, signed."""
    return (value + 2**63) % 2**64 - 2**63


def read_varint(data: bytes | memoryview, pos: int, end: int, bits: int = 32) -> tuple[int, int]:
    """Returns a zigzag varint and the position behind it. Bits beyond the type are dropped, as Kafka does."""
    value = 0
    for shift in range(0, bits, 7):
        if pos >= end:
            raise MalformedError(Fill.TRUNCATED)
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << bits) - 1
            return (value >> 1) ^ -(value & 1), pos
    raise MalformedError(Fill.TRUNCATED)


def write_varint(out: bytearray, value: int) -> None:
    """Appends a zigzag varint; also for varlongs."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def _read_bytes(data: memoryview, pos: int, end: int, least: int) -> tuple[bytes | None, int]:
    """Reads a length, not below `least`, and that many bytes; -1 is None. Returns them and the position behind."""
    length, pos = read_varint(data, pos, end)
    if length < least or length > end - pos:
        raise MalformedError(Fill.BAD_FIELD)
    if length < 0:
        return None, pos
    return bytes(data[pos : pos + length]), pos + length


def read_record(data: memoryview, pos: int, end: int) -> Record:
    """Returns the record that begins at `pos`; raises MalformedError."""
    length, pos = read_varint(data, pos, end)
    if length < MIN_RECORD - 1:
        raise MalformedError(Fill.BAD_FIELD)
    if length > end - pos:
        raise MalformedError(Fill.TRUNCATED)
    end = pos + length
    timestamp_delta, pos = read_varint(data, pos + 1, end, 64)
    offset_delta, pos = read_varint(data, pos, end)
    key, pos = _read_bytes(data, pos, end, -1)
    value, pos = _read_bytes(data, pos, end, -1)
    count, pos = read_varint(data, pos, end)
    if count < 0 or count > (end - pos) // 2:
        raise MalformedError(Fill.BAD_HEADER_COUNT)
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        header_key, pos = _read_bytes(data, pos, end, 0)
        header_value, pos = _read_bytes(data, pos, end, -1)
        headers.append((header_key or b"", header_value))
    if pos != end:
        raise MalformedError(Fill.TRAILING)
    return Record(end, timestamp_delta, offset_delta, key, value, headers)


def read_field(data: memoryview, pos: int, end: int) -> tuple[bytes | None, int]:
    """Reads a key or a value of the old formats: its length in 4 bytes, -1 for None, and the bytes."""
    if end - pos < 4:
        raise MalformedError(Fill.TRUNCATED)
    (length,) = struct.unpack_from(">i", data, pos)
    pos += 4
    if length < -1 or length > end - pos:
        raise MalformedError(Fill.BAD_FIELD)
    return (None, pos) if length < 0 else (bytes(data[pos : pos + length]), pos + length)


def read_message(data: memoryview, pos: int, end: int, magic: int) -> Record:
    """Returns the uncompressed message of format v0 or v1 that begins at `pos`, with its deltas as stored; raises
    MalformedError."""
    if end - pos <= MAGIC_AT + 1:
        raise MalformedError(Fill.TRUNCATED)
    offset, length, stored, found, attributes = struct.unpack_from(">qiIBB", data, pos)
    if found != magic or attributes & CODEC_MASK:
        raise MalformedError(Fill.BAD_FORMAT)
    if length < (MIN_LENGTH_V0, MIN_LENGTH_V1)[magic]:
        raise MalformedError(Fill.BAD_FIELD)
    if length > end - pos - LOG_OVERHEAD:
        raise MalformedError(Fill.TRUNCATED)
    end = pos + LOG_OVERHEAD + length
    if zlib.crc32(data[pos + MAGIC_AT : end]) != stored:
        raise MalformedError(Fill.BAD_CRC)
    pos += MAGIC_AT + 2
    timestamp = NO_TIMESTAMP
    if magic:
        (timestamp,) = struct.unpack_from(">q", data, pos)
        pos += 8
    key, pos = read_field(data, pos, end)
    value, pos = read_field(data, pos, end)
    if pos != end:
        raise MalformedError(Fill.TRAILING)
    return Record(end, timestamp, offset, key, value, [])


def timestamp_of(batch: Sequence[int], record: Record) -> int:
    """Returns the timestamp in milliseconds of a record of a batch (a row of a batch table); it wraps as Java's does."""
    if batch[ColumnField.TIMESTAMP_TYPE] == LOG_APPEND_TIME:
        return batch[ColumnField.MAX_TIMESTAMP]
    return wrap_int64(batch[ColumnField.BASE_TIMESTAMP] + record.timestamp_delta)


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(value))
        out += value


def write_record(
    out: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
) -> None:
    """Appends one record."""
    body = bytearray(b"\0")
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, key)
    _write_bytes(body, value)
    write_varint(body, len(headers))
    for header_key, header_value in headers:
        _write_bytes(body, header_key)
        _write_bytes(body, header_value)
    write_varint(out, len(body))
    out += body


def control_type(body: bytes) -> int | None:
    """Returns the type in the key of a control batch's first record (0 abort, 1 commit); None if there is none."""
    try:
        key = read_record(memoryview(body), 0, len(body)).key
    except MalformedError:
        return None
    if key is None or len(key) < 4:
        return None
    return int.from_bytes(key[2:4], "big", signed=True)
