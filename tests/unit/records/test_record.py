"""Single records of all formats in plain Python: what is written is read again, and what is broken says how."""

import struct
import zlib

import pytest

from kafka_actors.records.batch import Fill
from kafka_actors.records.record import (
    MalformedError,
    control_type,
    read_field,
    read_message,
    read_record,
    read_varint,
    wrap_int64,
    write_record,
    write_varint,
)


def varint(value):
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def record(*arguments):
    out = bytearray()
    write_record(out, *arguments)
    return memoryview(bytes(out))


def code_of(call, *arguments):
    with pytest.raises(MalformedError) as raised:
        call(*arguments)
    return raised.value.code


# From Java's ByteUtilsTest: zigzag varints.
@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\x00"),
        (-1, b"\x01"),
        (1, b"\x02"),
        (63, b"\x7e"),
        (-64, b"\x7f"),
        (64, b"\x80\x01"),
        (-65, b"\x81\x01"),
        (2**31 - 1, b"\xfe\xff\xff\xff\x0f"),
        (-(2**31), b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_varints_are_zigzag(value, data):
    assert varint(value) == data
    assert read_varint(data, 0, len(data)) == (value, len(data))


def test_a_varlong_has_64_bits():
    data = varint(-(2**63))
    assert read_varint(data, 0, len(data), 64) == (-(2**63), 10)


def test_a_varint_that_does_not_end_is_cut_off():
    assert code_of(read_varint, b"\x80\x80", 0, 2) is Fill.TRUNCATED
    assert code_of(read_varint, b"\xff" * 9, 0, 9) is Fill.TRUNCATED


def test_sums_wrap_as_javas_longs_do():
    assert wrap_int64(2**63) == -(2**63)
    assert wrap_int64(-(2**63) - 1) == 2**63 - 1
    assert wrap_int64(-5) == -5


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, None, ()),
        (b"", b"", ()),
        (b"k", b"v" * 200, ((b"h", b"1"), (b"h", None), (b"", b""))),
    ],
)
def test_a_record_is_read_as_it_was_written(key, value, headers):
    data = record(-3, 5, key, value, headers)
    found = read_record(data, 0, len(data))
    assert found.end == len(data)
    assert (found.timestamp_delta, found.offset_delta) == (-3, 5)
    assert (found.key, found.value, found.headers) == (key, value, list(headers))


def test_a_record_ends_where_its_length_says():
    good = bytes(record(0, 0, b"k", b"v"))
    data = memoryview(good)
    assert code_of(read_record, data, 0, len(data) - 1) is Fill.TRUNCATED
    longer = memoryview(bytes([good[0] + 2]) + good[1:] + b"\0")
    assert code_of(read_record, longer, 0, len(longer)) is Fill.TRAILING
    assert code_of(read_record, memoryview(varint(3) + b"\0" * 3), 0, 4) is Fill.BAD_FIELD


def test_a_record_has_no_more_headers_than_bytes():
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(9)
    data = memoryview(varint(len(body)) + body)
    assert code_of(read_record, data, 0, len(data)) is Fill.BAD_HEADER_COUNT


def message(magic, key, value, *, timestamp=7, attributes=0):
    def field(part):
        return struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part

    body = (
        bytes([magic, attributes])
        + (struct.pack(">q", timestamp) if magic else b"")
        + field(key)
        + field(value)
    )
    return struct.pack(">qiI", 42, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize(("magic", "timestamp"), [(0, -1), (1, 7)])
def test_messages_of_the_old_formats_are_read(magic, timestamp):
    data = message(magic, None, b"v")
    found = read_message(memoryview(data), 0, len(data), magic)
    assert (found.end, found.offset_delta, found.timestamp_delta) == (len(data), 42, timestamp)
    assert (found.key, found.value, found.headers) == (None, b"v", [])


def test_a_message_that_is_broken_says_how():
    data = message(1, b"k", b"v")
    view = memoryview(data)
    assert code_of(read_message, view, 0, 10, 1) is Fill.TRUNCATED
    assert code_of(read_message, view, 0, len(data) - 1, 1) is Fill.TRUNCATED
    assert code_of(read_message, view, 0, len(data), 0) is Fill.BAD_FORMAT
    assert (
        code_of(read_message, memoryview(message(1, None, b"v", attributes=2)), 0, len(data), 1)
        is Fill.BAD_FORMAT
    )
    assert code_of(read_message, memoryview(data[:-1] + b"x"), 0, len(data), 1) is Fill.BAD_CRC


def test_a_field_may_be_null_but_not_longer_than_its_message():
    assert read_field(memoryview(struct.pack(">i", -1)), 0, 4) == (None, 4)
    assert read_field(memoryview(struct.pack(">i", 2) + b"ab"), 0, 6) == (b"ab", 6)
    assert code_of(read_field, memoryview(struct.pack(">i", -2)), 0, 4) is Fill.BAD_FIELD
    assert code_of(read_field, memoryview(struct.pack(">i", 3) + b"ab"), 0, 6) is Fill.BAD_FIELD
    assert code_of(read_field, memoryview(b"\0\0"), 0, 2) is Fill.TRUNCATED


@pytest.mark.parametrize(
    ("key", "kind"),
    [(struct.pack(">hh", 0, 0), 0), (struct.pack(">hh", 0, 1), 1), (None, None), (b"\0\0\0", None)],
)
def test_the_type_of_a_control_record_is_in_its_key(key, kind):
    assert control_type(bytes(record(0, 0, key, b""))) == kind


def test_what_is_no_record_has_no_control_type():
    assert control_type(b"\xff") is None
