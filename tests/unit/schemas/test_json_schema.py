"""JSON Schema as columns: types, formats, nulls, references, and what no column can hold, named by its path."""

import json

import pyarrow as pa
import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.schemas.json_schema import arrow_schema


def of(*required, **properties):
    return {"type": "object", "properties": properties, "required": list(required)}


def column(schema, **more):
    return arrow_schema({**of("x", x=schema), **more}).field("x")


@pytest.mark.parametrize(
    ("schema", "kind", "nullable"),
    [
        ({"type": "string"}, pa.string(), False),
        ({"type": "integer"}, pa.int64(), False),
        ({"type": ["integer", "number"]}, pa.float64(), False),
        ({"type": ["null", "boolean"]}, pa.bool_(), True),
        ({"type": "null"}, pa.null(), True),
        ({"type": "string", "format": "date-time"}, pa.timestamp("us", "UTC"), False),
        ({"type": "string", "format": "date"}, pa.date32(), False),
        ({"type": "string", "format": "email"}, pa.string(), False),
        ({"type": "string", "contentEncoding": "base64"}, pa.binary(), False),
        ({"enum": ["a", "b", None]}, pa.string(), True),
        ({"const": 3}, pa.int64(), False),
        ({"oneOf": [{"type": "null"}, {"type": "number"}]}, pa.float64(), True),
        ({"anyOf": [{"type": "string"}]}, pa.string(), False),
        (
            {"type": "array", "items": {"type": ["string", "null"]}},
            pa.list_(pa.field("element", pa.string())),
            False,
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            pa.map_(pa.string(), pa.field("value", pa.int64(), False)),
            False,
        ),
        (
            of("a", a={"type": "integer"}, b={"type": "string"}),
            pa.struct([pa.field("a", pa.int64(), False), ("b", pa.string())]),
            False,
        ),
        (
            {"allOf": [of("a", a={"type": "integer"}), {"properties": {"b": {"type": "string"}}}]},
            pa.struct([pa.field("a", pa.int64(), False), ("b", pa.string())]),
            False,
        ),
    ],
    ids=str,
)
def test_types_as_columns(schema, kind, nullable):
    made = column(schema)
    assert made.type == kind
    assert made.nullable == nullable


def test_a_property_that_is_not_required_may_be_null():
    assert arrow_schema(of("a", a={"type": "string"}, b={"type": "string"})) == pa.schema(
        [pa.field("a", pa.string(), False), pa.field("b", pa.string())]
    )


def test_references_within_and_to_other_documents():
    city = {"definitions": {"name": {"type": "string"}}, **of("n", n={"$ref": "#/definitions/name"})}
    schema = {
        **of("home", "a", home={"$ref": "city.json"}, a={"$ref": "#/$defs/a~1b"}),
        "$defs": {"a/b": {"type": "integer"}},
    }
    made = arrow_schema(json.dumps(schema), {"city.json": json.dumps(city)})
    assert made.field("home").type == pa.struct([pa.field("n", pa.string(), False)])
    assert made.field("a").type == pa.int64()


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "schema: is no JSON Schema"),
        (7, "schema: is an int: accepts a JSON Schema of an object"),
        ({"type": "string"}, "schema: is of string: accepts one of an object with properties"),
        (of(a={}), "schema: a allows any value"),
        (of(a={"type": ["string", "integer"]}), "schema: a is string or integer: no one column holds it"),
        (of(a={"description": "?"}), "schema: a has no type"),
        (of(a={"type": "text"}), "schema: a is of type 'text', which JSON Schema doesn't have"),
        (of(a=of(b={"oneOf": [{"type": "string"}, {"type": "integer"}]})), "schema: a.b is oneOf of 2 types"),
        (of(a={"type": "array"}), "schema: a is an array whose items have no one schema"),
        (
            of(a={"type": "array", "items": {"type": "object"}}),
            r"schema: a\[\] is an object without properties",
        ),
        (of(a={"$ref": "#/nothing"}), "schema: a refers to #/nothing, which isn't there"),
        (of(a={"$ref": "other.json"}), "schema: a refers to other.json, which isn't there"),
        ({**of(a={"$ref": "#"})}, "schema: a.a refers to #, which holds itself"),
        (
            of(a={"allOf": [of(b={"type": "string"}), of(b={"type": "integer"})]}),
            "schema: a.b has two types in allOf",
        ),
    ],
    ids=str,
)
def test_what_no_column_can_hold_is_refused_by_its_path(schema, said):
    with pytest.raises(ConfigError, match=said):
        arrow_schema(schema)


def test_a_schema_may_be_in_a_file(tmp_path):
    file = tmp_path / "order.json"
    file.write_text('{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}')
    assert arrow_schema(file) == arrow_schema(str(file)) == pa.schema([pa.field("id", pa.int64(), False)])
    with pytest.raises(
        ConfigError, match=r"^schema: \S+other.json can't be read: No such file or directory$"
    ):
        arrow_schema(str(tmp_path / "other.json"))
