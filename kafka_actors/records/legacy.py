"""Message sets of formats v0 and v1 (Kafka before 0.11), which old segments may still hold.

A message is: offset i64, size i32, CRC-32 u32 (of all that follows), magic i8, attributes i8, in v1 timestamp i64,
key and value with int32 lengths (-1 for null). A compressed message is a wrapper: its value holds messages; in v0
their offsets are absolute, in v1 relative, and the wrapper's own offset is that of its last message (KIP-31), so
that gaps left by compaction keep. They are rewritten as v2 records for the kernel; plain Python does, as they are
rare.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from kafka_actors.records.batch import (
    CODEC_MASK,
    CREATE_TIME,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_BASE_OFFSET,
    MIN_LENGTH_V0,
    NO_TIMESTAMP_TYPE,
    TIMESTAMP_TYPE,
)
from kafka_actors.records.compression import (
    LZ4,
    Decompressor,
    UnknownCodecError,
    repair_lz4_header,
)
from kafka_actors.records.record import write_record

NO_TIMESTAMP: Final = -1
_MIN_LENGTH_V1: Final = 22
_PREFIX: Final = struct.Struct(">IbB")  # crc, magic, attributes


class LegacyError(Exception):
    """A message that can't be read."""


class Message(NamedTuple):
    """One message as it stands in the log."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: memoryview | None

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


class Entry(msgspec.Struct):
    """The records of one message, rewritten as v2 records; what the batch table needs of them."""

    end: int
    base_offset: int
    last_offset: int
    count: int
    timestamp_type: int
    append_timestamp: int
    body: bytes


def complete_at(view: memoryview, pos: int) -> bool:
    """Whether a complete message of an old format stands at `pos`."""
    left = len(view) - pos
    if left <= MAGIC_AT or view[pos + MAGIC_AT] > 1:
        return False
    length: int = struct.unpack_from(">i", view, pos + 8)[0]
    return MIN_LENGTH_V0 <= length <= left - LOG_OVERHEAD


def read(view: memoryview, pos: int, work: Decompressor, limit: int) -> Entry:
    """The message at `pos`, complete, with all that is in it.

    Raises LegacyError, and what Decompressor.append raises.
    """
    outer, end = _message(view, pos)
    messages = _inner(outer, work, limit) if outer.codec else [outer]
    return _entry(outer, messages, end)


def _entry(outer: Message, messages: list[Message], end: int) -> Entry:
    base = messages[0].offset
    if base < 0 or max(outer.offset, messages[-1].offset) > MAX_BASE_OFFSET:
        raise LegacyError("the message's offset is impossible")
    body = bytearray()
    for message in messages:
        delta = message.offset - base
        if not 0 <= delta < 2**31:
            raise LegacyError("the offsets inside the message do not rise")
        value = None if message.value is None else bytes(message.value)
        write_record(body, message.timestamp, delta, message.key, value)
    last = max(outer.offset, messages[-1].offset)
    kind = _timestamp_type(outer)
    return Entry(end, base, last, len(messages), kind, outer.timestamp, bytes(body))


def _timestamp_type(message: Message) -> int:
    if message.magic == 0:
        return NO_TIMESTAMP_TYPE
    return LOG_APPEND_TIME if message.attributes & TIMESTAMP_TYPE else CREATE_TIME


def _message(view: memoryview, pos: int) -> tuple[Message, int]:
    """One complete message and the position behind it; its checksum is right."""
    offset, length = struct.unpack_from(">qi", view, pos)
    end = pos + LOG_OVERHEAD + length
    start = pos + LOG_OVERHEAD
    stored, magic, attributes = _PREFIX.unpack_from(view, start)
    if magic not in (0, 1) or length < (MIN_LENGTH_V0, _MIN_LENGTH_V1)[magic]:
        raise LegacyError(f"a message of magic {magic} with {length} bytes")
    if zlib.crc32(view[start + 4 : end]) != stored:
        raise LegacyError("the checksum is wrong")
    at, timestamp = start + _PREFIX.size, NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = struct.unpack_from(">q", view, at)
        at += 8
    key, at = _field(view, at, end)
    value, at = _field(view, at, end)
    if at != end:
        raise LegacyError("there are bytes behind the message's value")
    return Message(offset, magic, attributes, timestamp, None if key is None else bytes(key), value), end


def _field(view: memoryview, pos: int, end: int) -> tuple[memoryview | None, int]:
    if end - pos < 4:
        raise LegacyError("the message is cut off")
    (length,) = struct.unpack_from(">i", view, pos)
    pos += 4
    if length < -1 or length > end - pos:
        raise LegacyError(f"a field of {length} bytes in {end - pos}")
    return (None, pos) if length < 0 else (view[pos : pos + length], pos + length)


def _inner(outer: Message, work: Decompressor, limit: int) -> list[Message]:
    """The messages inside a compressed one, with absolute offsets."""
    if outer.codec > LZ4:
        raise UnknownCodecError(outer.codec)
    if outer.value is None:
        raise LegacyError("a compressed message without a value")
    packed = outer.value
    if outer.codec == LZ4 and outer.magic == 0:
        packed = repair_lz4_header(packed)
    start, end = work.append(outer.codec, packed, limit)
    work.scratch.used = start
    messages = list(_messages(memoryview(work.scratch.buffer[start:end])))
    if not messages:
        raise LegacyError("a compressed message without messages in it")
    if any(message.codec for message in messages):
        raise LegacyError("a compressed message inside a compressed one")
    if outer.magic == 0:
        return messages
    return _absolute(outer.offset, messages)


def _messages(view: memoryview) -> Iterator[Message]:
    """Messages one behind the other; a partial one at the end is left out, as Java does."""
    pos = 0
    while len(view) - pos >= LOG_OVERHEAD:
        (length,) = struct.unpack_from(">i", view, pos + 8)
        if length < MIN_LENGTH_V0:
            raise LegacyError(f"an inner message of {length} bytes")
        if length > len(view) - pos - LOG_OVERHEAD:
            return
        message, pos = _message(view, pos)
        yield message


def _absolute(wrapper_offset: int, messages: list[Message]) -> list[Message]:
    last = messages[-1].offset
    # Some versions of librdkafka sent wrappers with offset 0, which brokers before 0.10 stored.
    base = 0 if wrapper_offset == 0 else wrapper_offset - last
    if base < 0:
        raise LegacyError("the offset of a compressed message is below that of its last message")
    return [message._replace(offset=base + message.offset) for message in messages]
