"""Bounded decompression: every codec, many frames, broken and hostile streams."""

import gzip
import struct
import zlib

import cramjam
import pytest
import zstandard

from kafka_actors.records._reference import xxh32
from kafka_actors.records.compression import (
    CODECS,
    GZIP,
    LZ4,
    SNAPPY,
    XERIAL_MAGIC,
    ZSTD,
    DecompressionError,
    Decompressor,
    OversizedError,
    UnknownCodecError,
    repair_lz4_header,
)

LIMIT = 1 << 20
TEXT = b"".join(b"order %d, " % i for i in range(20_000))


def lz4(data: bytes, linked: bool = False) -> bytes:
    frame = cramjam.lz4.Compressor(block_linked=linked)
    frame.compress(data)
    return bytes(frame.finish())


def lz4_plain(*blocks: bytes, stored: bool = False, checksum: bool = False) -> bytes:
    """As producers write it: blocks on their own, without checksums or with one behind each."""
    frame = LZ4_MAGIC + lz4_descriptor(0x70 if checksum else 0x60)
    for block in blocks:
        packed = block if stored else bytes(cramjam.lz4.compress_block(block, store_size=False))
        frame += struct.pack("<I", len(packed) | stored << 31) + packed
        frame += struct.pack("<I", xxh32(packed)) if checksum else b""
    return frame + bytes(4)


LZ4_MAGIC = b"\x04\x22\x4d\x18"


def lz4_descriptor(flags: int, sizes: int = 0x40, more: bytes = b"") -> bytes:
    descriptor = bytes([flags, sizes]) + more
    return descriptor + bytes([xxh32(descriptor) >> 8 & 0xFF])


def with_flags(frame: bytes, flags: int, sizes: int = 0x40, more: bytes = b"") -> bytes:
    """A frame with another header, whose checksum is right."""
    return LZ4_MAGIC + lz4_descriptor(flags, sizes, more) + frame[7:]


TEXT_BLOCKS = [TEXT[at : at + 65_536] for at in range(0, len(TEXT), 65_536)]


def xerial(*blocks: bytes) -> bytes:
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return XERIAL_MAGIC + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(p)) + p for p in packed)


def zstd_streamed(data: bytes) -> bytes:
    """A frame that does not say how long its content is."""
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


STREAMS = {
    "gzip": (GZIP, gzip.compress(TEXT)),
    "two gzip members": (GZIP, gzip.compress(TEXT[:70_000]) + gzip.compress(TEXT[70_000:])),
    "padded gzip": (GZIP, gzip.compress(TEXT) + b"\0" * 9),
    "raw snappy": (SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),
    "xerial snappy": (SNAPPY, xerial(TEXT[:32_768], TEXT[32_768:65_536], TEXT[65_536:])),
    "xerial snappy with an empty block": (SNAPPY, xerial(TEXT, b"")),
    "lz4 of independent blocks": (LZ4, lz4(TEXT)),
    "lz4 of linked blocks": (LZ4, lz4(TEXT, linked=True)),
    "lz4 of plain blocks": (LZ4, lz4_plain(*TEXT_BLOCKS)),
    "lz4 of plain blocks with checksums": (LZ4, lz4_plain(*TEXT_BLOCKS, checksum=True)),
    "lz4 of stored blocks": (LZ4, lz4_plain(*TEXT_BLOCKS, stored=True)),
    "lz4 and bytes behind it": (LZ4, lz4_plain(*TEXT_BLOCKS) + b"abc"),
    "lz4 and 2,000 empty frames": (LZ4, lz4_plain(*TEXT_BLOCKS) + 2_000 * lz4_plain()),
    "lz4 with a wrong size and checksum of its content": (
        LZ4,
        with_flags(lz4_plain(*TEXT_BLOCKS), 0x6C, more=bytes(8)) + b"none",
    ),
    "lz4 of linked blocks with a wrong checksum of its content": (
        LZ4,
        with_flags(lz4(TEXT, linked=True), 0x54, 0x70) + b"none",
    ),
    "gzip and the start of a member": (GZIP, gzip.compress(TEXT) + gzip.compress(TEXT)[:18]),
    "gzip and what only looks like a member": (GZIP, gzip.compress(TEXT) + b"\x1f\x8bno member, but padding"),
    "two streams of xerial snappy": (SNAPPY, xerial(TEXT[:99]) + xerial(TEXT[99:])),
    "xerial snappy and bytes behind it": (SNAPPY, xerial(TEXT) + b"\0\0\0"),
    "zstd and the start of a frame": (ZSTD, zstandard.compress(TEXT) + zstandard.compress(TEXT)[:9]),
    "zstd and a skippable frame": (ZSTD, zstandard.compress(TEXT) + b"\x5a\x2a\x4d\x18\2\0\0\0ab"),
    "zstd": (ZSTD, zstandard.compress(TEXT)),
    "zstd of unknown size": (ZSTD, zstd_streamed(TEXT)),
    "zstd in three frames": (
        ZSTD,
        zstandard.compress(TEXT[:9]) + zstd_streamed(TEXT[9:99]) + zstandard.compress(TEXT[99:]),
    ),
}


def unpack(codec: int, data: bytes, limit: int = LIMIT) -> bytes:
    work = Decompressor()
    work.scratch.append(b"before")
    start, end = work.append(codec, memoryview(data), limit)
    assert start == 6
    assert end == work.scratch.used
    return work.scratch.buffer[start:end]


@pytest.mark.parametrize("name", STREAMS)
def test_every_framing_is_read_whole(name):
    assert unpack(*STREAMS[name]) == TEXT


@pytest.mark.parametrize("name", STREAMS)
def test_the_limit_holds_to_the_byte_and_across_frames(name):
    codec, data = STREAMS[name]
    assert unpack(codec, data, limit=len(TEXT)) == TEXT
    for limit in (1, 1000, len(TEXT) - 1):
        with pytest.raises(OversizedError):
            unpack(codec, data, limit=limit)


@pytest.mark.parametrize("name", STREAMS)
def test_a_refused_batch_leaves_the_scratch_as_it_was(name):
    codec, data = STREAMS[name]
    work = Decompressor()
    work.scratch.append(b"before")
    with pytest.raises(OversizedError):
        work.append(codec, memoryview(data), 1000)
    assert work.scratch.used == 6
    assert work.scratch.buffer[:6] == b"before"
    start, end = work.append(codec, memoryview(data), LIMIT)
    assert work.scratch.buffer[start:end] == TEXT


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (GZIP, b"\x1f\x8b but nothing more"),
        (GZIP, gzip.compress(TEXT)[:-20]),
        (GZIP, b""),
        (SNAPPY, b"\xff\xff\xff\xff\xff\xff"),
        (SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))[:-5]),
        (SNAPPY, xerial(TEXT)[:-5]),
        (SNAPPY, xerial(TEXT) + b"\0\0\0\0"),
        (GZIP, gzip.compress(TEXT) + gzip.compress(TEXT)[:19]),
        (GZIP, gzip.compress(TEXT)[:-1]),
        (SNAPPY, XERIAL_MAGIC + struct.pack(">iii", 1, 1, -4)),
        (LZ4, b"\x04\x22\x4d\x18 but nothing more"),
        (LZ4, b"no frame at all"),
        (LZ4, lz4_plain(TEXT_BLOCKS[0])[:-4]),
        (LZ4, lz4_plain(TEXT_BLOCKS[0])[:-5]),
        (LZ4, lz4_plain(TEXT_BLOCKS[0])[:100]),
        (LZ4, LZ4_MAGIC + b"\x60\x40\x83" + lz4_plain(TEXT_BLOCKS[0])[7:]),
        (LZ4, with_flags(lz4_plain(TEXT_BLOCKS[0]), 0x60, 0x30)),
        (LZ4, with_flags(lz4_plain(TEXT_BLOCKS[0]), 0x60, 0x41)),
        (LZ4, with_flags(lz4_plain(TEXT_BLOCKS[0]), 0x62)),
        (LZ4, with_flags(lz4_plain(TEXT_BLOCKS[0]), 0x61)),
        (LZ4, with_flags(lz4_plain(TEXT_BLOCKS[0]), 0xA0)),
        (LZ4, with_flags(lz4_plain(TEXT_BLOCKS[0]), 0x64) + b"abc"),
        (LZ4, lz4_plain(TEXT[:70_000], stored=True)),
        (LZ4, lz4_plain(b"abcd", stored=True, checksum=True)[:-8] + b"none" + bytes(4)),
        (LZ4, b"\x50\x2a\x4d\x18\0\0\0\0" + lz4_plain(TEXT_BLOCKS[0])),
        (LZ4, lz4_plain(TEXT_BLOCKS[0])[:30] + b"\xff" * 99 + lz4_plain(TEXT_BLOCKS[0])[129:]),
        (LZ4, lz4_plain(TEXT)),
        (ZSTD, b"no frame at all"),
        (ZSTD, zstandard.compress(TEXT)[:-1]),
        (ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)[:-4]),
        (ZSTD, zstd_streamed(TEXT)[:-3]),
        (ZSTD, zstandard.compress(TEXT) + b"\0"),
        (ZSTD, zstandard.compress(TEXT)[:3]),
        (ZSTD, zstandard.compress(TEXT)[:10] + b"\xff" * 40),
    ],
)
def test_a_broken_stream_is_an_error(codec, data):
    with pytest.raises(DecompressionError):
        unpack(codec, data)


@pytest.mark.parametrize("codec", [LZ4, ZSTD])
def test_a_stream_cut_off_never_gives_more_than_it_holds(codec):
    """Where the codec's library calls a cut an end, the record count of the batch tells."""
    data = next(packed for c, packed in STREAMS.values() if c == codec)
    for cut in (0, 3, len(data) // 2, len(data) - 5):
        try:
            assert TEXT.startswith(unpack(codec, data[:cut]))
        except DecompressionError:
            continue


def test_a_gzip_stream_of_very_many_members_is_read_in_time_in_proportion(monkeypatch):
    given, make = [], zlib.decompressobj

    class Member:
        """A decompressor that notes how many bytes it is given: what is behind its member it copies."""

        def __init__(self, wbits):
            self._member = make(wbits)

        def decompress(self, data, most):
            given.append(len(data))
            return self._member.decompress(data, most)

        def __getattr__(self, name):
            return getattr(self._member, name)

    monkeypatch.setattr(zlib, "decompressobj", Member)

    def input_bytes(members):
        given.clear()
        data = gzip.compress(b"a") * members
        work = Decompressor()
        start, end = work.append(GZIP, memoryview(data), LIMIT)
        assert work.scratch.buffer[start:end] == b"a" * members
        return sum(given)

    assert input_bytes(8_000) < 3 * input_bytes(4_000)


def test_an_unknown_codec_is_named():
    with pytest.raises(UnknownCodecError, match="5"):
        unpack(5, TEXT)
    assert CODECS == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def test_the_scratch_gives_back_what_one_huge_batch_took():
    work = Decompressor()
    before = len(work.scratch.buffer)
    work.append(ZSTD, memoryview(zstandard.compress(bytes(30 << 20))), 64 << 20)
    assert len(work.scratch.buffer) > 30 << 20
    work.scratch.reset()
    assert len(work.scratch.buffer) == before


def test_the_wrong_header_checksum_of_old_lz4_frames_is_repaired():
    good = lz4(TEXT)
    broken = bytearray(good)
    broken[6] ^= 0x5A
    with pytest.raises(DecompressionError):
        unpack(LZ4, bytes(broken))
    assert bytes(repair_lz4_header(memoryview(bytes(broken)))) == good


def test_lz4_headers_too_short_to_repair_are_left_alone():
    for size in range(7):
        data = memoryview(lz4(TEXT)[:size])
        assert repair_lz4_header(data) is data
