"""Columns in plain Python, by which the kernel's are held: nulls below a struct, lists, maps, and what is taken back."""

import pyarrow as pa

from kafka_actors.schemas._reference_columns import Columns

SCHEMA = pa.schema(
    [
        pa.field("a", pa.list_(pa.field("element", pa.struct([pa.field("b", pa.string(), False)])))),
        pa.field("m", pa.map_(pa.string(), pa.int8()), False),
    ]
)


def put(columns, items, pairs):
    """One row: `items` None is a null list, an item None a null struct."""
    if items is None:
        columns.put_null(1)
    else:
        for item in items:
            if item is None:
                columns.put_null(2)
            else:
                columns.put(3, item)
                columns.close_struct(2)
        columns.close_list(1)
    for key, value in pairs.items():
        columns.put(5, key)
        columns.put(6, value)
    columns.close_list(4)
    columns.close_struct(0)


def test_rows_come_back_as_they_were_put():
    columns = Columns(SCHEMA)
    put(columns, ["x", None], {"k": 1})
    put(columns, None, {})
    put(columns, [], {"l": None, "m": 3})
    batch = columns.finish()
    batch.validate(full=True)
    assert batch.to_pylist() == [
        {"a": [{"b": "x"}, None], "m": [("k", 1)]},
        {"a": None, "m": []},
        {"a": [], "m": [("l", None), ("m", 3)]},
    ]


def test_a_row_that_was_not_ended_is_taken_back_whole():
    columns = Columns(SCHEMA)
    put(columns, ["x"], {"k": 1})
    columns.put(3, "y")
    columns.close_struct(2)
    columns.put(3, "z")
    columns.truncate(0, 1)
    put(columns, ["w"], {})
    assert columns.finish().to_pylist() == [
        {"a": [{"b": "x"}], "m": [("k", 1)]},
        {"a": [{"b": "w"}], "m": []},
    ]


def test_no_columns_are_rows_too():
    columns = Columns(pa.schema([]))
    columns.close_struct(0)
    assert columns.finish().num_rows == 1
