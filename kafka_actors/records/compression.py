"""Bounded decompression of record batches into a scratch buffer, and the workspaces that decoders reuse.

Every codec stops as soon as its output passes the limit: a small batch that unpacks to gigabytes costs at most
the limit in memory (zstandard's one-shot call would trust the size the frame claims).
"""

from __future__ import annotations

import mmap
import struct
import threading
import zlib
from array import array
from collections.abc import Callable
from typing import Final

import cramjam
import zstandard

from .batch import new_table
from .kernel import ACTIVE

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODECS: Final = {"none": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = 16

_LZ4_SHORTEST: Final = 7  # magic, flags, block size and their checksum
_LZ4_CONTENT_SIZE: Final = 0x08  # of a frame's flags
_LZ4_CONTENT: Final = 0x1C  # its size, and checksums of blocks and of all

_INITIAL: Final = 2 << 20
_KEEP: Final = 8 << 20  # a scratch that one huge batch made larger is not kept
_GZIP_WBITS: Final = 31
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_SHORTEST: Final = 19  # of a member
_GZIP_PIECE: Final = 16 << 10
"""Bytes that zlib gets at a time: behind each member it copies those that it has not used."""


class DecompressionError(Exception):
    """The compressed bytes are broken."""


class OversizedError(Exception):
    """The output would pass the limit."""


class UnknownCodecError(Exception):
    """A codec number that Kafka has not given out."""


def _memory(size: int) -> mmap.mmap:
    """Maps private memory: a shared map (Python's default) would keep its size underneath and fault beyond it when resized."""
    try:
        return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise _no_memory(size) from error


def _no_memory(size: int) -> MemoryError:
    return MemoryError(f"no {size} bytes of memory for decompressed records")


class Scratch:
    """A buffer that decompressed batches are appended to until `reset`.

    It is a memory map because that grows in place: with a copy a large batch would be held twice.
    """

    def __init__(self) -> None:
        self.buffer = _memory(_INITIAL)
        self.used = 0

    def reset(self) -> None:
        """Empties the buffer."""
        self.used = 0
        if len(self.buffer) > _KEEP:
            self.buffer = _memory(_INITIAL)

    def room(self, least: int, most: int) -> memoryview:
        """Returns the free part, from `least` to `most` bytes. Release it before the next call."""
        if len(self.buffer) - self.used < least:
            self._grow(max(self.used + least, min(2 * len(self.buffer), self.used + most)))
        with memoryview(self.buffer) as buffer_view:
            return buffer_view[self.used : self.used + most]

    def _grow(self, size: int) -> None:
        try:
            self.buffer.resize(size)
        except OSError as error:
            raise _no_memory(size) from error
        except SystemError:  # no mremap on this platform
            grown = _memory(size)
            grown[: self.used] = self.buffer[: self.used]
            self.buffer = grown

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Appends bytes that need no decompression."""
        with self.room(len(data), len(data)) as room:
            room[:] = data
        self.used += len(data)


class Decompressor:
    """Decompresses into its scratch; reuses the codec's state from batch to batch. One thread at a time."""

    def __init__(self) -> None:
        self.scratch = Scratch()
        self._zstd = zstandard.ZstdDecompressor()
        self._codecs: dict[int, Callable[[memoryview, int], None]] = {
            GZIP: self._gzip,
            SNAPPY: self._snappy,
            LZ4: self._lz4,
            ZSTD: self._zstd_frames,
        }

    def append(self, codec: int, data: memoryview, limit: int) -> tuple[int, int]:
        """Appends the decompressed `data` to the scratch; returns its range there.

        Raises OversizedError past `limit` bytes, DecompressionError, UnknownCodecError; MemoryError where there is none,
        which says nothing about the batch.
        """
        if codec not in self._codecs:
            raise UnknownCodecError(codec)
        start = self.scratch.used
        try:
            self._codecs[codec](data, limit)
        except (DecompressionError, OversizedError, MemoryError):
            self.scratch.used = start
            raise
        return start, self.scratch.used

    def _zstd_frames(self, data: memoryview, limit: int) -> None:
        try:
            data = data[: ACTIVE.zstd_end(data)]
        except ValueError as error:
            raise DecompressionError(str(error)) from None
        start = self.scratch.used
        least = 4 * len(data)
        with self._zstd.stream_reader(data, read_across_frames=True) as reader:
            while True:
                left = limit + 1 - (self.scratch.used - start)
                with self.scratch.room(max(1, min(least, left)), left) as room:
                    size = len(room)
                    try:
                        got = reader.readinto(room)
                    except zstandard.ZstdError as error:
                        raise _failure(error) from None
                self.scratch.used += got
                if got < size:
                    return  # the reader fills its buffer unless the input has ended
                if got == left:
                    raise OversizedError
                least = self.scratch.used - start

    def _gzip(self, data: memoryview, limit: int) -> None:
        scratch, start, pos = self.scratch, self.scratch.used, 0
        rest: bytes | memoryview = b""
        member = zlib.decompressobj(_GZIP_WBITS)
        step = max(65536, 8 * len(data))
        while True:
            if not rest:
                rest = data[pos : pos + _GZIP_PIECE]
                pos += len(rest)
            left = limit + 1 - (scratch.used - start)
            try:
                out = member.decompress(rest, min(step, left))
            except zlib.error as error:
                raise _failure(error) from None
            scratch.append(out)
            if len(out) == left:
                raise OversizedError
            rest = member.unconsumed_tail
            if member.eof:
                pos -= len(member.unused_data)
                if len(data) - pos < _GZIP_SHORTEST or bytes(data[pos : pos + 3]) != _GZIP_MAGIC:
                    return  # like Java: more members are read, other bytes are padding
                member = zlib.decompressobj(_GZIP_WBITS)
            elif not rest and not out and pos == len(data):
                raise DecompressionError("the gzip stream ends too early")

    def _snappy(self, data: memoryview, limit: int) -> None:
        if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
            self._snappy_block(data, limit)
            return
        start, pos = self.scratch.used, XERIAL_HEADER
        while len(data) - pos >= 4:  # like Java: less is padding
            if (
                bytes(data[pos : pos + len(XERIAL_MAGIC)]) == XERIAL_MAGIC
                and len(data) - pos >= XERIAL_HEADER
            ):
                pos += XERIAL_HEADER  # of another stream
                continue
            (size,) = struct.unpack_from(">i", data, pos)
            pos += 4
            if size <= 0 or size > len(data) - pos:
                raise DecompressionError(f"a snappy block of {size} bytes in {len(data) - pos}")
            self._snappy_block(data[pos : pos + size], limit - (self.scratch.used - start))
            pos += size

    def _snappy_block(self, block: memoryview, limit: int) -> None:
        try:
            size = cramjam.snappy.decompress_raw_len(block)
            if size > limit:
                raise OversizedError
            with self.scratch.room(size, size) as room:
                if size:
                    cramjam.snappy.decompress_raw_into(block, room)
        except cramjam.DecompressionError as error:
            raise DecompressionError(str(error)) from None
        self.scratch.used += size

    def _lz4(self, data: memoryview, limit: int) -> None:
        """Decompresses one frame, up to its end mark. Like Java's reader it ignores bytes behind that, and the frame's size and
        checksum of the whole content; Kafka's batches have both themselves."""
        try:
            longest, independent, _, blocks = ACTIVE.lz4_blocks(data)
        except ValueError as error:
            raise DecompressionError(str(error)) from None
        if not independent:
            self._lz4_linked(data, blocks, limit)
            return
        # Block by block, as producers write it: a decoder of frames costs as much as a small batch.
        start = self.scratch.used
        for pos, size in zip(blocks[::2], blocks[1::2], strict=True):
            self._lz4_block(data[pos : pos + abs(size)], size > 0, longest)
            if self.scratch.used - start > limit:
                raise OversizedError

    def _lz4_block(self, block: memoryview, packed: bool, most: int) -> None:
        if not packed:
            self.scratch.append(block)
            return
        with self.scratch.room(most, most) as room:
            try:
                got = cramjam.lz4.decompress_block_into(block, room, output_len=most)
            except cramjam.DecompressionError as error:
                raise DecompressionError(str(error)) from None
        self.scratch.used += got

    def _lz4_linked(self, data: memoryview, blocks: array[int], limit: int) -> None:
        """Decompresses blocks that need those before them, which Java refuses and other clients read, as a frame of blocks
        alone."""
        descriptor = bytes([data[4] & ~_LZ4_CONTENT, data[5]])
        parts = [bytes(data[:4]), descriptor, _lz4_checksum(descriptor)]
        parts += [
            bytes(data[pos - 4 : pos + abs(size)])
            for pos, size in zip(blocks[::2], blocks[1::2], strict=True)
        ]
        self._lz4_frame(b"".join([*parts, bytes(4)]), limit)

    def _lz4_frame(self, data: bytes, limit: int) -> None:
        # cramjam stops when its output is full and starts over when called again, so the room grows fast.
        least = min(max(65536, 8 * len(data)), limit + 1)
        while True:
            with self.scratch.room(least, limit + 1) as room:
                size = len(room)
                try:
                    got = cramjam.lz4.decompress_into(data, room)
                    break
                except cramjam.DecompressionError as error:
                    if "whole buffer" not in str(error):
                        raise _failure(error) from None
            if size > limit:
                raise OversizedError
            least = min(4 * size, limit + 1)
        if got > limit:
            raise OversizedError
        self.scratch.used += got


TABLE_ROWS: Final = 1024
_FREE_WORKSPACES: Final = 2  # per thread: an unfinished generator may hold one while its successor works
_local = threading.local()


class Workspace(Decompressor):
    """A Decompressor with a table for batches, which decoders use one after the other. For one decoder at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.table = new_table(TABLE_ROWS)


def borrow() -> Workspace:
    """Returns a workspace for the caller alone, until `give_back`: making one costs more than decoding a batch."""
    free: list[Workspace] = _local.__dict__.setdefault("free", [])
    return free.pop() if free else Workspace()


def give_back(workspace: Workspace) -> None:
    """Makes a borrowed workspace free for the next decoder of this thread."""
    workspace.scratch.reset()
    free: list[Workspace] = _local.__dict__.setdefault("free", [])
    if len(free) < _FREE_WORKSPACES:
        free.append(workspace)


def _failure(error: Exception) -> Exception:
    """Returns the error for one of a codec's library. A lack of memory is told apart: it says nothing about the bytes."""
    text = str(error)
    if "not enough memory" in text or "allocation" in text or "Error -4 " in text:
        return MemoryError(f"no memory to decompress records: {text}")
    return DecompressionError(text)


def _lz4_checksum(descriptor: bytes) -> bytes:
    """Returns the checksum byte behind an LZ4 frame's descriptor."""
    return bytes([ACTIVE.xxh32(descriptor) >> 8 & 0xFF])


def repair_lz4_header(data: memoryview) -> memoryview:
    """Sets the right header checksum in an LZ4 frame.

    Clients of message format v0 computed it over the wrong bytes, and Kafka ignores it there (KAFKA-3160).
    """
    if len(data) < _LZ4_SHORTEST:
        return data
    size = 2 + (8 if data[4] & _LZ4_CONTENT_SIZE else 0)
    if len(data) < 5 + size:
        return data
    fixed = bytearray(data)
    fixed[4 + size : 5 + size] = _lz4_checksum(bytes(data[4 : 4 + size]))
    return memoryview(fixed)
