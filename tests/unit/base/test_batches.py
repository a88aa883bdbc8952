"""Results of a user's function are taken apart into batches; columns of numbers are read without a copy."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from kafka_actors.base.batches import batches_of, copy_of, numbers, rows_of, rows_where

BATCH = pa.record_batch({"n": pa.array([1, 2, 3], pa.int64())})
TABLE = pa.Table.from_batches([BATCH, BATCH])


def test_none_a_batch_a_table_and_several_of_them() -> None:
    assert list(batches_of(None, "f")) == []
    assert list(batches_of(BATCH, "f")) == [BATCH]
    assert [batch.num_rows for batch in batches_of(TABLE, "f")] == [6]
    assert [batch.num_rows for batch in batches_of([BATCH, None, (BATCH, TABLE)], "f")] == [3, 3, 6]


def test_anything_else_names_the_function_and_where_it_was_found() -> None:
    with pytest.raises(TypeError, match="process returned an int: give a RecordBatch"):
        list(batches_of(5, "process"))
    with pytest.raises(TypeError, match="process returned a str in a list: give"):
        list(batches_of([BATCH, "x"], "process"))
    with pytest.raises(TypeError, match="process returned a dict: give"):
        list(batches_of({"n": [1]}, "process"))


def test_a_column_is_seen_in_place_from_its_own_first_row() -> None:
    column = pa.array([1, 2, 3, 4], pa.int32()).slice(1, 2)
    assert numbers(column).tolist() == [2, 3]
    moment = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)
    times = pa.array([moment], pa.timestamp("us", tz="UTC"))
    assert numbers(times).tolist() == [int(moment.timestamp() * 1_000_000)]
    assert numbers(pa.array([], pa.int64())).tolist() == []


NESTED = pa.record_batch(
    {
        "n": pa.array([0, None, 2, 3, 4, 5, 6, 7, 8, 9], pa.int32()),
        "s": pa.array(["a", "b", None, "", "e", "f", "g", "h", "i", "j"]),
        "l": pa.array([[{"k": "x", "v": b"1"}], None, [], [None], *[[]] * 6]),
    }
)


@pytest.mark.parametrize("rows", [[], [0], [9, 0, 3], list(range(10))])
def test_rows_are_taken_as_arrow_takes_them(rows: list[int]) -> None:
    part = NESTED.slice(0, 10)
    assert rows_of(part, rows) == part.take(pa.array(rows, pa.int32()))


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 10])
def test_rows_are_chosen_by_a_mask_of_any_length(length: int) -> None:
    part, mask = NESTED.slice(0, length), np.arange(length) % 3 != 1
    assert rows_where(part, mask) == part.filter(pa.array(mask))


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_a_copy_keeps_nothing_of_what_it_was_a_part_of(length: int) -> None:
    large = pa.record_batch({"v": pa.array([b"x" * 1000] * 1000)})
    made = copy_of(large.slice(3, length))
    assert made == large.slice(3, length)
    assert made.get_total_buffer_size() <= 1100 * length + 300
