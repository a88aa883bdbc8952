"""Message sets of formats v0 and v1 (Kafka before 0.11), which old segments may still hold.

A message is: offset i64, size i32, CRC-32 u32 (of all that follows), magic i8, attributes i8, in v1 timestamp i64,
key and value with int32 lengths (-1 for null). A compressed message is a wrapper: its value holds messages; in v0
their offsets are absolute, in v1 relative, and the wrapper's own offset is that of its last message (KIP-31), so
that gaps left by compaction keep. The kernel reads the messages themselves; a wrapper is opened here.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from .batch import (
    CODEC_MASK,
    CREATE_TIME,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_BASE_OFFSET,
    MIN_LENGTH_V0,
    MIN_LENGTH_V1,
    NO_TIMESTAMP_TYPE,
    TIMESTAMP_TYPE,
    ColumnField,
    Kernel,
)
from .compression import LZ4, Decompressor, UnknownCodecError, repair_lz4_header
from .record import MalformedError, read_field

_HEAD: Final = struct.Struct(">qiIBB")  # offset, length, crc, magic, attributes
_EMPTY_ROW: Final = dict.fromkeys(ColumnField, 0) | {
    ColumnField.LAST_DELTA: -1,
    ColumnField.PRODUCER_ID: -1,
    ColumnField.LEADER_EPOCH: -1,
}


class LegacyError(Exception):
    """A message that can't be read."""


def complete_at(view: memoryview, pos: int) -> bool:
    """Whether a complete message of an old format stands at `pos`."""
    left = len(view) - pos
    if left <= MAGIC_AT or view[pos + MAGIC_AT] > 1:
        return False
    length: int = struct.unpack_from(">i", view, pos + 8)[0]
    return MIN_LENGTH_V0 <= length <= left - LOG_OVERHEAD


def is_sound(view: memoryview, pos: int) -> bool:
    """Whether the checksum of the complete message at `pos` is right."""
    _, length, stored, _, _ = _HEAD.unpack_from(view, pos)
    found: int = zlib.crc32(view[pos + MAGIC_AT : pos + LOG_OVERHEAD + length])
    return found == int(stored)


def read(
    view: memoryview, pos: int, work: Decompressor, limit: int, kernel: Kernel
) -> tuple[dict[ColumnField, int], int]:
    """Returns the complete message at `pos` as a row of a batch table, and the position behind it.

    The content of a compressed message is appended to the scratch of `work`, `limit` bytes at most. Raises LegacyError, and
    the errors of `Decompressor.append`. The kernel checks plain messages.
    """
    offset, length, _, magic, attributes = _HEAD.unpack_from(view, pos)
    if not 0 <= offset <= MAX_BASE_OFFSET:
        raise LegacyError("the message's offset is impossible")
    end = pos + LOG_OVERHEAD + length
    row = _EMPTY_ROW | {ColumnField.START: pos, ColumnField.MAGIC: magic}
    row[ColumnField.TIMESTAMP_TYPE] = _timestamp_type(magic, attributes)
    if magic == 1 and length >= MIN_LENGTH_V1:
        (row[ColumnField.MAX_TIMESTAMP],) = struct.unpack_from(">q", view, pos + _HEAD.size)
    if attributes & CODEC_MASK:
        begin, packed_end = _unpack(view, pos, end, work, limit)
        count, last, behind = kernel.messages(work.scratch.buffer, begin, packed_end)
        base = _base(offset, magic, count, last)
        row |= {
            ColumnField.SOURCE: 1,
            ColumnField.POS: begin,
            ColumnField.END: behind,
            ColumnField.COUNT: count,
        }
        row |= {ColumnField.BASE_OFFSET: base, ColumnField.LAST_OFFSET: max(offset, base + last)}
    else:
        row |= {
            ColumnField.POS: pos,
            ColumnField.END: end,
            ColumnField.COUNT: 1,
            ColumnField.LAST_OFFSET: offset,
        }
    return row, end


def _timestamp_type(magic: int, attributes: int) -> int:
    if magic == 0:
        return NO_TIMESTAMP_TYPE
    return LOG_APPEND_TIME if attributes & TIMESTAMP_TYPE else CREATE_TIME


def _unpack(view: memoryview, pos: int, end: int, work: Decompressor, limit: int) -> tuple[int, int]:
    """Appends the content of the compressed message at `pos` to the scratch; returns its range there."""
    _, length, _, magic, attributes = _HEAD.unpack_from(view, pos)
    if length < (MIN_LENGTH_V0, MIN_LENGTH_V1)[magic]:
        raise LegacyError(f"a message of magic {magic} with {length} bytes")
    if not is_sound(view, pos):
        raise LegacyError("the checksum is wrong")
    codec = attributes & CODEC_MASK
    if codec > LZ4:
        raise UnknownCodecError(codec)
    try:
        _, at = read_field(view, pos + _HEAD.size + 8 * magic, end)
        value, at = read_field(view, at, end)
    except MalformedError:
        raise LegacyError("a field of the message claims an impossible length") from None
    if at != end:
        raise LegacyError("there are bytes behind the message's value")
    if value is None:
        raise LegacyError("a compressed message without a value")
    packed = memoryview(value)
    return work.append(codec, repair_lz4_header(packed) if codec == LZ4 and magic == 0 else packed, limit)


def _base(offset: int, magic: int, count: int, last: int) -> int:
    """Returns the number to add to the own offsets of the messages in the compressed one that has `offset`."""
    if count < 0:
        raise LegacyError("the messages in a compressed one claim impossible lengths or offsets")
    if count == 0:
        raise LegacyError("a compressed message without messages in it")
    # Some versions of librdkafka sent wrappers with offset 0, which brokers before 0.10 stored.
    base = 0 if magic == 0 or offset == 0 else offset - last
    if base < 0:
        raise LegacyError("the offset of a compressed message is below that of its last message")
    if base + last > MAX_BASE_OFFSET:
        raise LegacyError("the message's offset is impossible")
    return base
