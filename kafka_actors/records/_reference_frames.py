"""The plain-Python twin of the kernel's walk over the frames of codecs."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_STORED: Final = 1 << 31
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x50\x2a\x4d\x18"  # the first byte up to 0x5f

_PRIME: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_U32: Final = 0xFFFFFFFF


def _rotate(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (32 - bits))) & _U32


def xxh32(data: Buffer) -> int:
    """xxHash-32 with seed 0: the checksum in LZ4 frames."""
    frame = bytes(data)
    h, pos = _PRIME[4], len(frame) // 16 * 16
    if pos:
        lanes = [(_PRIME[0] + _PRIME[1]) & _U32, _PRIME[1], 0, -_PRIME[0] & _U32]
        for words in struct.iter_unpack("<4I", frame[:pos]):
            lanes = [
                _rotate((lane + word * _PRIME[1]) & _U32, 13) * _PRIME[0] & _U32
                for lane, word in zip(lanes, words, strict=True)
            ]
        h = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    h = (h + len(frame)) & _U32
    behind = len(frame) // 4 * 4
    for (word,) in struct.iter_unpack("<I", frame[pos:behind]):
        h = _rotate((h + word * _PRIME[2]) & _U32, 17) * _PRIME[3] & _U32
    for byte in frame[behind:]:
        h = _rotate((h + byte * _PRIME[4]) & _U32, 11) * _PRIME[0] & _U32
    h = (h ^ (h >> 15)) * _PRIME[1] & _U32
    h = (h ^ (h >> 13)) * _PRIME[2] & _U32
    return h ^ (h >> 16)


def lz4_blocks(data: Buffer) -> tuple[int, bool, int, array[int]]:
    """Checks the header and the blocks of an LZ4 frame as Java's reader does, up to the first end mark.

    Returns (largest size of a block, whether each stands on its own, position behind the end mark, and for each block
    its position and its size, negative where it is not compressed: flat, as a frame may have very many). Raises
    ValueError.
    """
    frame = bytes(data)
    if len(frame) < 7 or frame[:4] != _LZ4_MAGIC:
        raise ValueError("no LZ4 frame")
    flags, sizes = frame[4], frame[5]
    if flags & 0xC3 != 0x40 or sizes & 0x8F or sizes < 0x40:
        raise ValueError(f"an LZ4 frame with flags {flags} and block size {sizes}")
    pos = 14 if flags & 0x08 else 6
    if pos >= len(frame) or frame[pos] != xxh32(frame[4:pos]) >> 8 & 0xFF:
        raise ValueError("the checksum of the LZ4 frame's header is wrong")
    longest = 1 << (8 + 2 * (sizes >> 4))
    pos, blocks = _lz4_walk(frame, pos + 1, longest, 4 if flags & 0x10 else 0)
    if flags & 0x04 and len(frame) - pos < 4:
        raise ValueError("the LZ4 frame ends too early")
    return longest, bool(flags & 0x20), pos, blocks


def _lz4_walk(data: bytes, pos: int, longest: int, trailer: int) -> tuple[int, array[int]]:
    blocks = array("q")
    while True:
        if len(data) - pos < 4:
            raise ValueError("the LZ4 frame ends too early")
        (word,) = struct.unpack_from("<I", data, pos)
        size, pos = word & (_LZ4_STORED - 1), pos + 4
        if not size:
            return pos, blocks
        if size > longest or size + trailer > len(data) - pos:
            raise ValueError(
                f"an LZ4 block of {size} bytes in {len(data) - pos}, where {longest} are the most"
            )
        end = pos + size
        if trailer and xxh32(data[pos:end]) != struct.unpack_from("<I", data, end)[0]:
            raise ValueError("the checksum of an LZ4 block is wrong")
        blocks.extend((pos, size if word == size else -size))
        pos = end + trailer


def zstd_end(data: Buffer) -> int:
    """The position behind the last whole zstd frame.

    As with Java's reader a frame that is cut off counts as padding behind a whole one. Raises ValueError for other
    bytes, and where no frame is whole.
    """
    frame, end = bytes(data), 0
    while end < len(frame):
        magic = frame[end : end + 4]
        if magic == _ZSTD_MAGIC[: len(magic)]:
            behind = _zstd_frame_end(frame, end)
        elif bytes([magic[0] & 0xF0]) + magic[1:] == _ZSTD_SKIPPABLE[: len(magic)]:
            complete = len(frame) - end >= 8
            behind = end + 8 + struct.unpack_from("<I", frame, end + 4)[0] if complete else len(frame) + 1
        else:
            raise ValueError("bytes that are no zstd frame")
        if behind > len(frame):
            break
        end = behind
    if not end and frame:
        raise ValueError("the zstd frame ends too early")
    return end


def _zstd_frame_end(data: bytes, pos: int) -> int:
    """The position behind the frame that begins at `pos`, by the lengths of its blocks; beyond the data if it is cut."""
    if len(data) - pos < 5:
        return len(data) + 1
    descriptor = data[pos + 4]
    single = bool(descriptor & 0x20)
    # The size of the window, the dictionary, the size of the content.
    pos += 5 + (not single) + (0, 1, 2, 4)[descriptor & 3] + ((1 if single else 0), 2, 4, 8)[descriptor >> 6]
    header = 0
    while not header & 1:
        if len(data) - pos < 3:
            return len(data) + 1
        header = int.from_bytes(data[pos : pos + 3], "little")
        pos += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)  # 1: one byte, repeated
    return pos + (descriptor & 0x04)  # a checksum of 4 bytes
