"""Record batches as a broker sees them: headers, checksums, offsets given to them, and records where these
decide something.

Theory of operation. A broker keeps the bytes of a batch as its producer sent them: compressed, and with the
producer's checksum, which clients check. It only writes the base offset and the leader epoch, which the
checksum does not cover (`placed`). Two things make it write more, with a new checksum: under LogAppendTime
its own timestamp with its type, and compaction, which leaves some records out (`with_only`).

- `parse_all` cuts the data of a request into batches. A batch that is cut off at its end is left out, as in
  Kafka; the old formats are refused, since brokers of version 4 have none. Checksums are only checked where a
  batch is written (`is_valid`).
- What a producer sends has the records that its header says (`is_readable`): the kernel reads them all, which
  takes some nanoseconds each. They are decoded where headers don't suffice: for timestamps within bounds, keys
  of compacted topics, look-ups by time, and tests that look into a log. `readable` gives None for what can't be
  read, so that a broken batch is an answer and no crash.
- `marker` makes the control batch with which a coordinator ends a transaction: a single record whose key says
  commit or abort, and whose value has the coordinator's epoch.

The layout is declared once, in `kafka_actors.records.batch`; so this is no independent witness for it. That
is the differential test against a real broker, and librdkafka and Java where tests use them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c
from msgspec import Struct

from kafka_actors.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    ColumnField,
    Fill,
    new_table,
)
from kafka_actors.records.compression import (
    ZSTD,
    DecompressionError,
    Decompressor,
    OversizedError,
    UnknownCodecError,
)
from kafka_actors.records.kernel import ACTIVE
from kafka_actors.records.record import MalformedError, read_record, write_record

MAX_SEQUENCE = 0x7FFFFFFF
_LARGEST = 256 << 20
_MAX_TIMESTAMP_AT = 35
_PLACE = struct.Struct(">qii")
_MARKER = struct.Struct(">hi")


class BatchRecord(NamedTuple):
    """One record of a stored batch, as far as brokers look into records."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class StoredBatch(Struct, frozen=True):
    """A batch of format v2 with its header's fields. `data` is the whole batch."""

    data: bytes
    base_offset: int
    leader_epoch: int
    attributes: int
    last_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size(self) -> int:
        """Bytes of the batch."""
        return len(self.data)

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record: behind 2^31-1 follows 0."""
        return (self.base_sequence + self.last_delta) & MAX_SEQUENCE if self.base_sequence >= 0 else -1

    @property
    def codec(self) -> int:
        """Number of the compression codec, 0 for none."""
        return self.attributes & CODEC_MASK

    @property
    def is_zstd(self) -> bool:
        """Whether only clients that know zstandard can read it (KIP-110)."""
        return self.codec == ZSTD

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction's end and no records."""
        return bool(self.attributes & CONTROL)

    @property
    def log_append_time(self) -> bool:
        """Whether its timestamp is the broker's."""
        return bool(self.attributes & TIMESTAMP_TYPE)

    @property
    def is_valid(self) -> bool:
        """Whether the checksum is right."""
        (stored,) = struct.unpack_from(">I", self.data, CRC_AT)
        return bool(crc32c(memoryview(self.data)[ATTRIBUTES_AT:]) == stored)

    @property
    def is_readable(self) -> bool:
        """Whether there are as many records as the header says, with offsets that rise within the batch, and nothing behind them.

        The kernel reads them and keeps none: all are before the offset that is asked for.
        """
        table = new_table(1)
        body: bytes | memoryview = b""
        if ACTIVE.scan(self.data, 0, table, self.size)[0] != 1:
            return False
        if self.codec:
            try:
                body = self._unpacked()
            except DecompressionError:
                return False
            table[0, ColumnField.SOURCE], table[0, ColumnField.POS], table[0, ColumnField.END] = (
                1,
                0,
                len(body),
            )
        _, code = ACTIVE.columns(self.last_offset + 1, 1, 1, 1, 1).fill(self.data, body, table, 0, 1)
        return code == Fill.DONE

    def _unpacked(self) -> memoryview:
        """Returns the records without their compression. Raises `DecompressionError`."""
        work = Decompressor()
        try:
            start, end = work.append(self.codec, memoryview(self.data)[HEADER_SIZE:], _LARGEST)
        except OversizedError as error:
            raise DecompressionError(f"more than {_LARGEST} bytes") from error
        except UnknownCodecError as error:
            raise DecompressionError(f"compression {error} is unknown") from error
        return memoryview(work.scratch.buffer[start:end])

    def placed(self, base_offset: int, leader_epoch: int, append_time: int | None = None) -> StoredBatch:
        """Returns the batch at an offset, under a leader epoch; with `append_time`, in ms, under LogAppendTime, else under CreateTime."""
        data = bytearray(self.data)
        _PLACE.pack_into(data, 0, base_offset, len(data) - LOG_OVERHEAD, leader_epoch)
        if append_time is not None or self.log_append_time:
            attributes = (
                self.attributes & ~TIMESTAMP_TYPE if append_time is None else self.attributes | TIMESTAMP_TYPE
            )
            struct.pack_into(">h", data, ATTRIBUTES_AT, attributes)
            stamp = self.max_timestamp if append_time is None else append_time
            struct.pack_into(">q", data, _MAX_TIMESTAMP_AT, stamp)
            struct.pack_into(">I", data, CRC_AT, crc32c(memoryview(data)[ATTRIBUTES_AT:]))
        return parse(bytes(data))

    @property
    def commits(self) -> bool:
        """Whether it is the marker of a commit."""
        (record,) = self.records()
        return record.key == _marker_key(committed=True)

    @property
    def coordinator_epoch(self) -> int:
        """Epoch of the coordinator that wrote a marker."""
        (record,) = self.records()
        return int(_MARKER.unpack(record.value or b"")[1])

    def records(self) -> Iterator[BatchRecord]:
        """Yields the records. Raises `MalformedError` or `DecompressionError` where they can't be read."""
        body = self._unpacked() if self.codec else memoryview(self.data)[HEADER_SIZE:]
        at = 0
        for _ in range(self.count):
            record = read_record(body, at, len(body))
            at = record.end
            stamp = (
                self.max_timestamp if self.log_append_time else self.base_timestamp + record.timestamp_delta
            )
            offset = self.base_offset + record.offset_delta
            yield BatchRecord(offset, stamp, record.key, record.value, record.headers)

    def with_only(self, kept: list[BatchRecord]) -> StoredBatch:
        """Returns the batch, uncompressed, with only these of its records: as compaction leaves it. Offsets stay; its largest timestamp is
        that of what is left, under CreateTime.
        """
        out = bytearray(self.data[:HEADER_SIZE])
        for record in kept:
            write_record(
                out,
                record.timestamp - self.base_timestamp if not self.log_append_time else 0,
                record.offset - self.base_offset,
                record.key,
                record.value,
                record.headers,
            )
        struct.pack_into(">i", out, 8, len(out) - LOG_OVERHEAD)
        struct.pack_into(">h", out, ATTRIBUTES_AT, self.attributes & ~CODEC_MASK)
        struct.pack_into(">i", out, HEADER_SIZE - 4, len(kept))
        if kept and not self.log_append_time:
            struct.pack_into(">q", out, _MAX_TIMESTAMP_AT, max(record.timestamp for record in kept))
        struct.pack_into(">I", out, CRC_AT, crc32c(memoryview(out)[ATTRIBUTES_AT:]))
        return parse(bytes(out))


class CorruptBatchError(ValueError):
    """Bytes that are no batch."""


class OldFormatError(ValueError):
    """A message of format v0 or v1."""


def marker(
    producer_id: int, producer_epoch: int, *, committed: bool, coordinator_epoch: int, now_ms: int
) -> StoredBatch:
    """Returns the control batch that ends a producer's transaction (KIP-98)."""
    body = bytearray()
    write_record(body, 0, 0, _marker_key(committed), _MARKER.pack(0, coordinator_epoch))
    data = bytearray(
        HEADER.pack(
            0,
            HEADER_SIZE - LOG_OVERHEAD + len(body),
            -1,
            2,
            0,
            TRANSACTIONAL | CONTROL,
            0,
            now_ms,
            now_ms,
            producer_id,
            producer_epoch,
            -1,
            1,
        )
        + body
    )
    struct.pack_into(">I", data, CRC_AT, crc32c(memoryview(data)[ATTRIBUTES_AT:]))
    return parse(bytes(data))


def _marker_key(committed: bool) -> bytes:
    """Key of a control record: its version, and 0 for an abort, 1 for a commit."""
    return struct.pack(">hh", 0, committed)


def parse(data: bytes | memoryview) -> StoredBatch:
    """Returns the batch that is all of `data`. Raises `CorruptBatchError` or `OldFormatError`."""
    found = list(parse_all(data))
    if len(found) != 1:
        raise CorruptBatchError(f"{len(found)} batches")
    return found[0]


def parse_all(data: bytes | memoryview) -> Iterator[StoredBatch]:
    """Yields the batches in the records of a request; a cut-off one at the end is left out, as Kafka does."""
    view = memoryview(data)
    while len(view) > MAGIC_AT:
        (length,) = struct.unpack_from(">i", view, 8)
        if view[MAGIC_AT] < 2:
            raise OldFormatError(f"format {view[MAGIC_AT]}")
        if view[MAGIC_AT] > 2 or length < HEADER_SIZE - LOG_OVERHEAD:
            raise CorruptBatchError(f"format {view[MAGIC_AT]}, {length} bytes")
        size = LOG_OVERHEAD + length
        if len(view) < size:
            return
        base, _, epoch, _, _, attributes, delta, first, last, producer, producer_epoch, sequence, count = (
            HEADER.unpack_from(view)
        )
        yield StoredBatch(
            bytes(view[:size]),
            base,
            epoch,
            attributes,
            delta,
            first,
            last,
            producer,
            producer_epoch,
            sequence,
            count,
        )
        view = view[size:]


def readable(batch: StoredBatch) -> list[BatchRecord] | None:
    """Returns the records of a batch; None where they can't be read."""
    try:
        return list(batch.records())
    except (MalformedError, DecompressionError):
        return None
