"""Rows and the records that they came from, and the hidden column that is made of these numbers."""

import numpy as np
import pyarrow as pa
import pytest
from fakes.records import records

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.rows import (
    KAFKA,
    NO_RECORD,
    StageRows,
    check_names,
    kafka_struct,
    rows_of,
    with_kafka,
)


def numbers(*values):
    return np.array(values, dtype=np.int32)


def made(*origin):
    return StageRows(pa.record_batch({"n": list(range(len(origin)))}), numbers(*origin))


def test_the_rows_of_a_batch_that_was_read_are_each_their_own_record():
    source = records([b"a", b"b", b"c"])
    rows = rows_of(source)
    assert rows.batch is source
    assert rows.origin.tolist() == [0, 1, 2]


def test_rows_keep_their_records_when_some_are_taken():
    rows = made(4, 4, 7, 9)
    assert rows.take(np.array([True, False, True, False])).origin.tolist() == [4, 7]
    assert rows.slice(1, 2).origin.tolist() == [4, 7]
    assert rows.slice(1, 2).batch["n"].to_pylist() == [1, 2]


def test_the_records_of_rows_are_ascending_and_each_once():
    assert made(9, 4, 4).records(10).tolist() == [4, 9]


def test_a_row_of_no_single_record_stands_for_all_of_them():
    assert made(1, NO_RECORD).records(4).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("origin", "offsets"), [((0, 1, 2), [100, 101, 102]), ((2, 0, 0), [102, 100, 100])])
def test_the_hidden_column_has_each_rows_own_record(origin, offsets):
    column = kafka_struct(records([b"a", b"b", b"c"]), numbers(*origin))
    assert [row["offset"] for row in column.to_pylist()] == offsets
    assert {row["topic"] for row in column.to_pylist()} == {"orders"}


def test_the_hidden_column_is_null_where_a_row_belongs_to_no_single_record():
    column = kafka_struct(records([b"a", b"b"]), numbers(1, NO_RECORD))
    first, second = column.to_pylist()
    assert first["offset"] == 101
    assert second is None


def test_the_hidden_column_comes_last():
    source = records([b"a", b"b"])
    batch = made(1).with_kafka(source)
    assert batch.schema == with_kafka(pa.schema({"n": pa.int64()}))
    assert batch.schema.names == ["n", KAFKA]
    assert batch[KAFKA].to_pylist()[0]["offset"] == 101


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a", KAFKA], "stage: has a column '_kafka': that name is the hidden column's; give it another"),
        (["a", "b", "a"], "stage: has more than one column 'a'"),
    ],
)
def test_a_name_twice_and_the_hidden_columns_name_are_refused(names, said):
    with pytest.raises(ConfigError) as refused:
        check_names("stage", pa.schema([(name, pa.int64()) for name in names]))
    assert str(refused.value) == said


def test_distinct_names_are_taken():
    check_names("stage", pa.schema({"a": pa.int64(), "A": pa.int64(), "kafka": pa.int64()}))
