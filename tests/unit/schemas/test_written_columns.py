"""Columns that values are written of: found by number from the rows, in the form that machines take."""

import pyarrow as pa
import pytest

from kafka_actors.schemas.avro_column import ROOT
from kafka_actors.schemas.results import NULL_ROW
from kafka_actors.schemas.written_columns import (
    ColumnsProgram,
    CompiledPrograms,
    WrittenColumns,
    field_of,
    joined,
    plain_column,
)

ROWS = pa.StructArray.from_arrays(
    [pa.array([[1, 2], [3]], pa.large_list(pa.int32())), pa.array(["x", "y"])], ["many", "one"]
)


def test_columns_are_numbered_behind_the_row_and_found_from_it():
    columns = WrittenColumns()
    many = columns.add_list(ROWS.type.field("many").type, ROOT, field_of(0))
    one = columns.add(ROOT, field_of(1), lambda array: array.cast(pa.binary()))
    assert (many, one, len(columns)) == (1, 2, 3)
    assert columns.arrays(ROWS) == [
        ROWS,
        pa.array([[1, 2], [3]], pa.list_(pa.int32())),
        pa.array([b"x", b"y"]),
    ]


def test_what_is_no_list_is_not_added_and_what_was_tried_is_cut():
    columns = WrittenColumns()
    assert columns.add_list(pa.int32(), ROOT, field_of(0)) is None
    before = len(columns)
    columns.add(ROOT, field_of(1))
    columns.cut(before)
    assert columns.arrays(ROWS) == [ROWS]


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int8(), pa.string()), pa.string()])
def test_a_dictionary_is_read_as_its_values(kind):
    arrow, part = plain_column(kind, lambda array: array)
    assert (arrow, part(pa.array(["a", "b", "a"]).cast(kind))) == (pa.string(), pa.array(["a", "b", "a"]))


def test_paths_have_dots_between_names():
    assert (joined("", "a"), joined("a", "b")) == ("a", "a.b")


class Program:
    def reason(self, code, at, number):
        return f"{code} at {at}: {number}"


class Machine:
    """Fails for the second row."""

    def run(self, columns, rows, frame):
        return pa.array([frame] * (rows - 1), pa.binary()), [(1, 30, 2, 7)]


def test_a_program_is_made_once_for_rows_of_a_type_and_failures_have_its_reasons():
    made = []
    programs = CompiledPrograms(
        lambda columns: made.append(columns) or ColumnsProgram(Program(), WrittenColumns()),
        lambda program: Machine(),
    )
    for _ in range(2):
        found = programs.encode(pa.record_batch({"a": [1, 2, 3]}), b"f")
    assert (found.records.tolist(), found.failures) == ([0, 2], [(1, "30 at 2: 7")])
    assert made == [pa.schema([("a", pa.int64())])]
    of_nulls = programs.encode(pa.array([{"a": 1}, None, {"a": 3}]), b"f")
    assert of_nulls.failures == [(1, NULL_ROW)]
