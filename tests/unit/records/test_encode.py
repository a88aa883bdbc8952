"""Batches as `encode` writes them."""

import struct

import pyarrow as pa
import pytest

from kafka_actors import records
from kafka_actors.records import _reference
from kafka_actors.records.batch import HEADER, HEADER_SIZE
from kafka_actors.records.encode import row_columns
from kafka_actors.records.kernel import ACTIVE


def header(data: bytes) -> tuple:
    return HEADER.unpack_from(data)


def test_the_header_says_what_was_asked_for():
    batch = pa.record_batch({"value": pa.array([b"a", b"b"])})
    data = records.encode(
        batch,
        base_offset=7,
        last_offset=20,
        producer_id=3,
        producer_epoch=4,
        base_sequence=5,
        partition_leader_epoch=6,
        is_transactional=True,
        is_control=True,
        timestamp_type="log_append_time",
        codec="zstd",
    )
    base, length, epoch, magic, _, attributes, delta, first, last, producer, era, sequence, count = header(
        data
    )
    assert (base, length, epoch, magic) == (7, len(data) - 12, 6, 2)
    assert attributes == 4 | 0x08 | 0x10 | 0x20
    assert (delta, first, last, producer, era, sequence, count) == (13, -1, -1, 3, 4, 5, 2)


def test_a_batch_without_rows_is_a_header():
    data = records.encode(pa.record_batch({"value": pa.array([], pa.binary())}), base_offset=9)
    assert len(data) == HEADER_SIZE
    assert header(data)[-1] == 0


def test_the_first_offset_is_the_base_where_none_is_given():
    batch = pa.record_batch({"offset": pa.array([40, 44]), "value": pa.array([b"", b""])})
    assert header(records.encode(batch))[0] == 40
    assert records.decode(records.encode(batch), topic="t", partition=0).column("offset").to_pylist() == [
        40,
        44,
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("level", [None, 1])
def test_what_is_decoded_is_encoded_again_to_the_same_rows(codec, level):
    batch = pa.record_batch(
        {
            "key": pa.array([None, b"k" * 70, b""], pa.binary()),
            "value": pa.array([b"v" * 9_000, None, b""], pa.binary()),
            "timestamp": pa.array([10**15, -(10**15), 0], pa.timestamp("us", "UTC")),
            "headers": pa.array(
                [None, [{"key": "ä", "value": None}], [{"key": "", "value": b"x"}]],
                records.SCHEMA.field("headers").type,
            ),
        }
    )
    once = records.decode(records.encode(batch, codec=codec, level=level), topic="t", partition=0)
    assert once.select(["key", "value", "timestamp", "headers"]).equals(batch)
    assert records.decode(records.encode(once, codec=codec), topic="t", partition=0).equals(once)


@pytest.mark.parametrize(
    ("offsets", "options"),
    [
        ([1, 1], {}),
        ([2, 1], {}),
        ([0, 2**31], {}),
        ([5, 6], {"base_offset": 6}),
        ([5, 6], {"last_offset": 5}),
        ([-1, 0], {}),
        ([0, 1], {"base_offset": -1}),
    ],
)
def test_offsets_that_one_batch_cannot_hold_are_refused(offsets, options):
    with pytest.raises(ValueError, match="offset"):
        records.encode(pa.record_batch({"offset": pa.array(offsets)}), **options)


def test_an_unknown_codec_is_refused():
    with pytest.raises(ValueError, match="codec is one of none, gzip, snappy, lz4, zstd, not 'brotli'"):
        records.encode(pa.record_batch({"value": pa.array([b"a"])}), codec="brotli")


HEADER_TYPE = records.SCHEMA.field("headers").type.value_type
HIDDEN = pa.StructArray.from_arrays(
    [pa.array(["k", "l"]), pa.array([b"1", b"2"])], fields=list(HEADER_TYPE), mask=pa.array([True, False])
)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (pa.array([[None], []], pa.list_(HEADER_TYPE)), "a header is null"),
        (pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), HIDDEN), "a header is null"),
        (pa.array([[None], []]), "a header is null"),
        (pa.array([[{"key": None, "value": b"1"}], []], pa.list_(HEADER_TYPE)), "a header's key is null"),
    ],
)
def test_a_null_header_is_refused_and_only_in_the_rows_that_are_written(wrong, problem):
    batch = pa.record_batch({"value": pa.array([b"a", b"b"]), "headers": wrong})
    for refused in (batch, batch.slice(0, 1)):
        with pytest.raises(TypeError, match=f"column headers: {problem}"):
            records.encode(refused)
    written = records.decode(records.encode(batch.slice(1)), topic="t", partition=0)
    assert written.column("value").to_pylist() == [b"b"]
    assert written.column("headers").to_pylist() == (wrong.slice(1).to_pylist() if wrong[1] else [None])


def test_a_null_list_hides_the_headers_behind_it():
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), HIDDEN, mask=pa.array([True, False]))
    batch = pa.record_batch({"value": pa.array([b"a", b"b"]), "headers": headers})
    written = records.decode(records.encode(batch), topic="t", partition=0)
    assert written.column("headers").to_pylist() == [None, [{"key": "l", "value": b"2"}]]


@pytest.mark.parametrize(
    "rows", [[[{"key": "a", "value": None}], None], [[], None], [[{"key": "a", "value": None}], []]]
)
def test_types_that_arrow_infers_where_all_is_null_are_headers_too(rows):
    batch = pa.record_batch({"value": pa.array([b"a", b"b"]), "headers": pa.array(rows)})
    written = records.decode(records.encode(batch), topic="t", partition=0)
    assert written.column("headers").to_pylist() == [row or None for row in rows]


def test_a_timestamp_beyond_64_bits_is_named():
    batch = pa.record_batch({"timestamp": pa.array([2**63], pa.uint64())})
    with pytest.raises(OverflowError, match="column timestamp has numbers beyond 64 bits, signed"):
        records.encode(batch)


def test_lz4_blocks_are_independent_as_java_demands():
    data = records.encode(pa.record_batch({"value": pa.array([b"a" * 200_000])}), codec="lz4")
    magic, flags = struct.unpack_from("<IB", data, HEADER_SIZE)
    assert magic == 0x184D2204
    assert flags & 0x20


@pytest.mark.parametrize("kernel", [ACTIVE, _reference], ids=["active", "reference"])
def test_a_batch_takes_records_up_to_its_size_and_one_however_large(kernel):
    values = pa.record_batch({"value": pa.array([b"x" * 100] * 3 + [b"y" * 1000], pa.binary())})
    rows = kernel.rows(row_columns(values, 0), 0)
    counts, at, largest = [], 0, 0
    while at < values.num_rows:
        writer = kernel.writer(10)
        at = writer.append(rows, None, at, values.num_rows, 300)
        counts.append(writer.count)
        largest = max(largest, writer.used if writer.count > 1 else 0)
    assert counts == [2, 1, 1]
    assert largest <= 300
