"""Record batches over the kernel's buffers: which memory they share, and what would be too large."""

import numpy as np
import pyarrow as pa
import pytest

from kafka_actors import records
from kafka_actors.base.batches import SCHEMA
from kafka_actors.records import arrow
from kafka_actors.records.arrow import EMPTY, fixed_width
from kafka_actors.records.batch import ColumnBuffers


def decoded(count, *, headers=None):
    columns = {"value": pa.array([b"v%d" % n for n in range(count)], pa.binary())}
    if headers is not None:
        columns["headers"] = pa.array(
            headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        )
    data = records.encode(pa.record_batch(columns), base_offset=100)
    return records.decode(data, topic="orders", partition=3)


def address(batch, name, buffer):
    return batch.column(name).buffers()[buffer].address


def test_an_array_lies_over_the_numbers_that_it_is_made_of():
    values = np.array([1, 2, 3], dtype=np.int64)
    array = fixed_width(values, pa.int64())
    values[0] = 9
    assert array.to_pylist() == [9, 2, 3]


def test_topic_and_partition_of_all_batches_are_the_same_memory():
    """But of those that are small."""
    one, other = (decoded(count) for count in (900, 1000))
    assert address(one, "topic", 2) == address(other, "topic", 2)
    assert address(one, "partition", 1) == address(other, "partition", 1)
    assert one.column("topic").to_pylist() == ["orders"] * 900
    assert other.column("partition").to_pylist() == [3] * 1000


def test_batches_without_headers_share_their_nulls():
    one, other = (decoded(count) for count in (900, 1000))
    assert one.column("headers").to_pylist() == [None] * 900
    assert address(one, "headers", 1) == address(other, "headers", 1)


def test_headers_are_those_of_their_rows():
    found = decoded(3, headers=[[("a", b"1"), ("ä", None)], None, []])
    assert found.column("headers").to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "ä", "value": None}],
        None,
        None,
    ]


def test_no_rows_are_the_empty_batch():
    nothing = pa.py_buffer(b"")
    none = ColumnBuffers(0, nothing, nothing, nothing, None, None, None)  # type: ignore[arg-type]  # not looked at
    assert arrow.record_batch("orders", 3, none) is EMPTY
    assert EMPTY.schema == SCHEMA


def test_a_column_of_topics_has_at_most_two_gigabytes(monkeypatch):
    monkeypatch.setattr(np, "arange", lambda count, dtype: np.array([2**30], dtype=dtype))
    with pytest.raises(OverflowError, match="rows of topic xxx pass 2 GB in one column; lower chunk_rows"):
        arrow._constant_string.__wrapped__("xxx", 2**30)
