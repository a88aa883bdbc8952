"""Results of decoding as a StructArray as long as the values, and of encoding as a column as long as the rows; or the first failure."""

import numpy as np
import pyarrow as pa
import pytest

from kafka_actors.schemas import DeserializationError, SerializationError
from kafka_actors.schemas.results import (
    DecodedRows,
    EncodedValues,
    decoded_struct,
    encoded_column,
    numbers_without,
    struct_of,
)

SCHEMA = pa.schema([pa.field("x", pa.int64())])


class Decoder:
    """Decodes digits."""

    schema = SCHEMA

    def decode(self, values):
        found = [(n, v.as_py()) for n, v in enumerate(values)]
        good = [(n, int(v)) for n, v in found if v is not None and v.isdigit()]
        failures = [
            (n, "null" if v is None else f"{v!r} is no number")
            for n, v in found
            if v is None or not v.isdigit()
        ]
        batch = pa.RecordBatch.from_arrays([pa.array([v for _, v in good], pa.int64())], schema=SCHEMA)
        return DecodedRows(batch, np.array([n for n, _ in good], np.int32), failures)


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ([b"1", b"2"], [{"x": 1}, {"x": 2}]),
        ([None, b"1", None], [None, {"x": 1}, None]),
        ([None], [None]),
        ([], []),
    ],
)
def test_nulls_are_null_rows(values, rows):
    made = decoded_struct(Decoder(), pa.array(values, pa.binary()))
    assert made.type == pa.struct(list(SCHEMA))
    assert made.to_pylist() == rows


def test_the_first_other_failure_is_raised():
    with pytest.raises(DeserializationError, match=r"^value 1: b'x' is no number$"):
        decoded_struct(Decoder(), pa.array([None, b"x", b"y"], pa.binary()))


class Encoder:
    """Values of those rows that are no failures."""

    def __init__(self, *failures):
        self.failures = list(failures)

    def check(self, columns):
        pass

    def encode(self, rows):
        records = numbers_without(len(rows), self.failures)
        return EncodedValues(pa.array([b"%d" % n for n in records]), records, self.failures)


ROWS = pa.array([{"a": 1}, None, {"a": 3}])


def test_a_null_row_is_a_null_value_and_the_first_other_failure_is_raised():
    assert encoded_column(Encoder(), ROWS).to_pylist() == [b"0", b"1", b"2"]
    assert encoded_column(Encoder((1, "null")), ROWS).to_pylist() == [b"0", None, b"2"]
    with pytest.raises(SerializationError, match="row 2: why"):
        encoded_column(Encoder((1, "null"), (2, "why")), ROWS)


def test_numbers_are_those_of_rows_that_did_not_fail():
    found = numbers_without(4, [(0, ""), (2, "")])
    assert found.tolist() == [1, 3]
    assert found.dtype == np.int32


def test_a_batch_is_rows_with_or_without_columns():
    assert struct_of(pa.record_batch({"a": [1, 2]})).to_pylist() == [{"a": 1}, {"a": 2}]
    none = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))
    assert struct_of(none).to_pylist() == [{}] * 3
    assert struct_of(ROWS) is ROWS
