"""Bounded decompression of record batches into one reused scratch buffer.

Every codec stops as soon as its output passes the limit: a small batch that unpacks to gigabytes costs at most
the limit in memory (zstandard's one-shot call would trust the size the frame claims).
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam
import zstandard

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODECS: Final = {"none": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = 16

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
# Flags of frames whose blocks stand on their own, without or with a checksum behind each; the batch has one anyway.
_LZ4_TRAILERS: Final = {0x60: 0, 0x70: 4}
_LZ4_STORED: Final = 1 << 31  # of a block's length: it is not compressed

_INITIAL: Final = 2 << 20
_KEEP: Final = 8 << 20  # a scratch that one huge batch made larger is not kept
_GZIP_WBITS: Final = 31


class DecompressionError(Exception):
    """The compressed bytes are broken."""


class OversizedError(Exception):
    """The output would pass the limit."""


class UnknownCodecError(Exception):
    """A codec number that Kafka has not given out."""


def _memory(size: int) -> mmap.mmap:
    """Private: a shared map (Python's default) would keep its size underneath and fault beyond it when resized."""
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class Scratch:
    """A buffer that decompressed batches are appended to until `reset`.

    It is a memory map because that grows in place: with a copy a large batch would be held twice.
    """

    def __init__(self) -> None:
        self.buffer = _memory(_INITIAL)
        self.used = 0

    def reset(self) -> None:
        self.used = 0
        if len(self.buffer) > _KEEP:
            self.buffer = _memory(_INITIAL)

    def room(self, least: int, most: int) -> memoryview:
        """The free part, from `least` to `most` bytes. Release it before the next call."""
        if len(self.buffer) - self.used < least:
            self._grow(max(self.used + least, min(2 * len(self.buffer), self.used + most)))
        with memoryview(self.buffer) as whole:
            return whole[self.used : self.used + most]

    def _grow(self, size: int) -> None:
        try:
            self.buffer.resize(size)
        except SystemError:  # no mremap on this platform
            grown = _memory(size)
            grown[: self.used] = self.buffer[: self.used]
            self.buffer = grown

    def append(self, data: bytes | bytearray | memoryview) -> None:
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

        Raises OversizedError past `limit` bytes, DecompressionError, UnknownCodecError.
        """
        if codec not in self._codecs:
            raise UnknownCodecError(codec)
        start = self.scratch.used
        try:
            self._codecs[codec](data, limit)
        except (DecompressionError, OversizedError):
            self.scratch.used = start
            raise
        return start, self.scratch.used

    def _zstd_frames(self, data: memoryview, limit: int) -> None:
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
                        raise DecompressionError(str(error)) from None
                self.scratch.used += got
                if got < size:
                    return  # the reader fills what it is given unless the input has ended
                if got == left:
                    raise OversizedError
                least = self.scratch.used - start

    def _gzip(self, data: memoryview, limit: int) -> None:
        scratch, start = self.scratch, self.scratch.used
        rest: bytes | memoryview = data
        member = zlib.decompressobj(_GZIP_WBITS)
        step = max(65536, 8 * len(data))
        while True:
            left = limit + 1 - (scratch.used - start)
            try:
                out = member.decompress(rest, min(step, left))
            except zlib.error as error:
                raise DecompressionError(str(error)) from None
            scratch.append(out)
            if len(out) == left:
                raise OversizedError
            rest = member.unconsumed_tail
            if member.eof:
                rest = member.unused_data
                if rest[:2] != b"\x1f\x8b":  # like Java: more members are read, other bytes are padding
                    return
                member = zlib.decompressobj(_GZIP_WBITS)
            elif not rest and not out:
                raise DecompressionError("the gzip stream ends too early")

    def _snappy(self, data: memoryview, limit: int) -> None:
        if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
            self._snappy_block(data, limit)
            return
        start, pos = self.scratch.used, XERIAL_HEADER
        while pos < len(data):
            if len(data) - pos < 4:
                raise DecompressionError("the snappy stream ends too early")
            (size,) = struct.unpack_from(">i", data, pos)
            pos += 4
            if size < 0 or size > len(data) - pos:
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
        """Frames as producers write them go block by block: a decoder of frames costs as much as a small batch."""
        if len(data) > 7 and bytes(data[:4]) == _LZ4_MAGIC and data[4] in _LZ4_TRAILERS:
            self._lz4_blocks(data, limit)
        else:
            self._lz4_frame(data, limit)

    def _lz4_blocks(self, data: memoryview, limit: int) -> None:
        start, pos, trailer = self.scratch.used, 7, _LZ4_TRAILERS[data[4]]
        longest = 1 << (8 + 2 * (data[5] >> 4 & 7))
        while True:
            if len(data) - pos < 4:
                raise DecompressionError("the LZ4 frame ends too early")
            size, pos = int.from_bytes(data[pos : pos + 4], "little"), pos + 4
            packed, size = size < _LZ4_STORED, size & (_LZ4_STORED - 1)
            if not size:
                break
            if size + trailer > len(data) - pos:
                raise DecompressionError(f"an LZ4 block of {size} bytes in {len(data) - pos}")
            self._lz4_block(data[pos : pos + size], packed, longest)
            pos += size + trailer
            if self.scratch.used - start > limit:
                raise OversizedError
        if pos < len(data):
            self._lz4(data[pos:], limit - (self.scratch.used - start))

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

    def _lz4_frame(self, data: memoryview, limit: int) -> None:
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
                        raise DecompressionError(str(error)) from None
            if size > limit:
                raise OversizedError
            least = min(4 * size, limit + 1)
        if got > limit:
            raise OversizedError
        self.scratch.used += got


_PRIME: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_U32: Final = 0xFFFFFFFF


def _rotate(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (32 - bits))) & _U32


def _xxh32_short(data: bytes) -> int:
    """xxHash-32 with seed 0 of fewer than 16 bytes: what an LZ4 frame descriptor needs."""
    h = (_PRIME[4] + len(data)) & _U32
    words = len(data) // 4
    for (word,) in struct.iter_unpack("<I", data[: 4 * words]):
        h = _rotate((h + word * _PRIME[2]) & _U32, 17) * _PRIME[3] & _U32
    for byte in data[4 * words :]:
        h = _rotate((h + byte * _PRIME[4]) & _U32, 11) * _PRIME[0] & _U32
    h = (h ^ (h >> 15)) * _PRIME[1] & _U32
    h = (h ^ (h >> 13)) * _PRIME[2] & _U32
    return h ^ (h >> 16)


def repair_lz4_header(data: memoryview) -> memoryview:
    """Sets the right header checksum in an LZ4 frame.

    Clients of message format v0 computed it over the wrong bytes, and Kafka ignores it there (KAFKA-3160).
    """
    if len(data) < 7:
        return data
    size = 2 + (8 if data[4] & 0x08 else 0) + (4 if data[4] & 0x01 else 0)
    if len(data) < 5 + size:
        return data
    fixed = bytearray(data)
    fixed[4 + size] = (_xxh32_short(bytes(data[4 : 4 + size])) >> 8) & 0xFF
    return memoryview(fixed)
