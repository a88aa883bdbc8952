"""Rows as JSON by a JSON Schema: what is left out, what is null, and what fails by itself."""

import datetime
import pickle

import jsonschema
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.json_encoder import JsonSchemaEncoder
from kafka_actors.pipeline.json_schema import JsonSchemaDecoder
from kafka_actors.schemas import SerializationError
from kafka_actors.schemas.json_schema import arrow_schema, is_required

ORDER = {
    "type": "object",
    "title": "Order",
    "properties": {
        "id": {"type": "integer"},
        "note": {"type": ["string", "null"]},
        "city": {"type": "string"},
        "amount": {"type": "number"},
    },
    "required": ["id", "note"],
}


def of(*required, **properties):
    return {"type": "object", "properties": properties, "required": list(required)}


def texts(schema, **columns):
    made = JsonSchemaEncoder(schema).encode(pa.record_batch(columns))
    for value in made.values.to_pylist():
        jsonschema.validate(msgspec.json.decode(value), schema)
    return made.values.to_pylist(), [reason for _, reason in made.failures]


def test_what_is_not_required_is_left_out_where_it_is_null_and_what_is_required_is_null():
    values, failures = texts(
        ORDER, id=[1, 2], note=[None, "x"], city=pa.array([None, "y"]), amount=pa.array([1.5, None])
    )
    assert values == [b'{"id":1,"note":null,"amount":1.5}', b'{"id":2,"note":"x","city":"y"}']
    assert failures == []


def test_a_property_without_a_column_is_left_out():
    assert texts(ORDER, note=[None], id=[1])[0] == [b'{"note":null,"id":1}']


def test_inside_objects_and_lists_it_is_the_same():
    part = of("sku", sku={"type": "string"}, size={"type": "integer"})
    schema = of(
        parts={"type": "array", "items": part},
        by={"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
    )
    parts = [[{"sku": "a", "size": None}, {"sku": "b", "size": 2}], [], None]
    by = pa.array([[("k", [1, 2])], None, []], pa.map_(pa.string(), pa.list_(pa.int64())))
    values, failures = texts(schema, parts=parts, by=by)
    assert failures == []
    assert values == [
        b'{"parts":[{"sku":"a"},{"sku":"b","size":2}],"by":{"k":[1,2]}}',
        b'{"parts":[]}',
        b'{"by":{}}',
    ]


def test_values_that_the_schema_does_not_allow_fail_by_themselves():
    item = of("sku", sku={"type": "string"})
    schema = of("id", id={"type": "integer"}, n={"type": "number"}, parts={"type": "array", "items": item})
    values, failures = texts(
        schema,
        id=[1, None, 3, 4, 5],
        n=[1.0, 1.0, float("nan"), 1.0, None],
        parts=[[], [], [], [{"sku": "a"}, {"sku": None}], None],
    )
    assert values == [b'{"id":1,"n":1.0,"parts":[]}', b'{"id":5}']
    assert failures == [
        "id: the value is null, which the schema doesn't allow",
        "n: NaN and infinities are no numbers of JSON",
        "parts[].sku: the value is null, which the schema doesn't allow",
    ]


def test_a_value_that_json_does_not_hold_fails_by_itself():
    schema = of(at={"type": "string", "format": "date-time"})
    at = pa.array([0, 1, 1000], pa.timestamp("ns", "UTC"))
    made = JsonSchemaEncoder(schema).encode(pa.record_batch({"at": at}))
    assert made.records.tolist() == [0, 2]
    assert [row for row, _ in made.failures] == [1]
    assert made.values[1].as_py() == b'{"at":"1970-01-01T00:00:00.000001Z"}'
    double = pa.array([[("a", 1), ("a", 2)], [("a", 1)]], pa.map_(pa.string(), pa.int64()))
    schema = of(m={"type": "object", "additionalProperties": {"type": "integer"}})
    made = JsonSchemaEncoder(schema).encode(pa.record_batch({"m": double}))
    assert made.failures == [(0, "a map has the same key twice")]


@pytest.mark.parametrize(
    ("schema", "column", "value"),
    [
        ({"type": "string"}, pa.array(["a", "a"]).dictionary_encode(), "a"),
        ({"type": "string", "format": "date"}, pa.array([datetime.date(2026, 1, 2)] * 2), "2026-01-02"),
        ({"type": "string"}, pa.array([datetime.date(2026, 1, 2)] * 2), "2026-01-02"),
        ({"type": "string", "contentEncoding": "base64"}, pa.array([b"\xff"] * 2), "/w=="),
        ({"type": "number"}, pa.array([3, 3]), 3),
        ({"type": "integer"}, pa.array([3, 3], pa.uint64()), 3),
        ({"type": "array", "items": {"type": "integer"}}, pa.array([[1, 2]] * 2, pa.list_(pa.int8(), 2)), [1, 2]),
        ({"type": "null"}, pa.nulls(2), None),
    ],
)  # fmt: skip
def test_columns_that_give_a_type(schema, column, value):
    values, failures = texts(of("a", a=schema), a=column)
    assert failures == []
    assert [msgspec.json.decode(one)["a"] for one in values] == [value, value]


@pytest.mark.parametrize(
    ("schema", "columns", "said"),
    [
        (ORDER, {"note": pa.string()}, "id: there is no such column, and the schema requires it"),
        (ORDER, {"id": pa.int64(), "note": pa.string(), "x": pa.int8()}, "x: the schema has no such property"),
        (ORDER, {"id": pa.string(), "note": pa.string()}, "id: the column is string, the schema has integer"),
        (ORDER, {"id": pa.float64(), "note": pa.string()}, "id: the column is double, the schema has integer"),
        (of(a={"type": "string", "format": "date-time"}), {"a": pa.timestamp("us")}, "the schema has date-time"),
        (of(a={"type": "string"}), {"a": pa.binary()}, "a: the column is binary, the schema has string"),
        (of(a=of("b", b={"type": "string"})), {"a": pa.struct([])}, "a.b: there is no such column"),
        (of(a={"type": "array", "items": {"type": "string"}}), {"a": pa.list_(pa.int8())}, r"a\[\]: the column is int8"),
    ],
)  # fmt: skip
def test_columns_that_can_never_be_written_are_refused_by_their_path(schema, columns, said):
    with pytest.raises(ConfigError, match=said):
        JsonSchemaEncoder(schema).check(pa.schema(list(columns.items())))


def test_required_properties_of_parts_that_hold_all_at_once():
    schema = {
        "allOf": [
            of("a", a={"type": ["integer", "null"]}),
            of(a={"type": ["integer", "null"]}, b={"type": "string"}),
        ]
    }
    marked = arrow_schema(schema, marked=True)
    assert [is_required(field) for field in marked] == [True, False]
    assert not any(map(is_required, arrow_schema(schema)))


def test_framed_values_are_read_by_the_decoder_and_by_copies():
    encoder = pickle.loads(pickle.dumps(JsonSchemaEncoder(ORDER, schema_id=7)))
    rows = pa.record_batch({"id": [1, 2], "note": ["é", None]}).to_struct_array()
    values = encoder(rows.take(pa.array([0, None, 1])))
    first, second, third = values.to_pylist()
    assert first == b'\0\0\0\0\7{"id":1,"note":"\xc3\xa9"}'
    assert second is None
    with pytest.raises(SerializationError, match="row 0: id: the value is null"):
        encoder(pa.record_batch({"id": pa.array([None], pa.int64()), "note": ["x"]}))
    read = JsonSchemaDecoder(ORDER)(pa.array([first[5:], third[5:]], pa.binary()))
    assert [(row["id"], row["note"]) for row in read.to_pylist()] == [(1, "é"), (2, None)]
    assert repr(encoder) == "<JsonSchemaEncoder id, note, city, amount>"


rows = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(0, 9),
        "tags": st.none() | st.lists(st.none() | st.fixed_dictionaries({"n": st.none() | st.floats()}), max_size=3),
        "by": st.none() | st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 9)), max_size=2, unique_by=lambda one: one[0]),
    }
)  # fmt: skip
KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("tags", pa.list_(pa.struct([("n", pa.float64())]))),
        ("by", pa.map_(pa.string(), pa.int64())),
    ]
)


@given(st.lists(rows, max_size=5), st.booleans(), st.integers(0, 3))
def test_each_row_is_one_value_that_the_schema_allows_or_one_failure(made, nullable, first):
    inner = of("n", n={"type": "number"})
    schema = of(
        "id",
        id={"type": "integer"},
        tags={"type": "array", "items": {"oneOf": [inner, {"type": "null"}]} if nullable else inner},
        by={"type": "object", "additionalProperties": {"type": ["integer", "null"]}},
    )
    array = pa.array(made, KIND).slice(first)
    found = JsonSchemaEncoder(schema).encode(array)
    assert len(found.values) + len(found.failures) == len(array)
    assert sorted([*found.records.tolist(), *(row for row, _ in found.failures)]) == list(range(len(array)))
    for row, value in zip(found.records.tolist(), found.values.to_pylist(), strict=True):
        read = msgspec.json.decode(value)
        jsonschema.validate(read, schema)
        assert JsonSchemaEncoder(schema).encode(array.slice(row, 1)).values[0].as_py() == value
        assert read.get("tags") == array[row].as_py()["tags"]
    for row, _ in found.failures:
        one = made[first + row]
        bad_tag = any(
            (tag is None and not nullable)
            or (tag is not None and (tag["n"] is None or not abs(tag["n"]) < float("inf")))
            for tag in one["tags"] or ()
        )
        assert one["id"] is None or bad_tag
