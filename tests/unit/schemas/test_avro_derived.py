"""Avro schemas of columns: each type, and that rows written by them come back as they were."""

import json

import pyarrow as pa
import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import AvroDecoder, AvroEncoder
from kafka_actors.schemas.avro_derived import avro_name, derived

EVERYTHING = pa.schema(
    [
        pa.field("flag", pa.bool_(), False),
        pa.field("small", pa.int32()),
        pa.field("id", pa.int64(), False),
        pa.field("ratio", pa.float32()),
        pa.field("amount", pa.float64()),
        pa.field("data", pa.binary()),
        pa.field("text", pa.string()),
        pa.field("money", pa.decimal128(9, 2)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("ms")),
        pa.field("nanos", pa.timestamp("ns", "UTC")),
        pa.field("time", pa.time64("us")),
        pa.field("time_ms", pa.time32("ms")),
        pa.field("code", pa.binary(3)),
        pa.field("span", pa.month_day_nano_interval()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("by", pa.map_(pa.string(), pa.field("value", pa.int64(), True))),
        pa.field("part", pa.struct([pa.field("sku", pa.string(), False), pa.field("code", pa.binary(2))])),
    ]
)


def test_the_columns_of_a_derived_schema_are_those_it_was_derived_from():
    assert AvroDecoder(derived(EVERYTHING, "orders")).schema.equals(EVERYTHING)


def test_rows_come_back_as_they_were():
    text = derived(EVERYTHING, "orders")
    row = {
        "flag": True, "small": 1, "id": 2, "ratio": 0.5, "amount": 1.5, "data": b"x", "text": "é", "money": "1.25", "day": 3, "at": 4,
        "local": 5, "nanos": 6, "time": 7, "time_ms": 8, "code": b"abc", "span": (1, 2, 3_000_000), "tags": ["a", None],
        "by": [("k", 1), ("l", None)], "part": {"sku": "s", "code": b"zz"},
    }  # fmt: skip
    columns = {}
    for field in EVERYTHING:
        value = row[field.name]
        made = (
            pa.array([value], pa.string()).cast(field.type)
            if field.name == "money"
            else pa.array([value], field.type)
        )
        columns[field.name] = pa.concat_arrays(
            [made, pa.array([None if field.nullable else made[0].as_py()], field.type)]
        )
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=EVERYTHING)
    assert AvroDecoder(text)(AvroEncoder(text)(batch)).equals(batch.to_struct_array())


def test_a_nullable_column_is_a_union_whose_default_is_null():
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64(), False)])
    assert json.loads(derived(schema, "R"))["fields"] == [
        {"name": "a", "type": ["null", "long"], "default": None},
        {"name": "b", "type": "long"},
    ]


@pytest.mark.parametrize(
    ("text", "name"), [("orders", "orders"), ("orders-by.day", "orders_by_day"), ("7up", "_7up")]
)
def test_a_name_is_one_of_avros(text, name):
    assert avro_name(text) == name


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.field("a", pa.uint64()), "a: Avro has no type for uint64: cast it, or give a schema"),
        (pa.field("a", pa.list_(pa.duration("us"))), r"a\[\]: Avro has no type for duration"),
        (pa.field("a", pa.map_(pa.int32(), pa.int32())), "a: Avro has no type for map"),
        (pa.field("größe", pa.int32()), "größe: is no name that Avro allows"),
        (pa.field("a", pa.struct([("b-c", pa.int32())])), "a.b-c: is no name that Avro allows"),
    ],
)
def test_what_avro_does_not_have_is_refused_by_its_path(column, said):
    with pytest.raises(ConfigError, match=said):
        derived(pa.schema([column]), "R")
