"""The encode side of the kernel's twin: Arrow columns to record batches, byte for byte as the kernel writes them."""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack_from
from typing import TYPE_CHECKING, Final

import crc32c as _crc32c
import numpy as np
import numpy.typing as npt

from .batch import ATTRIBUTES_AT, CRC_AT, HEADER, HEADER_SIZE, LOG_OVERHEAD, BinaryColumn, Places, RowColumns
from .record import Headers, wrap_int64, write_record

if TYPE_CHECKING:
    from typing_extensions import Buffer

RECORD_OVERHEAD: Final = 21
"""Java's DefaultRecord.MAX_RECORD_OVERHEAD: all of a record but key, value, headers and their lengths."""
MAX_VARINT: Final = 5

_MAGIC: Final = 2
_U32: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Java's hash of a key, without its sign bit."""
    m, n = 0x5BD1E995, len(key)
    h = 0x9747B28C ^ n
    for (word,) in (unpack_from("<I", key, at) for at in range(0, n - n % 4, 4)):
        k = word * m & _U32
        k ^= k >> 24
        h = (h * m ^ k * m) & _U32
    rest = key[n - n % 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & _U32
    h = (h ^ h >> 13) * m & _U32
    return (h ^ h >> 15) & 0x7FFFFFFF


def group(partitions: Places, order: Places, bounds: npt.NDArray[np.int64]) -> None:
    """Sorts rows by their partitions, each from 0 to len(bounds) - 2, keeping the order within each.

    Partition p has the rows order[bounds[p]:bounds[p + 1]].
    """
    order[:] = np.argsort(partitions, kind="stable")
    bounds[0] = 0
    bounds[1:] = np.cumsum(np.bincount(partitions, minlength=len(bounds) - 1))


def _valid(validity: object, i: int) -> bool:
    return validity is None or bool(memoryview(validity).cast("B")[i >> 3] >> (i & 7) & 1)  # type: ignore[arg-type]  # a bitmap


def _value(column: BinaryColumn | None, i: int) -> bytes | None:
    if column is None or not _valid(column.validity, i + column.first):
        return None
    width, code = (8, "<qq") if column.wide else (4, "<ii")
    begin, end = unpack_from(code, column.offsets, width * (i + column.first))
    return b"" if begin == end or column.data is None else bytes(memoryview(column.data)[begin:end])


class ReferenceRows:
    """Arrow columns as rows to be written."""

    def __init__(self, columns: RowColumns, default_timestamp: int) -> None:
        self._columns = columns
        self._default_timestamp = default_timestamp

    def __len__(self) -> int:
        return self._columns.rows

    def row(self, i: int) -> tuple[int, bytes | None, bytes | None, Headers]:
        """Timestamp, key, value and headers of a row."""
        c = self._columns
        timestamp = self._default_timestamp if c.timestamps is None else int(c.timestamps[i])
        return timestamp, _value(c.key, i), _value(c.value, i), self._headers(i)

    def delta(self, i: int, following: int) -> int:
        """The offset delta of a row: its own, else the one that follows."""
        return following if self._columns.deltas is None else int(self._columns.deltas[i])

    def _headers(self, i: int) -> Headers:
        headers = self._columns.headers
        if headers is None or not _valid(headers.validity, i + headers.first):
            return []
        lo, hi = unpack_from("<ii", headers.offsets, 4 * (i + headers.first))
        return [(_value(headers.key, h) or b"", _value(headers.value, h)) for h in range(lo, hi)]

    def _bound(self, i: int) -> int:
        _, key, value, headers = self.row(i)
        size = RECORD_OVERHEAD + 2 * MAX_VARINT + len(key or b"") + len(value or b"")
        return size + sum(2 * MAX_VARINT + len(k) + len(v or b"") for k, v in headers)

    def largest(self) -> tuple[int, int]:
        """(row, bytes) of the row that may take the most bytes, by Java's estimate; (-1, 0) without rows."""
        return max(((i, self._bound(i)) for i in range(len(self))), key=lambda r: r[1], default=(-1, 0))

    def spread(self, partitions: Places, count: int) -> int:
        """Sets the partition of each row that has a key, as Java's partitioner does; -1 for those without."""
        for i in range(len(self)):
            key = _value(self._columns.key, i)
            partitions[i] = -1 if key is None else murmur2(key) % count
        return int((partitions[: len(self)] < 0).sum())

    def stick(self, partitions: Places, lo: int, partition: int, budget: int) -> tuple[int, int]:
        """Gives rows without a partition (-1), from row lo on, to `partition` until their bytes reach `budget`.

        Returns (the row to go on from, bytes given).
        """
        spent = 0
        while lo < len(self) and spent < budget:
            if partitions[lo] < 0:
                partitions[lo] = partition
                spent += self._bound(lo)
            lo += 1
        return lo, spent


class ReferenceWriter:
    """One batch of format v2 under construction: records are appended, then it is sealed with a header."""

    def __init__(self) -> None:
        self.count = 0
        self.codec = 0
        self._out = bytearray(HEADER_SIZE)
        self._last_delta = self._base_timestamp = self._max_timestamp = -1

    @property
    def used(self) -> int:
        """Bytes so far, the header's included."""
        return len(self._out)

    def append(self, rows: ReferenceRows, order: Places | None, lo: int, hi: int, limit: int) -> int:
        """Appends rows order[lo:hi], or rows lo to hi where `order` is None, as long as the batch stays within
        `limit` bytes; an empty batch takes one row of any size. Returns the place in the order to go on from."""
        for at in range(lo, hi):
            row = at if order is None else int(order[at])
            timestamp, key, value, headers = rows.row(row)
            delta = rows.delta(row, self._last_delta + 1)
            if not self._append(key, value, headers, timestamp, delta, limit):
                return at
        return hi

    def append_one(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[bytes, bytes | None]] | None,
        timestamp: int,
        limit: int,
    ) -> bool:
        """Appends a record; `headers` are (bytes, bytes or None), or None. False where the batch is too full."""
        return self._append(key, value, headers or (), timestamp, self._last_delta + 1, limit)

    def _append(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int, delta: int, limit: int
    ) -> bool:
        base = self._base_timestamp if self.count else timestamp
        record = bytearray()
        write_record(record, wrap_int64(timestamp - base), delta, key, value, headers)
        if self.count and self.used + len(record) > limit:
            return False
        self._out += record
        self._max_timestamp = max(self._max_timestamp, timestamp) if self.count else timestamp
        self._base_timestamp = base
        self._last_delta = delta
        self.count += 1
        return True

    def body(self) -> memoryview:
        """A view of the records as they are now. Not to be held while more are appended."""
        return memoryview(self._out)[HEADER_SIZE:]

    def pack(self, packed: Buffer, codec: int) -> None:
        """Puts the compressed records in the place of the records; nothing may be appended afterwards."""
        self._out = bytearray(HEADER_SIZE) + packed
        self.codec = codec

    def seal(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        base_offset: int = 0,
        last_delta: int = -1,
        attributes: int = 0,
        leader_epoch: int = -1,
    ) -> memoryview:
        """Writes the header and its checksum; returns a view of the whole batch. May be done again with other values.

        `last_delta` is the last record's unless given; `attributes` come beside the codec's.
        """
        delta = last_delta if last_delta >= 0 else max(0, self._last_delta)
        start = (
            base_offset,
            self.used - LOG_OVERHEAD,
            leader_epoch,
            _MAGIC,
            0,
            attributes | self.codec,
            delta,
        )
        times = (self._base_timestamp, self._max_timestamp)
        HEADER.pack_into(self._out, 0, *start, *times, producer_id, producer_epoch, base_sequence, self.count)
        view = memoryview(self._out)
        self._out[CRC_AT:ATTRIBUTES_AT] = _crc32c.crc32c(view[ATTRIBUTES_AT:]).to_bytes(4, "big")
        return view


def rows(columns: RowColumns, default_timestamp: int) -> ReferenceRows:
    """A batch.RowColumns as rows to be written; rows without a timestamp get the default, in milliseconds."""
    return ReferenceRows(columns, default_timestamp)


def writer(capacity: int) -> ReferenceWriter:
    """An empty batch; the capacity, of use to the compiled kernel, changes nothing."""
    return ReferenceWriter()
