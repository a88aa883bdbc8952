"""Forms of columns: which can hold values that the type can't."""

import pyarrow as pa
import pytest

from kafka_actors.schemas.avro_column import form_of
from kafka_actors.schemas.avro_program import Op, Store
from kafka_actors.schemas.avro_schema import parse


def form(kind, arrow):
    return form_of(parse(kind), arrow)


@pytest.mark.parametrize(
    ("kind", "arrow", "narrows"),
    [
        ("int", pa.int32(), False),
        ("int", pa.int64(), True),
        ("long", pa.int64(), False),
        ("float", pa.float64(), True),
        ("double", pa.float64(), False),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"), False),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC"), True),
    ],
)
def test_a_form_says_whether_some_values_can_not_be_written(kind, arrow, narrows):
    assert form(kind, arrow).narrows == narrows


def test_times_have_the_factor_between_units():
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    assert form(millis, pa.timestamp("ns", "UTC")).size == -1_000_000
    assert form(millis, pa.timestamp("s", "UTC")).size == 1000
    assert form(millis, pa.timestamp("ms", "UTC")).size == 1


def test_symbols_are_numbers_and_minus_one_for_others():
    made = form({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.large_string())
    assert (made.op, made.store) == (Op.ENUM, Store.INT32)
    numbers = made.convert(pa.array(["B", None, "C", "A"], pa.large_string()))
    assert numbers.type == pa.int32()
    assert numbers.to_pylist() == [1, None, -1, 0]
