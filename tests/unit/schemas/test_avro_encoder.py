"""The encoder of Avro values: frames, failures of rows, null rows, and copies in other processes."""

import io
import pickle

import fastavro
import pyarrow as pa
import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import AvroDecoder, AvroEncoder, SerializationError

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
    ],
}


def orders(**columns):
    return pa.record_batch({"id": [1, 2], "note": ["é", None], "state": ["PAID", "OPEN"], **columns})


def read(schema, value):
    return fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(schema), None)


def test_columns_are_found_by_name_whatever_their_order():
    batch = orders().select(["state", "id", "note"])
    first, second = AvroEncoder(ORDER)(batch).to_pylist()
    assert read(ORDER, first) == {"id": 1, "note": "é", "state": "PAID"}
    assert read(ORDER, second) == {"id": 2, "note": None, "state": "OPEN"}


def test_with_an_id_values_have_a_registrys_frame_and_come_back():
    values = AvroEncoder(ORDER, schema_id=258)(orders())
    assert values[0].as_py()[:5] == b"\0\0\0\1\2"
    assert AvroDecoder(ORDER, schema_id=258)(values).to_pylist() == orders().to_pylist()


def test_rows_that_fail_say_why_and_leave_others_alone():
    batch = pa.record_batch(
        {
            "id": pa.array([1, 2**31, None, 4], pa.int64()),
            "note": pa.array([None] * 4),
            "state": ["PAID", "PAID", "PAID", "LOST"],
        }
    )
    made = AvroEncoder(ORDER).encode(batch)
    assert made.values.to_pylist() == [b"\2\0\2"]
    assert made.records.tolist() == [0]
    assert made.failures == [
        (1, "id: 2147483648 is no int of 32 bits"),
        (2, "id: the value is null, which the schema doesn't allow"),
        (3, "state: the text is none of the enum's symbols"),
    ]
    with pytest.raises(SerializationError, match="row 1: id: 2147483648 is no int of 32 bits") as error:
        AvroEncoder(ORDER)(batch)
    assert (error.value.row, error.value.reason) == made.failures[0]


def test_null_rows_are_null_values():
    rows = orders().to_struct_array().take(pa.array([0, None, 1]))
    encoder = AvroEncoder(ORDER)
    assert [value is None for value in encoder(rows).to_pylist()] == [False, True, False]
    assert encoder.encode(rows).failures == [(1, "the row is null")]


def test_a_schema_that_is_no_record_takes_the_column_value():
    assert AvroEncoder("long")(pa.record_batch({"value": [1]})).to_pylist() == [b"\2"]


def test_columns_are_checked_before_a_row_is_there():
    encoder = AvroEncoder(ORDER)
    encoder.check(orders().schema)
    with pytest.raises(ConfigError, match="state: there is no such column"):
        encoder.check(orders().select(["id"]).schema)


def test_a_copy_encodes_as_the_original():
    encoder = AvroEncoder(ORDER, schema_id=7)
    values = encoder(orders())
    assert pickle.loads(pickle.dumps(encoder))(orders()).equals(values)
    assert repr(encoder) == "<AvroEncoder Order>"


def test_references_are_names_that_the_schema_uses():
    part = '{"type": "record", "name": "Part", "fields": [{"name": "sku", "type": "string"}]}'
    schema = {"type": "record", "name": "R", "fields": [{"name": "part", "type": "Part"}]}
    encoder = AvroEncoder(schema, references={"Part": part})
    assert encoder(pa.record_batch({"part": [{"sku": "a"}]})).to_pylist() == [b"\2a"]


def test_rows_without_columns_are_written_with_defaults():
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long", "default": 3}]}
    rows = pa.record_batch({"a": [1, 2]}).select([])
    assert AvroEncoder(schema)(pa.array([{}, {}], pa.struct([]))).to_pylist() == [b"\6", b"\6"]
    assert len(AvroEncoder(schema)(rows)) == rows.num_rows


def test_what_are_no_rows_is_refused():
    with pytest.raises(TypeError, match="give a RecordBatch or a StructArray"):
        AvroEncoder(ORDER)(pa.array([1]))
