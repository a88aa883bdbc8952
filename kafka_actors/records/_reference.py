"""The plain-Python twin of the compiled kernel: the same functions with the same results, byte for byte.

It is what property tests compare the kernel with, and what decodes where the extension was not built.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import crc32c as _crc32c
import numpy as np
import pyarrow as pa

from ._reference_frames import lz4_blocks, xxh32, zstd_end
from ._reference_writer import group, murmur2, rows, writer
from .batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_BASE_OFFSET,
    MAX_BINARY,
    MAX_MILLIS,
    MIN_LENGTH_V0,
    MIN_LENGTH_V2,
    MIN_RECORD,
    TABLE_WIDTH,
    TIMESTAMP_TYPE,
    BinaryBuffers,
    ColumnBuffers,
    ColumnField,
    Fill,
    HeaderBuffers,
    Scan,
    Table,
)
from .record import MalformedError, Record, read_message, read_record, timestamp_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "ReferenceColumns",
    "columns",
    "crc32c",
    "group",
    "lz4_blocks",
    "messages",
    "murmur2",
    "next_offset",
    "rows",
    "scan",
    "small",
    "writer",
    "xxh32",
    "zstd_end",
]


def _probe(data: memoryview, pos: int) -> tuple[Scan, int]:
    """Looks at the start of a batch: (MORE, length) for a complete v2 batch."""
    left = len(data) - pos
    if left < LOG_OVERHEAD:
        return Scan.END, 0
    (length,) = struct.unpack_from(">i", data, pos + 8)
    if length < MIN_LENGTH_V0:
        return Scan.BAD_LENGTH, length
    if left <= MAGIC_AT:
        return Scan.END, length
    magic = data[pos + MAGIC_AT]
    if magic > 2:
        return Scan.BAD_MAGIC, length
    if magic == 2 and length < MIN_LENGTH_V2:
        return Scan.BAD_LENGTH, length
    if left - LOG_OVERHEAD < length:
        return Scan.END, length
    return Scan.MORE if magic == 2 else Scan.LEGACY, length


def _read_header(row: Table, data: memoryview, start: int, length: int) -> Scan:
    """Fills a table row from a complete v2 batch, whose CRC was right."""
    (base, _, epoch, _, _, attributes, delta, base_ts, max_ts, producer, _, _, count) = HEADER.unpack_from(
        data, start
    )
    attributes &= 0xFFFF
    if base < 0 or base > MAX_BASE_OFFSET or delta < 0 or count < 0:
        return Scan.BAD_HEADER
    append_time = LOG_APPEND_TIME if attributes & TIMESTAMP_TYPE else 0
    end = start + LOG_OVERHEAD + length
    last = base + delta
    place = (0, start + HEADER_SIZE, end)
    values = (base, last, base_ts, max_ts, count, attributes, producer, epoch, -1, append_time, start, 2)
    row[:] = place + values
    if not attributes & CODEC_MASK and count > (length - MIN_LENGTH_V2) // MIN_RECORD:
        return Scan.BAD_HEADER
    return Scan.MORE


def scan(
    data: Buffer, pos: int, table: Table, span: int, check_crcs: bool = True
) -> tuple[int, int, int, int, int]:
    """Checks v2 batches from `pos` on, their checksums with `check_crcs`, and enters them into `table`, about `span` bytes at a time.

    Returns (batches entered, position behind them, batch.Scan code, OR of their attributes, sum of their counts).
    """
    if table.shape[1] != TABLE_WIDTH:
        raise ValueError("not a batch table")
    n = flags = count = 0
    status = Scan.MORE
    limit = pos + span
    with memoryview(data).cast("B") as view:
        while n < len(table) and pos < limit:
            status, length = _probe(view, pos)
            if status != Scan.MORE:
                break
            end = pos + LOG_OVERHEAD + length
            (stored,) = struct.unpack_from(">I", view, pos + 17)
            if check_crcs and crc32c(view[pos + ATTRIBUTES_AT : end]) != stored:
                status = Scan.BAD_CRC
                break
            status = _read_header(table[n], view, pos, length)
            if status != Scan.MORE:
                break
            flags |= int(table[n, ColumnField.ATTRIBUTES])
            count += int(table[n, ColumnField.COUNT])
            pos = end
            n += 1
    return n, pos, int(status), flags, count


def small(*_: object) -> None:
    """Returns None: there is no shorter way here than the general one, with whose results those of the kernel's are compared."""


def messages(data: Buffer, pos: int, end: int) -> tuple[int, int, int]:
    """Walks over the complete messages of formats v0 and v1 in data[pos:end], which belong to a compressed one.

    Returns (how many, own offset of the last, position behind it); -1 of them where lengths or offsets are impossible.
    """
    count, last = 0, -1
    with memoryview(data).cast("B") as view:
        end = min(end, len(view))
        while end - pos >= LOG_OVERHEAD:
            offset, length = struct.unpack_from(">qi", view, pos)
            if length >= MIN_LENGTH_V0 and length > end - pos - LOG_OVERHEAD:
                break
            if length < MIN_LENGTH_V0 or offset <= last:
                return -1, last, pos
            count, last, pos = count + 1, offset, pos + LOG_OVERHEAD + length
    return count, last, pos


def next_offset(data: Buffer) -> int | None:
    """The offset behind the last complete batch, by headers alone; None where there is no complete batch."""
    pos, found = 0, -1
    with memoryview(data).cast("B") as view:
        while True:
            status, length = _probe(view, pos)
            if status not in (Scan.MORE, Scan.LEGACY):
                break
            (base,) = struct.unpack_from(">q", view, pos)
            delta = struct.unpack_from(">i", view, pos + 23)[0] if status == Scan.MORE else 0
            if base < 0 or base > MAX_BASE_OFFSET or delta < 0:
                break
            found = max(found, base + delta + 1)
            pos += LOG_OVERHEAD + length
    return None if found < 0 else found


def crc32c(data: Buffer) -> int:
    return int(_crc32c.crc32c(data))


class _Bytes:
    """A binary column under construction."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    def finish(self) -> BinaryBuffers:
        lengths = np.array([0] + [len(v or b"") for v in self.values], dtype=np.int64)
        valid = [v is not None for v in self.values]
        nulls = valid.count(False)
        return BinaryBuffers(
            _bitmap(valid) if nulls else None,
            pa.py_buffer(np.cumsum(lengths).astype(np.int32).tobytes()),
            pa.py_buffer(b"".join(v or b"" for v in self.values)),
            nulls,
        )


def _bitmap(valid: list[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(valid, dtype=bool), bitorder="little").tobytes())


class ReferenceColumns:
    """The columns of one chunk under construction: at most `max_rows` records and about `max_bytes` bytes.

    `next_offset` is the first offset wanted; it moves behind everything that was decoded or stepped over.
    """

    def __init__(self, next_offset: int, max_rows: int, max_bytes: int) -> None:
        self.next_offset = next_offset
        self.leader_epoch = -1
        self._max_rows = max_rows
        self._max_bytes = min(max_bytes, MAX_BINARY)
        self._spent = 0
        self._offset: list[int] = []
        self._timestamp: list[int] = []
        self._timestamp_type: list[int] = []
        self._key = _Bytes()
        self._value = _Bytes()
        self._headers: list[int] = []  # how many each record has
        self._header_key = _Bytes()
        self._header_value = _Bytes()

    @property
    def rows(self) -> int:
        return len(self._offset)

    def fill(self, data: Buffer, scratch: Buffer, table: Table, lo: int, hi: int) -> tuple[int, int]:
        """Decodes the batches lo..hi of `table`, whose records lie in `data` (source 0) or `scratch` (source 1).

        Returns (first batch not finished, batch.Fill code). After FULL, `finish` and go on with new columns.
        """
        fetched, unpacked = memoryview(data).cast("B"), memoryview(scratch).cast("B")
        with fetched, unpacked:
            while lo < hi:
                row = table[lo]
                if self.rows and row[ColumnField.LEADER_EPOCH] != self.leader_epoch:
                    return lo, int(Fill.FULL)  # all rows have one leader epoch
                if row[ColumnField.COUNT] > 0 and not row[ColumnField.ATTRIBUTES] & CONTROL:
                    status = self._fill_batch(unpacked if row[ColumnField.SOURCE] else fetched, row)
                    if status != Fill.DONE:
                        return lo, int(status)
                self.leader_epoch = int(row[ColumnField.LEADER_EPOCH])
                self.next_offset = max(self.next_offset, int(row[ColumnField.LAST_OFFSET]) + 1)
                lo += 1
        return lo, int(Fill.DONE)

    def _fill_batch(self, data: memoryview, row: Table) -> Fill:
        """Decodes the records of one batch, from its cursor to its end or until the chunk is full."""
        cursor = row.tolist()
        floor, pos, end = self.next_offset, cursor[ColumnField.POS], cursor[ColumnField.END]
        count, last, base = (
            cursor[ColumnField.COUNT],
            cursor[ColumnField.LAST_DELTA],
            cursor[ColumnField.BASE_OFFSET],
        )
        status = Fill.DONE
        if pos < 0 or pos > end or end > len(data):
            return Fill.TRUNCATED
        while count > 0:
            try:
                magic = cursor[ColumnField.MAGIC]
                record = read_record(data, pos, end) if magic == 2 else read_message(data, pos, end, magic)
            except MalformedError as error:
                status = error.code
                break
            if not last < record.offset_delta <= cursor[ColumnField.LAST_OFFSET] - base:
                status = Fill.BAD_OFFSET
                break
            if base + record.offset_delta >= floor:
                if self._full(record.end - pos):
                    status = Fill.FULL
                    break
                if not -MAX_MILLIS <= timestamp_of(cursor, record) <= MAX_MILLIS:
                    status = Fill.BAD_TIMESTAMP
                    break
                self._append(cursor, record, record.end - pos)
            last, pos = record.offset_delta, record.end
            count -= 1
        row[ColumnField.COUNT], row[ColumnField.LAST_DELTA], row[ColumnField.POS] = count, last, pos
        if status == Fill.DONE and pos != end:
            status = Fill.TRAILING
        if last >= 0:
            self.leader_epoch = cursor[ColumnField.LEADER_EPOCH]
            self.next_offset = max(self.next_offset, base + last + 1)
        return status

    def _full(self, size: int) -> bool:
        return self.rows >= self._max_rows or (self.rows > 0 and self._spent + size > self._max_bytes)

    def _append(self, batch: list[int], record: Record, size: int) -> None:
        self._offset.append(batch[ColumnField.BASE_OFFSET] + record.offset_delta)
        self._timestamp.append(timestamp_of(batch, record) * 1000)
        self._timestamp_type.append(batch[ColumnField.TIMESTAMP_TYPE])
        self._key.values.append(record.key)
        self._value.values.append(record.value)
        self._headers.append(len(record.headers))
        for key, value in record.headers:
            self._header_key.values.append(key)
            self._header_value.values.append(value)
        self._spent += size

    def finish(self) -> ColumnBuffers:
        """The Arrow buffers of all rows so far; nothing may be filled in afterwards."""
        return ColumnBuffers(
            self.rows,
            pa.py_buffer(np.array(self._offset, dtype=np.int64).tobytes()),
            pa.py_buffer(np.array(self._timestamp, dtype=np.int64).tobytes()),
            pa.py_buffer(np.array(self._timestamp_type, dtype=np.int32).tobytes()),
            self._key.finish(),
            self._value.finish(),
            self._finish_headers() if self._header_key.values else None,
        )

    def _finish_headers(self) -> HeaderBuffers:
        valid = [n > 0 for n in self._headers]
        offsets = np.cumsum([0, *self._headers]).astype(np.int32)
        return HeaderBuffers(
            len(self._header_key.values),
            valid.count(False),
            _bitmap(valid),
            pa.py_buffer(offsets.tobytes()),
            self._header_key.finish(),
            self._header_value.finish(),
            all((key or b"").isascii() for key in self._header_key.values),
        )


def columns(
    next_offset: int, max_rows: int, max_bytes: int, rows_hint: int, bytes_hint: int
) -> ReferenceColumns:
    """Returns new columns for one chunk; the hints are of use to the compiled kernel only."""
    return ReferenceColumns(next_offset, max_rows, max_bytes)
