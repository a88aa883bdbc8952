"""Results of decoding as a StructArray as long as the values."""

import numpy as np
import pyarrow as pa
import pytest

from kafka_actors.schemas import DeserializationError
from kafka_actors.schemas.decoded import DecodedRows, decoded_struct

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
