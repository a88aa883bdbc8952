"""The twin of `_protobuf_encoder_kernel.pyx` in plain Python: the same programs, with the same values and the same failures."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ._reference_avro_encoder import values_of
from .framing import varint
from .protobuf_json import GOOD
from .protobuf_program import (
    ALWAYS,
    BARE,
    LAST_SECOND,
    NO_SYMBOL,
    NULLABLE,
    WIDTH,
    NumberRange,
    Stored,
    WriteCode,
    WriteOp,
    WriteProgram,
)
from .written_columns import WriterMachine

_LIMITS = {
    NumberRange.INT32: (-(2**31), 2**31 - 1),
    NumberRange.UINT32: (0, 2**32 - 1),
    NumberRange.INT64: (-(2**63), 2**63 - 1),
    NumberRange.UINT64: (0, 2**64 - 1),
}


class _RowFailed(Exception):
    def __init__(self, code: WriteCode, number: int = 0) -> None:
        super().__init__(code, number)
        self.code = code
        self.number = number


class ReferenceProtobufWriterMachine(WriterMachine):
    """Program in plain Python."""

    def __init__(self, program: WriteProgram) -> None:
        self._program = program

    def run(
        self, columns: Sequence[Any], rows: int, frame: bytes
    ) -> tuple[Any, list[tuple[int, int, int, int]]]:
        """Writes so many rows, each behind `frame`. Returns a binary array of those that could be written, and
        (row, code, step, number) of the others."""
        writing = _MessageWriting(self._program, [values_of(column) for column in columns])
        values, failures = [], []
        for row in range(rows):
            try:
                values.append(frame + writing.written(0, row))
            except _RowFailed as failed:
                failures.append((row, int(failed.code), writing.at, failed.number))
        return pa.array(values, pa.binary()), failures


class _MessageWriting:
    """Columns of a batch. `at` is the step that writes now."""

    def __init__(self, program: WriteProgram, columns: list[list[Any]]) -> None:
        self._program = program
        self._columns = columns
        self.at = 0

    def written(self, at: int, row: int) -> bytes:
        """The bytes that step `at` writes of its column in this row."""
        op, column, stored, size, flags, first, count = self._program.steps[WIDTH * at : WIDTH * (at + 1)]
        children = self._program.children[first : first + count]
        tag = self._program.tags[at]
        self.at = at
        if op == WriteOp.ONEOF:
            self._check_members(children, row)
            return b""
        value = self._columns[column][row]
        if value is None:
            if flags & NULLABLE:
                return b""
            raise _RowFailed(WriteCode.NO_VALUE)
        match op:
            case WriteOp.MESSAGE:
                body = self._all(children, row)
                return body if flags & BARE else tag + varint(len(body)) + body
            case WriteOp.GROUP:
                return tag + self._all(children, row) + _end_of(tag)
            case WriteOp.LIST:
                return b"".join(self.written(children[0], item) for item in range(*value))
            case WriteOp.PACKED:
                body = b"".join(self.written(children[0], item) for item in range(*value))
                return tag + varint(len(body)) + body if body else b""
            case WriteOp.MAP:
                entries = (self._all(children, item) for item in range(*value))
                return b"".join(tag + varint(len(entry)) + entry for entry in entries)
        empty, data = _scalar(WriteOp(op), Stored(stored), size, value)
        return b"" if empty and not flags & ALWAYS else tag + data

    def _all(self, children: Sequence[int], row: int) -> bytes:
        return b"".join(self.written(child, row) for child in children)

    def _check_members(self, children: Sequence[int], row: int) -> None:
        columns = [self._program.steps[WIDTH * child + 1] for child in children]
        found = [at for at, column in enumerate(columns) if self._columns[column][row] is not None]
        if len(found) > 1:
            raise _RowFailed(WriteCode.MEMBERS, found[0] << 32 | found[1])


def _end_of(tag: bytes) -> bytes:
    """The tag of a group's end, which is one more than that of its begin."""
    return bytes([tag[0] + 1]) + tag[1:]


def _scalar(op: WriteOp, stored: Stored, size: int, value: Any) -> tuple[bool, bytes]:
    """Whether a value is the one that fields without presence leave out, and its bytes."""
    match op:
        case WriteOp.BYTES | WriteOp.TEXT:
            if op is WriteOp.TEXT and not _is_utf8(value):
                raise _RowFailed(WriteCode.UTF8)
            return not value, varint(len(value)) + value
        case WriteOp.JSON:
            if value[:1] != GOOD:
                raise _RowFailed(WriteCode.JSON)
            return len(value) == 1, varint(len(value) - 1) + value[1:]
        case WriteOp.BOOL:
            return not value, bytes([value])
        case WriteOp.FLOAT | WriteOp.DOUBLE:
            data = _floating(op, value)
            return not any(data), data
        case WriteOp.TIMESTAMP | WriteOp.DURATION:
            data = _time(op, size, value)
            return False, varint(len(data)) + data
    number = int(value)
    if op is WriteOp.ENUM and number == NO_SYMBOL:
        raise _RowFailed(WriteCode.SYMBOL)
    low, high = _LIMITS[NumberRange(size)]
    if not low <= number <= high:
        if stored in (Stored.UINT64, Stored.DECIMAL):
            raise _RowFailed(WriteCode.LARGE)
        raise _RowFailed(WriteCode.RANGE, number)
    if op is WriteOp.FIXED32:
        return not number, struct.pack("<I", number & 2**32 - 1)
    if op is WriteOp.FIXED64:
        return not number, struct.pack("<Q", number & 2**64 - 1)
    return not number, varint(number << 1 ^ number >> 63 if op is WriteOp.ZIGZAG else number)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _floating(op: WriteOp, value: float) -> bytes:
    try:
        return struct.pack("<d" if op is WriteOp.DOUBLE else "<f", value)
    except OverflowError:
        raise _RowFailed(WriteCode.FLOAT_RANGE) from None


def _time(op: WriteOp, units: int, value: int) -> bytes:
    """Seconds and nanoseconds: of a Timestamp the latter are never negative, of a Duration both have one sign."""
    seconds, rest = divmod(value, units)
    if op is WriteOp.DURATION and seconds < 0 and rest:
        seconds, rest = seconds + 1, rest - units
    first, last = LAST_SECOND[op]
    if not first <= seconds <= last:
        raise _RowFailed(WriteCode.TIME)
    nanos = rest * (10**9 // units)
    return (b"\x08" + varint(seconds) if seconds else b"") + (b"\x10" + varint(nanos) if nanos else b"")
