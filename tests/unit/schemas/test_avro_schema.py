"""Avro schemas as columns: names, logical types, unions, and what is refused."""

import pyarrow as pa
import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.schemas.avro_schema import Enum, Fixed, Logical, Primitive, arrow_schema, parse


def record(*fields, **more):
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields], **more}


def column(kind):
    return arrow_schema(parse(record(("x", kind)))).field("x")


@pytest.mark.parametrize(
    ("kind", "arrow", "nullable"),
    [
        ("long", pa.int64(), False),
        (["null", "string"], pa.string(), True),
        (["null"], pa.null(), True),
        ({"type": "int", "logicalType": "date"}, pa.date32(), False),
        ({"type": "long", "logicalType": "timestamp-nanos"}, pa.timestamp("ns", "UTC"), False),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us"), False),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 3},
            pa.decimal256(40, 3),
            False,
        ),
        (
            {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
            pa.month_day_nano_interval(),
            False,
        ),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, pa.string(), False),
        ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.field("element", pa.int32())), False),
        (["int", "long"], pa.int64(), False),
        (["null", "double", "float"], pa.float64(), True),
        (
            ["null", "int", "string"],
            pa.struct([pa.field("member0", pa.int32()), pa.field("member1", pa.string())]),
            True,
        ),
    ],
    ids=str,
)
def test_types_as_columns(kind, arrow, nullable):
    made = column(kind)
    assert made.type == arrow
    assert made.nullable == nullable


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "string", "logicalType": "date"},
        {"type": "int", "logicalType": "timestamp-millis"},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
        {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 9},
        {"type": "fixed", "name": "F", "size": 11, "logicalType": "duration"},
        {"type": "long", "logicalType": "somebodys-own"},
    ],
    ids=str,
)
def test_a_logical_type_that_is_not_valid_is_ignored(kind):
    made = parse(kind)
    assert isinstance(made, (Primitive, Fixed))
    assert made.logical is None


def test_names_belong_to_the_namespace_around_them():
    inner = {"type": "enum", "name": "Kind", "symbols": ["A"], "aliases": ["Old", "other.Older"]}
    made = parse(record(("a", inner), ("b", "Kind"), ("c", "shop.Kind"), namespace="shop"))
    first, second, third = (field.type for field in made.fields)
    assert first == Enum("shop.Kind", ("A",), None, ("shop.Old", "other.Older"))
    assert second is first
    assert third is first


def test_a_schema_may_refer_to_others():
    made = parse(
        record(("home", "geo.City")), {"city": '{"type": "record", "name": "geo.City", "fields": []}'}
    )
    assert arrow_schema(made).field("home").type == pa.struct([])


def test_what_is_no_record_is_one_column():
    assert arrow_schema(parse('["null", "long"]')) == pa.schema([pa.field("value", pa.int64())])
    assert parse({"type": "int", "logicalType": "date"}) == Primitive("int", Logical("date"))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "is no Avro schema in JSON"),
        (7, "is an int"),
        ({"type": 7}, "which has no type"),
        ({"type": "array"}, "which has no 'items'"),
        (record(("x", "nothing")), "names the type 'nothing', which isn't defined before"),
        (record(("x", ["int", ["long"]])), "a union directly in a union"),
        (record(("x", [])), "a union of no types"),
        (record(("x", "int"), ("x", "int")), "the field 'x' twice"),
        (record(("x", record())), "defines the type 'R' twice"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "a symbol twice in E"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "the default 'B' in E"),
        ({"type": "fixed", "name": "F", "size": -1}, "the size -1 in F"),
        (record(("x", {"type": "array", "items": "R"})), "field 'element' is R, which holds itself"),
    ],
    ids=str,
)
def test_a_schema_that_is_none_says_why(schema, said):
    with pytest.raises(ConfigError) as raised:
        arrow_schema(parse(schema))
    assert said in str(raised.value)
