"""The layout of record batches, the table of batches that kernel and decoder share, and the interface of kernels.

Format v2 (KIP-98), big-endian, positions from the start of the batch::

    0 base offset i64 | 8 length i32 (of what follows) | 12 partition leader epoch i32 | 16 magic i8
    17 CRC-32C u32 (of all that follows) | 21 attributes i16 | 23 last offset delta i32 | 27 base timestamp i64
    35 max timestamp i64 | 43 producer id i64 | 51 producer epoch i16 | 53 base sequence i32 | 57 count i32
    61 records, compressed as a whole

A record is: length varint, attributes i8, timestamp delta varlong, offset delta varint, key and value (varint
length, -1 for null, and the bytes), number of headers varint, and for each a key (not null) and a value.

Magic 0 and 1 have the first 12 bytes and the place of the magic byte in common with v2.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from typing_extensions import Buffer

LOG_OVERHEAD: Final = 12  # base offset and length, in front of every batch of every version
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21  # the CRC covers all bytes from here on
HEADER_SIZE: Final = 61
MIN_LENGTH_V0: Final = 14  # smallest legal `length` of any version
MIN_LENGTH_V1: Final = 22
MIN_LENGTH_V2: Final = HEADER_SIZE - LOG_OVERHEAD
MIN_RECORD: Final = 7  # a length byte and six one-byte fields
MAX_BASE_OFFSET: Final = 2**63 - 2**31 - 1  # so that base + delta + 1 is an int64

HEADER: Final = struct.Struct(">qiibIhiqqqhii")

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

NO_TIMESTAMP_TYPE: Final = -1
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

MAX_MILLIS: Final = (2**63 - 1) // 1000
"""The latest timestamp, in milliseconds, that int64 microseconds hold; the earliest is its negative."""

MAX_BINARY: Final = 2**31 - 1  # int32 offsets of Arrow's binary columns


class ColumnField(IntEnum):
    """The columns of a batch table: one row per batch, int64 each; the same numbers stand in the kernel."""

    SOURCE = 0  # 0: records in the fetched bytes, 1: in the scratch of decompressed ones
    POS = 1  # where the next record to decode begins; moves as records are decoded
    END = 2
    BASE_OFFSET = 3
    LAST_OFFSET = 4
    BASE_TIMESTAMP = 5
    MAX_TIMESTAMP = 6
    COUNT = 7  # records still to decode
    ATTRIBUTES = 8
    PRODUCER_ID = 9
    LEADER_EPOCH = 10
    LAST_DELTA = 11  # offset delta of the last decoded record, -1 before the first
    TIMESTAMP_TYPE = 12
    START = 13  # of the batch's header in the fetched bytes
    MAGIC = 14  # of the records: 2, or that of messages of the old formats, whose own offsets are added to BASE_OFFSET


TABLE_WIDTH: Final = len(ColumnField)
Table = npt.NDArray[np.int64]


def new_table(rows: int) -> Table:
    """Returns an empty batch table."""
    return np.zeros((rows, TABLE_WIDTH), dtype=np.int64)


class Scan(IntEnum):
    """Reasons for which a scan over batch headers stopped."""

    END = 0  # no complete batch is left
    MORE = 1  # the table or the span is full
    LEGACY = 2  # a complete message of format v0 or v1
    BAD_LENGTH = 3
    BAD_MAGIC = 4
    BAD_CRC = 5
    BAD_HEADER = 6


class Fill(IntEnum):
    """Reasons for which decoding of records into columns stopped."""

    DONE = 0
    FULL = 1
    TRUNCATED = 2
    BAD_FIELD = 3
    BAD_HEADER_COUNT = 4
    BAD_OFFSET = 5
    TRAILING = 6
    BAD_TIMESTAMP = 7  # beyond what int64 microseconds hold; POS is at the record
    BAD_CRC = 8  # of a message of the old formats
    BAD_FORMAT = (
        9  # inside a compressed message of the old formats: one that is compressed too, or of another format
    )


class BinaryBuffers(msgspec.Struct, gc=False):
    """The Arrow buffers of one binary column; `validity` is None where nothing is null."""

    validity: pa.Buffer | None
    offsets: pa.Buffer
    data: pa.Buffer
    nulls: int


class HeaderBuffers(msgspec.Struct, gc=False):
    """The Arrow buffers of list<struct<key, value>>: `offsets` and `validity` per record, the rest per header."""

    count: int
    nulls: int
    validity: pa.Buffer
    offsets: pa.Buffer
    key: BinaryBuffers
    value: BinaryBuffers
    ascii: bool


class ColumnBuffers(msgspec.Struct, gc=False):
    """The Arrow buffers that a kernel made of the records of one chunk."""

    rows: int
    offset: pa.Buffer
    timestamp: pa.Buffer
    timestamp_type: pa.Buffer
    key: BinaryBuffers
    value: BinaryBuffers
    headers: HeaderBuffers | None


class BinaryColumn(msgspec.Struct, gc=False):
    """The Arrow buffers of a binary column to be written: its values from the `first`-th of `offsets` on.

    `wide` says that the offsets are 64 bits.
    """

    validity: pa.Buffer | None
    offsets: pa.Buffer
    data: pa.Buffer | None
    first: int
    wide: bool


class HeadersColumn(msgspec.Struct, gc=False):
    """The Arrow buffers of list<struct<key, value>> to be written; the list's offsets count into key and value."""

    validity: pa.Buffer | None
    offsets: pa.Buffer
    first: int
    key: BinaryColumn
    value: BinaryColumn


class RowColumns(msgspec.Struct, gc=False):
    """The columns of a batch to be written. A column that is None is null in all rows.

    `timestamps` are milliseconds, without nulls; `deltas` the records' offset deltas, None for one by one.
    """

    rows: int
    key: BinaryColumn | None
    value: BinaryColumn | None
    headers: HeadersColumn | None
    timestamps: npt.NDArray[np.int64] | None
    deltas: npt.NDArray[np.int64] | None = None


class ColumnsView(Protocol):
    """Growing columns of one chunk."""

    @property
    def rows(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    def fill(self, data: Buffer, scratch: Buffer, table: Table, lo: int, hi: int) -> tuple[int, int]: ...

    def finish(self) -> ColumnBuffers: ...


Places = npt.NDArray[np.int32]
"""Rows by number, or the partition of each row."""


class RecordRows(Protocol):
    """Arrow columns as rows to be written."""

    def __len__(self) -> int: ...

    def largest(self) -> tuple[int, int]: ...

    def spread(self, partitions: Places, count: int) -> int: ...

    def stick(self, partitions: Places, lo: int, partition: int, budget: int) -> tuple[int, int]: ...


class KernelWriter(Protocol):
    """One batch under construction."""

    @property
    def used(self) -> int: ...

    @property
    def count(self) -> int: ...

    def append(self, rows: Any, order: Places | None, lo: int, hi: int, limit: int) -> int: ...

    def append_one(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[bytes, bytes | None]] | None,
        timestamp: int,
        limit: int,
    ) -> bool: ...

    def body(self) -> memoryview: ...

    def pack(self, packed: Buffer, codec: int) -> None: ...

    def seal(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        base_offset: int = 0,
        last_delta: int = -1,
        attributes: int = 0,
        leader_epoch: int = -1,
    ) -> memoryview: ...


def is_compressed(data: memoryview) -> bool:
    """Whether the batch or message at the beginning of `data` is compressed, by its header; False where that is cut off."""
    if len(data) < HEADER_SIZE:
        return False
    at = ATTRIBUTES_AT + 1 if data[MAGIC_AT] >= 2 else MAGIC_AT + 1
    return bool(data[at] & CODEC_MASK)


class Kernel(Protocol):
    """The functions of a kernel: the compiled one, and its plain-Python twin."""

    def scan(
        self, data: Buffer, pos: int, table: Table, span: int, check_crcs: bool = True
    ) -> tuple[int, int, int, int, int]: ...

    def small(
        self,
        parts: tuple[Buffer, ...],
        next_offset: int,
        max_rows: int,
        max_bytes: int,
        without: int,
        topic: bytes,
        partition: int,
        check_crcs: bool = True,
    ) -> tuple[pa.RecordBatch, int, int] | None: ...

    def messages(self, data: Buffer, pos: int, end: int) -> tuple[int, int, int]: ...

    def next_offset(self, data: Buffer) -> int | None: ...

    def columns(
        self, next_offset: int, max_rows: int, max_bytes: int, rows_hint: int, bytes_hint: int
    ) -> ColumnsView: ...

    def rows(self, columns: RowColumns, default_timestamp: int) -> RecordRows: ...

    def writer(self, capacity: int) -> KernelWriter: ...

    def group(self, partitions: Places, order: Places, bounds: npt.NDArray[np.int64]) -> None: ...

    def xxh32(self, data: Buffer) -> int: ...

    def lz4_blocks(self, data: Buffer) -> tuple[int, bool, int, array[int]]: ...

    def zstd_end(self, data: Buffer) -> int: ...

    def murmur2(self, key: bytes) -> int: ...
