"""Defaults of fields, from JSON's form to Avro's bytes, with fastavro as the oracle."""

import io

import fastavro
import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.schemas.avro_default import encoded_default, long
from kafka_actors.schemas.avro_schema import Primitive, parse

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
NESTED = {
    "type": "record",
    "name": "N",
    "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"], "default": None}],
}


@pytest.mark.parametrize(
    ("schema", "default", "value"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -5, -5),
        ("long", 2**62, 2**62),
        ("float", 1.5, 1.5),
        ("double", 3, 3.0),
        ("double", "NaN", float("nan")),
        ("string", "é", "é"),
        ("bytes", "\u00ff\u0000", b"\xff\x00"),
        (ENUM, "B", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u0001\u0002", b"\1\2"),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "map", "values": "string"}, {"k": "v"}, {"k": "v"}),
        (NESTED, {"a": 4}, {"a": 4, "b": None}),
    ],
    ids=str,
)
def test_the_bytes_are_those_of_the_value(schema, default, value):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    assert encoded_default(parse(schema), default, "x")[1] == stream.getvalue()


def test_a_unions_default_is_of_the_first_branch_that_it_fits():
    branch, data = encoded_default(parse(["null", "long", "string"]), "text", "x")
    assert branch == Primitive("string")
    assert data == b"\x08text"


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        ("int", 2**31),
        ("int", "1"),
        ("int", True),
        ("string", 1),
        ("boolean", 0),
        (ENUM, "C"),
        (NESTED, {}),
        ("null", 0),
    ],
    ids=str,
)
def test_a_default_that_is_none_of_its_type_is_refused_by_its_path(schema, default):
    with pytest.raises(ConfigError, match=r"a.b: the default .* is none of its type"):
        encoded_default(parse(schema), default, "a.b")


def test_numbers_of_all_lengths():
    for number in (0, -1, 63, 64, -(2**63), 2**63 - 1):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, "long", number)
        assert long(number) == stream.getvalue()
