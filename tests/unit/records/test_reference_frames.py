"""The kernel's twin on frames of codecs: checksums and ends, against frames that other libraries made."""

import cramjam
import pytest
import zstandard

from kafka_actors.records._reference_frames import lz4_blocks, xxh32, zstd_end

DATA = bytes(range(256)) * 300


# From the specification of xxHash, and its reference implementation.
@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_the_checksum_is_xxhash(data, hashed):
    assert xxh32(data) == hashed


def test_an_lz4_frame_ends_behind_its_mark():
    frame = bytes(cramjam.lz4.compress(DATA))
    longest, _, end, blocks = lz4_blocks(frame + b"more")
    assert end <= len(frame)
    assert longest >= 1 << 16
    assert len(blocks) >= 2
    assert blocks[0] > 6


def test_each_wrong_byte_of_an_lz4_header_is_noticed():
    frame = bytes(cramjam.lz4.compress(DATA))
    for at in range(7):
        broken = bytearray(frame)
        broken[at] ^= 0x04
        with pytest.raises(ValueError, match="LZ4"):
            lz4_blocks(broken)


def test_an_lz4_frame_that_is_cut_off_is_no_frame():
    frame = bytes(cramjam.lz4.compress(DATA))
    for length in (0, 3, 6, len(frame) // 2):
        with pytest.raises(ValueError, match="LZ4"):
            lz4_blocks(frame[:length])


def test_whole_zstd_frames_are_counted_and_a_cut_one_behind_them_is_padding():
    one = zstandard.ZstdCompressor().compress(DATA)
    assert zstd_end(one) == len(one)
    assert zstd_end(one + one) == 2 * len(one)
    assert zstd_end(one + one[:-1]) == len(one)
    skippable = b"\x53\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    assert zstd_end(one + skippable) == len(one) + len(skippable)


def test_a_zstd_frame_has_to_be_whole_and_nothing_else_may_follow():
    one = zstandard.ZstdCompressor().compress(DATA)
    with pytest.raises(ValueError, match="ends too early"):
        zstd_end(one[:-1])
    with pytest.raises(ValueError, match="no zstd frame"):
        zstd_end(one + b"abcd")
    assert zstd_end(b"") == 0
