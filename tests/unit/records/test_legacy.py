"""Message sets of formats v0 and v1, byte by byte."""

import gzip
import struct
import zlib

import pytest

from kafka_actors import records
from kafka_actors.errors import CorruptRecordBatchError, UnsupportedCompressionError
from kafka_actors.records.batch import is_compressed

GZIP = 1


def message(
    offset: int,
    magic: int,
    key: bytes | None,
    value: bytes | None,
    *,
    attributes: int = 0,
    timestamp: int = 1_000,
) -> bytes:
    body = struct.pack(">bB", magic, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(offset: int, magic: int, *inner: bytes, attributes: int = GZIP, timestamp: int = 9_000) -> bytes:
    value = gzip.compress(b"".join(inner), mtime=0)  # the bytes are in test ids: the same in each worker
    return message(offset, magic, None, value, attributes=attributes, timestamp=timestamp)


def read(data: bytes, **options: object) -> list[tuple]:
    rows = []
    for chunk in records.Decoder("t", 0, **options).feed(data):
        columns = chunk.batch.to_pydict()
        stamps = chunk.batch.column("timestamp").cast("int64").to_pylist()
        rows += list(zip(columns["offset"], columns["value"], stamps, columns["timestampType"], strict=True))
    return rows


def test_v0_has_no_timestamps():
    data = message(5, 0, None, b"a") + message(6, 0, b"k", None)
    assert read(data) == [(5, b"a", -1_000, -1), (6, None, -1_000, -1)]


def test_inner_offsets_of_v0_are_absolute_and_gaps_stay():
    data = wrapper(17, 0, message(10, 0, None, b"a"), message(17, 0, None, b"b"))
    assert read(data) == [(10, b"a", -1_000, -1), (17, b"b", -1_000, -1)]


def test_inner_offsets_of_v1_count_back_from_the_wrappers_last():
    inner = [message(0, 1, None, b"a"), message(1, 1, None, b"b"), message(4, 1, None, b"c", timestamp=7)]
    expected = [(100, b"a", 1_000_000, 0), (101, b"b", 1_000_000, 0), (104, b"c", 7_000, 0)]
    assert read(wrapper(104, 1, *inner)) == expected
    assert read(wrapper(104, 1, *inner), fetch_offset=101) == expected[1:]


def test_compaction_may_take_the_first_inner_messages():
    assert read(wrapper(104, 1, message(3, 1, None, b"x"), message(4, 1, None, b"y"))) == [
        (103, b"x", 1_000_000, 0),
        (104, b"y", 1_000_000, 0),
    ]


def test_wrappers_that_old_librdkafka_left_at_offset_0():
    rows = read(wrapper(0, 1, message(0, 1, None, b"a"), message(1, 1, None, b"b")))
    assert [row[0] for row in rows] == [0, 1]


def test_log_append_time_of_v1_is_the_wrappers():
    data = wrapper(1, 1, message(0, 1, None, b"a"), message(1, 1, None, b"b"), attributes=GZIP | 8)
    assert read(data) == [(0, b"a", 9_000_000, 1), (1, b"b", 9_000_000, 1)]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_header_tells_whether_its_message_is_compressed(magic):
    plain = message(0, magic, None, b"v" * 100)
    assert is_compressed(memoryview(plain)) is False
    assert is_compressed(memoryview(wrapper(0, magic, plain, plain))) is True


def test_a_partial_message_at_the_end_of_a_set_and_of_a_wrapper_is_left_out():
    inner = message(0, 1, None, b"a")
    for cut in (1, 11, 13, len(inner) - 1):
        assert len(read(inner + message(1, 1, None, b"b")[:cut])) == 1
        assert len(read(wrapper(0, 1, inner, message(1, 1, None, b"b")[:cut]))) == 1


def test_many_messages_come_in_chunks():
    data = b"".join(message(i, 1, None, b"%d" % i) for i in range(3_000))
    chunks = list(records.Decoder("t", 0, limits=records.Limits(chunk_rows=1_100)).feed(data))
    assert [c.batch.num_rows for c in chunks] == [1_100, 1_100, 800]
    assert records.decode(data, topic="t", partition=0).column("offset").to_pylist() == list(range(3_000))


def tampered(data: bytes, at: int, layout: str, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(layout, out, at, value)
    struct.pack_into(">I", out, 12, zlib.crc32(bytes(out[16:])))
    return bytes(out)


@pytest.mark.parametrize(
    "bad",
    [
        message(1, 1, None, b"value")[:-1] + b"!",  # CRC
        tampered(message(1, 1, None, b"value"), 26, ">i", -2),  # key length
        tampered(message(1, 1, None, b"value"), 26, ">i", 1_000),
        tampered(message(1, 1, None, b"value"), 30, ">i", 3),  # bytes behind the value
        tampered(message(1, 0, None, b"value"), 16, ">b", 1),  # too short for v1
        message(1, 1, None, None, attributes=GZIP),  # a wrapper without a value
        message(1, 1, None, b"no gzip", attributes=GZIP),
        wrapper(1, 1),  # nothing in it
        wrapper(1, 1, wrapper(1, 1, message(0, 1, None, b"a"))),  # nested
        wrapper(3, 1, message(0, 1, None, b"a"), message(9, 1, None, b"b")),  # offset before its last
        wrapper(9, 0, message(9, 0, None, b"a"), message(7, 0, None, b"b")),  # falling offsets
        wrapper(1, 1, message(0, 1, None, b"value")[:-1] + b"!"),  # CRC of an inner message
        message(-5, 1, None, b"value"),
    ],
)
def test_a_bad_message_is_an_error_behind_the_good_ones(bad):
    chunks = records.Decoder("t", 0).feed(message(0, 1, None, b"good") + bad + message(20, 1, None, b""))
    assert next(chunks).batch.column("value").to_pylist() == [b"good"]
    with pytest.raises(CorruptRecordBatchError) as caught:
        next(chunks)
    assert caught.value.offset == 1
    (offset,) = struct.unpack_from(">q", bad)
    assert caught.value.next_offset == (offset + 1 if offset > 0 else None)


def test_zstd_never_was_a_compression_of_the_old_formats():
    with pytest.raises(UnsupportedCompressionError):
        read(message(1, 1, None, b"x", attributes=4))
