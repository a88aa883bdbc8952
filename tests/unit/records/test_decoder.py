"""What a Decoder hands out, drops, steps over and refuses."""

import random
import struct
from types import SimpleNamespace

import crc32c
import pyarrow as pa
import pytest

from kafka_actors import records
from kafka_actors.errors import (
    BatchTooLargeError,
    CorruptRecordBatchError,
    MalformedTimestampError,
    RecordError,
    UnknownMagicError,
    UnsupportedCompressionError,
)
from kafka_actors.records import Limits, _reference
from kafka_actors.records.batch import HEADER_SIZE
from kafka_actors.records.kernel import ACTIVE


@pytest.fixture(params=[ACTIVE, _reference], ids=["active", "reference"])
def kernel(request):
    return request.param


def rows(count: int, **columns: list) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"v%d" % i for i in range(count)], pa.binary()), **columns})


def batch(base: int, count: int = 3, **options: object) -> bytes:
    return records.encode(rows(count), base_offset=base, **options)


def resealed(data: bytes | bytearray) -> bytes:
    out = bytearray(data)
    struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[21:])))
    return bytes(out)


def patched(data: bytes, at: int, layout: str, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(layout, out, at, value)
    return resealed(out)


def drain(decoder: records.Decoder, *data: bytes) -> tuple[list[int], RecordError | None]:
    """The offsets of all records, and the error that ended them."""
    offsets: list[int] = []
    try:
        for chunk in decoder.feed(*data):
            offsets += chunk.batch.column("offset").to_pylist()
    except RecordError as error:
        return offsets, error
    return offsets, None


def test_the_schema_is_that_of_sparks_source():
    expected = {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int32",
        "offset": "int64",
        "timestamp": "timestamp[us, tz=UTC]",
        "timestampType": "int32",
        "headers": "list<element: struct<key: string, value: binary>>",
    }
    assert {f.name: str(f.type) for f in records.SCHEMA} == expected
    assert records.decode(batch(0), topic="t", partition=1).schema == records.SCHEMA


def test_a_record_below_the_fetch_offset_is_dropped(kernel):
    decoder = records.Decoder("t", 0, fetch_offset=11, kernel=kernel)
    assert drain(decoder, batch(10) + batch(13)) == ([11, 12, 13, 14, 15], None)
    assert decoder.next_offset == 16


def test_parts_that_follow_each_other_become_one_chunk(kernel):
    cut = batch(13)[:-1]  # the partial batch at the end of a response comes again, whole, in the next
    (chunk,) = records.Decoder("t", 0, kernel=kernel).feed(batch(10) + cut, batch(13), batch(16))
    assert chunk.batch.column("offset").to_pylist() == list(range(10, 19))
    assert chunk.next_offset == 19


def test_a_broken_part_ends_behind_the_records_of_the_parts_before_it(kernel):
    decoder = records.Decoder("t", 0, kernel=kernel)
    broken = bytearray(batch(13))
    broken[-1] ^= 0xFF
    offsets, error = drain(decoder, batch(10), bytes(broken), batch(16))
    assert offsets == [10, 11, 12]
    assert isinstance(error, CorruptRecordBatchError)
    assert (error.offset, error.next_offset) == (13, 16)


@pytest.mark.parametrize("count", [3, 3000], ids=["in one step", "by chunks"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_wrong_checksum_is_read_over_where_none_is_to_be_verified(kernel, count, codec):
    wrong = bytearray(batch(10, count, codec=codec))
    wrong[17] ^= 0xFF
    _, error = drain(records.Decoder("t", 0, kernel=kernel), bytes(wrong))
    assert isinstance(error, CorruptRecordBatchError)
    decoder = records.Decoder("t", 0, check_crcs=False, kernel=kernel)
    assert drain(decoder, bytes(wrong)) == (list(range(10, 10 + count)), None)


def test_a_batch_emptied_by_compaction_moves_the_position(kernel):
    empty = records.encode(rows(0), base_offset=10, last_offset=19, partition_leader_epoch=4)
    (chunk,) = records.Decoder("t", 0, fetch_offset=10, kernel=kernel).feed(empty)
    assert (chunk.batch.num_rows, chunk.next_offset, chunk.leader_epoch) == (0, 20, 4)
    assert chunk.batch.schema == records.SCHEMA


def test_records_compacted_away_at_the_end_of_a_batch_move_the_position(kernel):
    (chunk,) = records.Decoder("t", 0, kernel=kernel).feed(batch(0, 3, last_offset=99))
    assert (chunk.batch.num_rows, chunk.next_offset) == (3, 100)


def test_a_control_batch_is_not_delivered_and_moves_the_position(kernel):
    decoder = records.Decoder("t", 0, kernel=kernel)
    (chunk,) = decoder.feed(batch(0) + batch(3, 1, is_control=True, is_transactional=True, producer_id=7))
    assert (chunk.batch.num_rows, chunk.next_offset) == (3, 4)


def test_nothing_is_yielded_where_nothing_moved(kernel):
    assert list(records.Decoder("t", 0, fetch_offset=100, kernel=kernel).feed(batch(0))) == []
    assert list(records.Decoder("t", 0, kernel=kernel).feed(b"")) == []


def test_a_partial_batch_at_the_end_is_left_out(kernel):
    whole, cut = batch(0), batch(3)
    for size in range(len(cut)):
        assert drain(records.Decoder("t", 0, kernel=kernel), whole + cut[:size]) == ([0, 1, 2], None)


def test_all_rows_of_a_chunk_have_its_leader_epoch(kernel):
    """So that a position in the middle of a chunk is committed with the epoch of what lies before it."""
    data = batch(0, partition_leader_epoch=3) + batch(3, partition_leader_epoch=3)
    data += batch(6, partition_leader_epoch=8) + batch(9, 1, is_control=True, partition_leader_epoch=9)
    data += batch(10, partition_leader_epoch=9)
    chunks = list(records.Decoder("t", 0, limits=Limits(chunk_rows=4), kernel=kernel).feed(data))
    assert [(c.batch.num_rows, c.next_offset, c.leader_epoch) for c in chunks] == [
        (4, 4, 3),
        (2, 6, 3),
        (3, 9, 8),
        (3, 13, 9),
    ]
    assert records.decode(data, topic="t", partition=0).num_rows == 12


def test_chunks_span_batches_and_split_them(kernel):
    data = b"".join(batch(3 * i, codec=codec) for i, codec in enumerate(["none", "zstd", "lz4", "none"]))
    chunks = list(records.Decoder("t", 0, limits=Limits(chunk_rows=5), kernel=kernel).feed(data))
    assert [c.batch.num_rows for c in chunks] == [5, 5, 2]


def test_chunk_bytes_counts_whole_records_and_holds_to_the_byte(kernel):
    data = records.encode(rows(4))
    size = (len(data) - 61) // 4
    for limit, counts in ((2 * size, [2, 2]), (2 * size - 1, [1, 1, 1, 1]), (3 * size + 1, [3, 1])):
        chunks = list(records.Decoder("t", 0, limits=Limits(chunk_bytes=limit), kernel=kernel).feed(data))
        assert [c.batch.num_rows for c in chunks] == counts


def test_offsets_up_to_the_last_that_fits(kernel):
    last = 2**63 - 2**31 - 1
    assert drain(records.Decoder("t", 0, kernel=kernel), batch(last, 3)) == ([last, last + 1, last + 2], None)
    data = bytearray(batch(last))
    struct.pack_into(">q", data, 0, last + 1)
    _, error = drain(records.Decoder("t", 0, kernel=kernel), bytes(data))
    assert isinstance(error, CorruptRecordBatchError)
    assert records.next_offset(data) is None


def test_a_record_larger_than_chunk_bytes_is_a_chunk_of_its_own(kernel):
    data = records.encode(pa.record_batch({"value": pa.array([b"a", b"b" * 5000, b"c"], pa.binary())}))
    chunks = list(records.Decoder("t", 0, limits=Limits(chunk_bytes=100), kernel=kernel).feed(data))
    assert [c.batch.num_rows for c in chunks] == [1, 1, 1]


def test_the_fed_buffer_is_free_when_the_generator_has_ended(kernel):
    data = bytearray(batch(0) + batch(3, codec="zstd"))
    decoder = records.Decoder("t", 0, kernel=kernel)
    chunks = list(decoder.feed(data))
    data.clear()  # raises BufferError while anything still points into it
    assert chunks[0].batch.column("value").to_pylist() == [b"v0", b"v1", b"v2"] * 2


def test_the_fed_buffer_is_free_when_the_generator_is_closed_early_and_after_an_error(kernel):
    data = bytearray(batch(0) + batch(3))
    generator = records.Decoder("t", 0, limits=Limits(chunk_rows=1), kernel=kernel).feed(data)
    next(generator)
    generator.close()
    data[20] ^= 1
    offsets, error = drain(records.Decoder("t", 0, kernel=kernel), data)
    assert offsets == []
    assert isinstance(error, CorruptRecordBatchError)
    error.__traceback__ = None
    data.clear()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("limit", [10, 1 << 20])
def test_the_fed_buffer_is_free_while_the_error_of_a_compressed_batch_is_kept(codec, limit, kernel):
    values = pa.record_batch({"value": pa.array([b"v" * 1000] * 100)})
    data = bytearray(records.encode(values, codec=codec))
    if limit > 10:
        data[HEADER_SIZE + 10] ^= 0x35
        struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    limits = Limits(max_decompressed_batch_bytes=limit)
    _, error = drain(records.Decoder("t", 0, limits=limits, kernel=kernel), data)
    assert type(error) is (CorruptRecordBatchError if limit > 10 else BatchTooLargeError)
    data.clear()  # raises BufferError while anything still points into it


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, pa.py_buffer])
def test_any_buffer_may_be_fed(wrap, kernel):
    assert drain(records.Decoder("t", 0, kernel=kernel), wrap(batch(5)))[0] == [5, 6, 7]
    assert records.next_offset(wrap(batch(5))) == 8


def test_next_offset_reads_headers_alone():
    whole = batch(0) + batch(3, 2, last_offset=40)
    assert records.next_offset(whole + batch(41)[:70]) == 41
    assert records.next_offset(whole[:20]) is None
    assert records.next_offset(b"") is None
    assert records.next_offset(b"\xff" * 200) is None


def test_null_is_not_empty_and_duplicate_headers_keep_their_order(kernel):
    source = pa.record_batch(
        {
            "key": pa.array([None, b"", b"k"], pa.binary()),
            "value": pa.array([b"", None, b"v"], pa.binary()),
            "headers": pa.array(
                [
                    None,
                    [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "a", "value": b""}],
                    [{"key": "", "value": b"2"}],
                ],
                records.SCHEMA.field("headers").type,
            ),
        }
    )
    (chunk,) = records.Decoder("t", 0, kernel=kernel).feed(records.encode(source))
    assert chunk.batch.select(["key", "value", "headers"]).equals(source)


def test_header_keys_that_are_no_utf8_are_readable_text(kernel):
    data = bytearray(
        records.encode(
            pa.record_batch(
                {
                    "headers": pa.array(
                        [[{"key": "abcd", "value": None}]], records.SCHEMA.field("headers").type
                    )
                }
            )
        )
    )
    at = data.index(b"abcd")
    data[at : at + 4] = b"a\xffb\xe2"
    (chunk,) = records.Decoder("t", 0, kernel=kernel).feed(resealed(data))
    chunk.batch.validate(full=True)
    assert chunk.batch.column("headers").to_pylist() == [[{"key": "a\ufffdb\ufffd", "value": None}]]


def test_log_append_time_is_the_batchs_own(kernel):
    stamps = pa.array([5_000, 9_000, 7_000], pa.timestamp("us", "UTC"))
    data = records.encode(rows(3, timestamp=stamps), timestamp_type="log_append_time")
    (chunk,) = records.Decoder("t", 0, kernel=kernel).feed(data)
    assert chunk.batch.column("timestamp").cast(pa.int64()).to_pylist() == [9_000] * 3
    assert chunk.batch.column("timestampType").to_pylist() == [1] * 3


MOST_MILLIS = 2**63 // 1000
NANOS = 1_700_000_000_000_000_000


@pytest.mark.parametrize("millis", [MOST_MILLIS, -MOST_MILLIS, -1, -5, 0])
def test_timestamps_up_to_the_last_that_microseconds_hold(kernel, millis):
    data = patched(records.encode(rows(1)), 27, ">q", millis)
    (chunk,) = records.Decoder("t", 0, kernel=kernel).feed(data)
    assert chunk.batch.column("timestamp").cast(pa.int64()).to_pylist() == [1000 * millis]


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize(
    "millis", [NANOS, MOST_MILLIS + 1, -MOST_MILLIS - 1, 2**63 - 1, -(2**63), 3 * MOST_MILLIS]
)
def test_a_timestamp_that_microseconds_cannot_hold_is_an_error(kernel, millis, codec):
    """SPARK-56243; as a maximum it would drive every watermark to the end of time."""
    bad = patched(batch(3, codec=codec), 27, ">q", millis)
    offsets, error = drain(records.Decoder("orders", 4, kernel=kernel), batch(0) + bad + batch(6))
    assert offsets == [0, 1, 2]
    assert type(error) is MalformedTimestampError
    assert (error.topic, error.partition, error.offset, error.next_offset) == ("orders", 4, 3, 6)
    assert error.kind == "timestamp"
    assert str(millis) in str(error)


def test_log_append_time_that_microseconds_cannot_hold_is_an_error(kernel):
    bad = patched(batch(3, timestamp_type="log_append_time"), 35, ">q", NANOS)
    offsets, error = drain(records.Decoder("t", 0, kernel=kernel), batch(0) + bad + batch(6))
    assert offsets == [0, 1, 2]
    assert (type(error), error.offset, error.next_offset) == (MalformedTimestampError, 3, 6)
    # Its records' own timestamps don't count, and a batch of which nothing is read is not looked at.
    own = patched(batch(3, timestamp_type="log_append_time"), 27, ">q", NANOS)
    assert drain(records.Decoder("t", 0, kernel=kernel), own) == ([3, 4, 5], None)
    assert drain(records.Decoder("t", 0, fetch_offset=6, kernel=kernel), bad + batch(6)) == ([6, 7, 8], None)


def test_reading_goes_on_behind_all_bad_timestamps_in_a_row(kernel):
    stamps = pa.array([0, 1000, 2000, 3000, 4000, 5000], pa.timestamp("us", "UTC"))
    data = records.encode(rows(6, timestamp=stamps), base_offset=10)
    data = patched(data, 27, ">q", MOST_MILLIS - 2)  # so that the last three are beyond it
    offsets, error = drain(records.Decoder("t", 0, kernel=kernel), data)
    assert (offsets, error.offset, error.next_offset) == ([10, 11, 12], 13, 16)
    data = patched(data, 27, ">q", -MOST_MILLIS - 3)  # and now the first three
    offsets, error = drain(records.Decoder("t", 0, kernel=kernel), data)
    assert (offsets, error.offset, error.next_offset) == ([], 10, 13)
    assert drain(records.Decoder("t", 0, fetch_offset=13, kernel=kernel), data) == ([13, 14, 15], None)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (bytearray(batch(3))[:-1] + b"\x55", CorruptRecordBatchError),  # CRC
        (patched(batch(3), 57, ">i", -1), CorruptRecordBatchError),  # count
        (patched(batch(3), 57, ">i", 2**31 - 1), CorruptRecordBatchError),
        (patched(batch(3), 57, ">i", 4), CorruptRecordBatchError),  # one record more than there is
        (patched(batch(3), 57, ">i", 2), CorruptRecordBatchError),  # one less
        (patched(batch(3), 23, ">i", -1), CorruptRecordBatchError),  # last offset delta
        (patched(batch(3, codec="zstd"), 61, ">I", 0), CorruptRecordBatchError),
        (patched(batch(3), 21, ">h", 7), UnsupportedCompressionError),
        (patched(batch(3), 21, ">h", 5), UnsupportedCompressionError),
    ],
)
def test_good_batches_around_a_bad_one_are_delivered(bad, error, kernel):
    data = batch(0) + bytes(bad) + batch(6)
    decoder = records.Decoder("orders", 4, kernel=kernel)
    offsets, raised = drain(decoder, data)
    assert offsets[:3] == [0, 1, 2]
    assert type(raised) is error
    assert (raised.topic, raised.partition, raised.next_offset) == ("orders", 4, 6)
    assert raised.offset == decoder.next_offset == len(offsets)
    assert "orders-4" in str(raised)
    behind = records.Decoder("orders", 4, fetch_offset=raised.next_offset, kernel=kernel)
    assert drain(behind, data[len(batch(0)) + len(bad) :]) == ([6, 7, 8], None)


def behind_a_bad_batch(bad, *more, kernel, **options):
    """(first offset not read, where reading can go on) of a bad batch at offset 3."""
    _, raised = drain(records.Decoder("t", 0, kernel=kernel, **options), batch(0) + bytes(bad), *more)
    return raised.offset, raised.next_offset


def with_wrong_checksum(data, at=70):
    out = bytearray(data)
    out[at] ^= 0xFF
    return out


def test_the_batch_that_follows_says_where_to_go_on(kernel):
    """The last offset inside a batch with a wrong checksum may itself be what is wrong."""
    bad = bytearray(batch(3))
    for delta, behind in (
        (1_000_000, 6),
        (-5, 6),
        (0, 4),
    ):  # too early is safe: the next fetch finds the rest
        struct.pack_into(">i", bad, 23, delta)
        assert behind_a_bad_batch(bad + batch(6), kernel=kernel) == (3, behind)
        assert behind_a_bad_batch(bad, batch(6), kernel=kernel) == (
            3,
            behind,
        )  # the first of the next response


def test_without_a_sound_batch_behind_it_nobody_knows_where_to_go_on(kernel):
    bad = with_wrong_checksum(batch(3))
    assert behind_a_bad_batch(bad, kernel=kernel) == (3, None)
    assert behind_a_bad_batch(bad + batch(6)[:-1], kernel=kernel) == (3, None)
    assert behind_a_bad_batch(bad + with_wrong_checksum(batch(6)), kernel=kernel) == (3, None)
    assert behind_a_bad_batch(bad + bytes(1000), kernel=kernel) == (3, None)
    assert behind_a_bad_batch(bad + batch(2), kernel=kernel) == (3, None)  # that is not behind it


def test_the_end_of_the_log_says_where_to_go_on(kernel):
    bad = with_wrong_checksum(batch(3))
    assert behind_a_bad_batch(bad, kernel=kernel, log_end=6) == (3, 6)
    assert behind_a_bad_batch(bad, kernel=kernel, log_end=7) == (3, None)
    assert behind_a_bad_batch(bad, kernel=kernel, log_end=5) == (3, None)
    flipped = bytearray(batch(3))
    flipped[26] ^= (
        0x10  # its last offset now seems to be that of the log, and what lies between is not in this response
    )
    assert behind_a_bad_batch(flipped, kernel=kernel, log_end=6 + 16) == (3, None)


def test_a_response_that_ends_before_the_batch_behind_a_bad_one_does_is_told_of(kernel):
    bad, behind = with_wrong_checksum(batch(3)), batch(6)

    def cut_off(data, log_end=None):
        decoder = records.Decoder("t", 0, kernel=kernel, log_end=log_end)
        with pytest.raises(CorruptRecordBatchError) as raised:
            list(decoder.feed(data))
        return raised.value.cut_off

    assert cut_off(bad, log_end=9)
    assert not cut_off(bad, log_end=6)  # it is the last one
    assert not cut_off(bad)  # and may be, as far as anybody knows
    for size in (1, 30, len(behind) - 1):
        assert cut_off(bad + behind[:size], log_end=9)
    assert not cut_off(bad + behind, log_end=9)
    assert not cut_off(bad + with_wrong_checksum(behind), log_end=9)


def test_no_record_is_behind_the_end_of_the_log(kernel):
    """The base offset is not covered by the checksum."""
    struct.pack_into(">i", bad := with_wrong_checksum(batch(3)), 23, -1)
    far = bytearray(batch(6))
    far[1] ^= 0x10
    assert behind_a_bad_batch(bad + batch(6), kernel=kernel, log_end=9) == (3, 6)
    assert behind_a_bad_batch(bad + far, kernel=kernel, log_end=9) == (3, None)
    sound = bytearray(patched(batch(3, codec="zstd"), 61, ">I", 0))  # a right checksum over a broken frame
    assert behind_a_bad_batch(sound, kernel=kernel, log_end=5) == (3, 6)  # more was written since
    sound[1] ^= 0x10
    assert behind_a_bad_batch(sound, kernel=kernel, log_end=9) == (3, None)


@pytest.mark.parametrize("seed", range(4))
def test_one_flipped_bit_never_leads_past_a_sound_batch(kernel, seed):
    """Wherever it is, reading goes on at the next batch at most, and nothing sound is left out."""
    rand = random.Random(seed)
    sizes = [rand.choice([3, 3, 3, rand.randint(1, 9)]) for _ in range(6)]
    good = [batch(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
    end, begins = sum(sizes), [sum(sizes[:i]) for i in range(7)]
    for number in range(5):
        at = rand.choice([None, rand.randrange(8, len(good[number]))])
        for bit in (
            range(8 * 8, 8 * 12) if at is None else range(8 * at, 8 * at + 8)
        ):  # its length, or any byte
            flipped = bytearray(b"".join(good))
            flipped[sum(map(len, good[:number])) + bit // 8] ^= 1 << bit % 8
            decoder = records.Decoder("t", 0, kernel=kernel, log_end=end)
            _, error = drain(decoder, bytes(flipped))
            if error is not None and error.next_offset is not None:
                assert error.next_offset <= begins[number + 1]


@pytest.mark.parametrize(
    ("junk", "error"),
    [
        (b"\x00" * 17, CorruptRecordBatchError),
        (b"\xff" * 64, CorruptRecordBatchError),
        (b"GET / HTTP/1.1\r\nHost: kafka\r\n", UnknownMagicError),
        (batch(0)[:16] + b"\x03" + batch(0)[17:], UnknownMagicError),
    ],
)
def test_bytes_that_are_no_batch_are_an_error_with_the_position(junk, error, kernel):
    offsets, raised = drain(records.Decoder("t", 0, kernel=kernel), batch(0) + junk)
    assert offsets == [0, 1, 2]
    assert type(raised) is error
    assert raised.offset == 3 or raised.next_offset is None


def test_records_before_a_bad_one_in_its_batch_are_delivered(kernel):
    data = bytearray(batch(0, 5))
    at = data.index(b"v3") - 1
    data[at] = 0x7F  # a value longer than its record
    offsets, raised = drain(records.Decoder("t", 0, kernel=kernel), resealed(data) + batch(5))
    assert offsets == [0, 1, 2]
    assert (raised.offset, raised.next_offset) == (3, 5)


@pytest.mark.parametrize(
    ("record", "delta", "read"),
    [
        (1, 0x00, [0]),  # that of the record before it again
        (2, 0x02, [0, 1]),  # the second's again
        (2, 0x0A, [0, 1]),  # 5, where the batch says that its last one is 2
    ],
)
def test_offsets_of_a_batch_rise_and_end_with_its_last(record, delta, read, kernel):
    data = bytearray(batch(0))
    data[61 + 9 * record + 3] = delta  # records of 9 bytes: length, attributes, timestamp, offset
    offsets, raised = drain(records.Decoder("t", 0, kernel=kernel), resealed(data) + batch(3))
    assert offsets == read
    assert type(raised) is CorruptRecordBatchError
    assert (raised.offset, raised.next_offset) == (len(read), 3)


def of_one_record(body: bytes) -> bytes:
    """A batch of one record with this body."""
    out = bytearray(batch(0, 1)[:61]) + bytes([2 * len(body)]) + body
    struct.pack_into(">i", out, 8, len(out) - 12)
    return resealed(out)


@pytest.mark.parametrize(
    "body", [b"\0\0\0\3\1\0", b"\0\0\0\1\3\0", b"\0\0\0\1\1\1"], ids=["key", "value", "headers"]
)
def test_a_length_of_minus_two_and_a_negative_number_of_headers_are_refused(body, kernel):
    decoder = records.Decoder("t", 0, kernel=kernel)
    assert drain(decoder, of_one_record(b"\0\0\0\1\1\0")) == ([0], None), "minus one is null"
    offsets, raised = drain(records.Decoder("t", 0, kernel=kernel), of_one_record(body))
    assert (offsets, type(raised)) == ([], CorruptRecordBatchError)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_over_the_limit_is_refused_and_named(codec, kernel):
    big = records.encode(pa.record_batch({"value": pa.array([b"\0" * 100_000])}), base_offset=3, codec=codec)
    fits = records.Decoder("t", 0, limits=Limits(max_decompressed_batch_bytes=100_100), kernel=kernel)
    assert drain(fits, big) == ([3], None)
    decoder = records.Decoder("t", 0, limits=Limits(max_decompressed_batch_bytes=99_999), kernel=kernel)
    offsets, raised = drain(decoder, batch(0) + big + batch(4))
    assert offsets == [0, 1, 2]
    assert type(raised) is BatchTooLargeError
    assert (raised.offset, raised.next_offset) == (3, 4)
    assert "max_decompressed_batch_bytes (99999)" in str(raised)


@pytest.mark.parametrize("name", ["max_decompressed_batch_bytes", "chunk_rows", "chunk_bytes"])
@pytest.mark.parametrize("value", [0, -1, 2**31, "many"])
def test_limits_name_what_is_wrong(name, value):
    with pytest.raises(ValueError, match=name):
        Limits(**{name: value})


def test_an_unknown_isolation_level_is_refused():
    with pytest.raises(ValueError, match="isolation_level"):
        records.Decoder("t", 0, isolation_level="committed")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_count_that_its_bytes_cannot_hold_reserves_nothing(codec, kernel):
    bad = patched(batch(0, 1, codec=codec), 57, ">i", 2**31 - 1)
    held = []

    def columns(next_offset, max_rows, max_bytes, rows, size):
        held.append((rows, size))
        return kernel.columns(next_offset, max_rows, max_bytes, rows, size)

    watched = SimpleNamespace(scan=kernel.scan, small=kernel.small, messages=kernel.messages, columns=columns)
    most = Limits(chunk_rows=2**31 - 1, chunk_bytes=2**31 - 1)
    offsets, error = drain(records.Decoder("t", 0, limits=most, kernel=watched), batch(0) + bad)
    assert (offsets, type(error)) == ([0, 1, 2], CorruptRecordBatchError)
    assert "2147483647 records" in str(error)
    assert all(rows <= 200_000 and size <= 65 << 20 for rows, size in held)
    with pytest.raises(CorruptRecordBatchError):
        records.decode(bad, topic="t", partition=0)


def test_decode_of_nothing_is_an_empty_batch():
    empty = records.decode(b"", topic="t", partition=0)
    assert empty.num_rows == 0
    assert empty.schema == records.SCHEMA


def test_decode_has_topic_and_partition_in_every_row():
    decoded = records.decode(batch(0, 1000), topic="überweisungen", partition=2**31 - 1)
    decoded.validate(full=True)
    assert set(decoded.column("topic").to_pylist()) == {"überweisungen"}
    assert set(decoded.column("partition").to_pylist()) == {2**31 - 1}
