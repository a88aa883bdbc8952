"""Frames of values: ids by group, values without one, and rows put back in the order of the values."""

import numpy as np
import pyarrow as pa
import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.schemas.framing import frame, frames, joined, unframed


def binary(*values):
    return pa.array(values, pa.binary())


def test_a_frame_is_a_zero_and_the_id_in_four_bytes():
    assert frame(258) == b"\0\0\0\1\2"


@pytest.mark.parametrize("schema_id", [-1, 2**32, "7", True])
def test_what_is_no_id_is_refused(schema_id):
    with pytest.raises(ConfigError, match=r"schema_id: is .*: accepts a number from 0"):
        frame(schema_id)


def test_values_are_grouped_by_id_and_the_others_say_why_they_are_in_none():
    found = frames(
        binary(frame(7) + b"a", None, frame(2**32 - 1), b"", b"\0\0\0\0", b"\1" + frame(7)[1:], frame(7))
    )
    assert {number: rows.tolist() for number, rows in found.by_id.items()} == {7: [0, 6], 2**32 - 1: [2]}
    assert [row for row, _ in found.failures] == [1, 3, 4, 5]
    reasons = [reason for _, reason in found.failures]
    assert reasons[0].startswith("the value is null (a tombstone)")
    assert reasons[1] == "the value is empty"
    assert reasons[2] == "the value is shorter than the five bytes of a schema id's frame"
    assert reasons[3].startswith("the value begins with byte 1, not with the 0")


def test_a_slice_has_its_own_numbers():
    values = binary(b"none", frame(1) + b"x", None, frame(2) + b"y").slice(1)
    assert {number: rows.tolist() for number, rows in frames(values).by_id.items()} == {1: [0], 2: [2]}
    rows, failures = unframed(values)
    assert rows.tolist() == [0, 2]
    assert [row for row, _ in failures] == [1]


@pytest.mark.parametrize("values", [binary(), binary(None, None), binary(b"", b"x")])
def test_values_without_any_frame_make_no_group(values):
    found = frames(values)
    assert found.by_id == {}
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
