"""Values of a registry's JSON Schema: rows, failures, validation, and copies in other processes."""

import datetime
import json
import pickle
import sys

import pyarrow as pa
import pytest
from fakes.records import records
from fakes.registries import RegistryInMemory

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FusedSteps
from kafka_actors.pipeline.json_schema import JsonSchemaDecoder
from kafka_actors.schemas import Schema
from kafka_actors.schemas.framing import frame

ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "at": {"type": "string", "format": "date-time"},
        "parts": {
            "type": "array",
            "items": {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]},
        },
    },
    "required": ["id"],
}
READ = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092", group_id="g")


def binary(*values):
    return pa.array(
        [
            value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            for value in values
        ],
        pa.binary(),
    )


def test_properties_are_columns_and_what_is_not_there_is_null():
    decoder = JsonSchemaDecoder(ORDER)
    assert decoder(
        binary({"id": 1, "at": "2026-01-02T03:04:05Z", "parts": [{"sku": "a"}], "more": 7}, None, {"id": 2})
    ).to_pylist() == [
        {"id": 1, "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), "parts": [{"sku": "a"}]},
        None,
        {"id": 2, "at": None, "parts": None},
    ]


def test_each_value_fails_for_itself_and_validation_finds_more():
    values = binary({"id": 0}, {}, {"id": "1"}, b"{", {"id": 3})
    plain = JsonSchemaDecoder(ORDER).decode(values)
    assert plain.records.tolist() == [0, 4]
    assert [row for row, _ in plain.failures] == [1, 2, 3]
    checked = JsonSchemaDecoder(json.dumps(ORDER), validate=True).decode(values)
    assert checked.records.tolist() == [4]
    assert dict(checked.failures)[0] == "id: 0 is less than the minimum of 1"
    assert dict(checked.failures)[1] == "the value: 'id' is a required property"


def test_in_a_pipeline_values_of_any_id_are_read_by_the_chosen_schema():
    registry = RegistryInMemory()
    number = registry.add("orders-value", ORDER, "JSON")
    ready = READ.decode(registry, validate=True, on_error="skip").ready()
    assert ready.stages[0].chosen == f"schema {number} (orders-value version 1)"
    steps = pickle.loads(pickle.dumps(ready.check().steps))
    source = [
        frame(number) + b'{"id": 5}',
        frame(99) + b'{"id": 6}',
        b'{"id": 7}',
        frame(number) + b'{"id": 0}',
    ]
    outcome = FusedSteps(steps).run(records(source))
    assert [row["id"] for rows in outcome.rows for row in rows.batch.to_pylist()] == [5, 6]
    assert [failure.record for failure in outcome.failures] == [2, 3]
    strict = READ.decode(registry, on_new_schema="fail", on_error="skip").ready()
    outcome = FusedSteps(strict.check().steps).run(records(source[:2]))
    assert "schema 99 wasn't known when the pipeline was made ready" in outcome.failures[0].reason


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, ""),
        ({"id": {"type": "number"}}, "id: writer double, reader int64"),
        ({"parts": {"type": "string"}}, "parts: writer string, reader list<"),
    ],
    ids=["same", "wider", "other"],
)
def test_whether_a_writers_schema_can_be_read_is_known_before_a_value_is_there(changed, reason):
    writer = {**ORDER, "properties": {**ORDER["properties"], **changed}}
    assert JsonSchemaDecoder(ORDER).refusal(Schema(2, "JSON", json.dumps(writer))).startswith(reason)
    gone = {**ORDER, "properties": {"x": {"type": "string"}}, "required": []}
    assert (
        JsonSchemaDecoder(ORDER)
        .refusal(Schema(2, "JSON", json.dumps(gone)))
        .startswith("id: the writer doesn't have it")
    )
    assert JsonSchemaDecoder(ORDER).refusal(Schema(2, "AVRO", "{}")) == "it is of type AVRO, not JSON"


def test_what_a_writers_schema_refers_to_is_the_registrys():
    registry = RegistryInMemory()
    registry.references = {"id.json": '{"type": "integer"}'}
    writer = {**ORDER, "properties": {**ORDER["properties"], "id": {"$ref": "id.json"}}}
    assert JsonSchemaDecoder(ORDER, registry=registry).refusal(Schema(2, "JSON", json.dumps(writer))) == ""


def test_a_copy_validates_as_the_original():
    copy = pickle.loads(pickle.dumps(JsonSchemaDecoder(ORDER, validate=True)))
    assert repr(copy) == "<JsonSchemaDecoder id, at, parts>"
    assert len(copy.decode(binary({"id": 0})).failures) == 1


def test_validation_without_its_package_and_a_schema_that_is_none_are_refused(monkeypatch):
    with pytest.raises(ConfigError, match="schema: is no JSON Schema: -1 is less than the minimum"):
        JsonSchemaDecoder({**ORDER, "minProperties": -1}, validate=True)
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(
        ConfigError, match=r"validate: needs jsonschema: pip install 'kafka-actors\[jsonschema\]'"
    ):
        JsonSchemaDecoder(ORDER, validate=True)
