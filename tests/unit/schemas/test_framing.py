"""Frames of values: ids by group, values without one, and rows put back in the order of the values."""

import uuid

import numpy as np
import pyarrow as pa
import pytest
from waiting import within

from kafka_actors.errors import ConfigError
from kafka_actors.schemas.framing import HEADERS, NO_FRAME, frame, framed, frames, joined, with_header_frames


def binary(*values):
    return pa.array(values, pa.binary())


ONE, TWO = uuid.UUID(int=1 << 120 | 5), uuid.UUID(int=6)


def grouped(found):
    return {key: rows.tolist() for key, rows in found.by_schema.items()}


def headers(*records):
    kind = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    return pa.array([[{"key": k, "value": v} for k, v in pairs] for pairs in records], kind)


def test_values_of_several_guids_are_grouped():
    made = [ONE, TWO, ONE, TWO, TWO]
    found = frames(binary(*(b"\1" + one.bytes for one in made)))
    assert grouped(found) == {str(ONE): [0, 2], str(TWO): [1, 3, 4]}
    assert found.failures == []


@pytest.mark.parametrize("is_framed", [True, False])
@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            binary(b"1" * 20).cast(pa.large_binary()),
            "the values are large_binary: give binary",
        ),
        (
            pa.array([b"1" * 20], pa.binary_view()),
            "the values are binary_view: give binary",
        ),
        (
            pa.chunked_array([binary(b"1" * 20)]),
            "the values are binary in chunks: give binary, as the array's combine_chunks",
        ),
    ],
)
def test_an_array_of_another_form_is_refused_with_what_to_do(values, said, is_framed):
    with pytest.raises(TypeError, match=said):
        frames(values, is_framed)
    assert frames(pa.nulls(2)).by_schema == {}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([b"1"], "the values are list: give a binary array"),
        (
            pa.record_batch({"value": [b"1"]}),
            r"the values are RecordBatch: give .* column\('value'\) of a batch",
        ),
        (None, "the values are NoneType"),
    ],
    ids=["list", "batch", "None"],
)
def test_what_is_no_array_is_refused_with_what_to_give(values, said):
    with pytest.raises(TypeError, match=said):
        frames(values)


def test_a_frame_in_a_header_stands_in_front_of_its_value_and_the_last_one_counts():
    name, other = HEADERS["value"], HEADERS["key"]
    of = headers(
        [("x", b"1"), (name, b"A")], [], [(name, b"B"), ("y", None), (name, b"C")], [(other, b"K")], [(name, None)], [(name, b"D")]
    )  # fmt: skip
    values = binary(b"a", b"b", b"c", b"d", b"e", None)
    assert with_header_frames(values, of).to_pylist() == [b"Aa", b"b", b"Cc", b"d", b"e", None]
    assert with_header_frames(values, of, "key").to_pylist() == [b"a", b"b", b"c", b"Kd", b"e", None]
    for first in range(6):
        part = with_header_frames(values.slice(first, 2), of.slice(first, 2))
        assert part.to_pylist() == [b"Aa", b"b", b"Cc", b"d", b"e", None][first : first + 2]


@pytest.mark.parametrize("of", [headers([], []), headers([("x", b"1")], [])])
def test_values_without_such_a_header_stay_the_array_that_they_are(of):
    values = binary(b"a", None)
    assert with_header_frames(values, of) is values


def test_keys_and_values_of_a_batch_have_their_frames():
    of = headers([(HEADERS["key"], b"K"), (HEADERS["value"], b"V")])
    batch = pa.record_batch({"key": binary(b"k"), "value": binary(b"v"), "headers": of})
    assert framed(batch).to_pylist() == [b"Vv"]
    assert framed(batch, "key").to_pylist() == [b"Kk"]


def test_a_frame_is_a_zero_and_the_id_in_four_bytes():
    assert frame(258) == b"\0\0\0\1\2"


@pytest.mark.parametrize("schema_id", [-1, 2**32, "7", True])
def test_what_is_no_id_is_refused(schema_id):
    with pytest.raises(ConfigError, match=r"schema_id: is .*: accepts a number from 0"):
        frame(schema_id)


def test_values_are_grouped_by_id_and_the_others_say_why_they_are_in_none():
    values = binary(
        frame(7) + b"a", None, frame(2**32 - 1), b"", b"\0\0\0\0", b"\2" + frame(7)[1:], frame(7),
        b"\1" + ONE.bytes[:15], b"\1" + ONE.bytes + b"b",
    )  # fmt: skip
    found = frames(values)
    assert grouped(found) == {7: [0, 6], 2**32 - 1: [2], str(ONE): [8]}
    assert [row for row, _ in found.failures] == [1, 3, 4, 5, 7]
    reasons = [reason for _, reason in found.failures]
    assert reasons[0].startswith("the value is null (a tombstone)")
    assert reasons[1] == "the value is empty"
    assert reasons[2] == "the value is shorter than the five bytes of a schema id's frame"
    assert reasons[3].startswith("the value begins with byte 2, not with the frame")
    assert reasons[4] == "the value is shorter than the 17 bytes of a schema GUID's frame"


def test_broken_values_with_an_id_each_are_grouped_in_no_time():
    ids = [7919 * number % 2**32 for number in range(100_000)]
    with within(5):
        found = grouped(frames(binary(*map(frame, ids))))
    assert found == {one: [number] for number, one in enumerate(ids)}


def test_a_slice_has_its_own_numbers():
    values = binary(b"none", frame(1) + b"x", None, frame(2) + b"y").slice(1)
    assert grouped(frames(values)) == {1: [0], 2: [2]}
    found = frames(values, False)
    assert grouped(found) == {NO_FRAME: [0, 2]}
    assert [row for row, _ in found.failures] == [1]


@pytest.mark.parametrize("values", [binary(), binary(None, None), binary(b"", b"x")])
def test_values_without_any_frame_make_no_group(values):
    found = frames(values)
    assert found.by_schema == {}
    assert len(found.failures) == len(values)


def test_rows_of_several_ids_come_in_the_order_of_their_values():
    schema = pa.schema([pa.field("x", pa.int64())])
    values = binary(*(frame(n % 3) + b"%d" % n for n in range(9)))

    def decode(schema_id, rows):
        good = [int(row) for row in rows if row != 4]
        batch = pa.RecordBatch.from_arrays([pa.array([10 * row for row in good], pa.int64())], schema=schema)
        return (None if schema_id == 2 else batch), [(4, "no")] if 4 in rows else []

    rows = joined(schema, frames(values), decode)
    assert rows.records.tolist() == [0, 1, 3, 6, 7]
    assert rows.batch.to_pydict() == {"x": [0, 10, 30, 60, 70]}
    assert rows.records.dtype == np.int32
    assert rows.failures == [(4, "no")]


def test_no_row_at_all_is_an_empty_batch_of_the_schema():
    schema = pa.schema([pa.field("x", pa.struct([pa.field("y", pa.int8())]))])
    rows = joined(schema, frames(binary(None)), lambda *_: (None, []))
    assert rows.batch.schema == schema
    assert rows.batch.num_rows == 0
