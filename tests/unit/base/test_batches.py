"""Results of a user's function are taken apart into batches; columns of numbers are read without a copy."""

import datetime as dt

import pyarrow as pa
import pytest

from kafka_actors.base.batches import batches_of, numbers

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
