"""Which schema a pipeline writes by: the subject, the version, and whether it is registered."""

import json

import pyarrow as pa
import pytest
from fakes.registries import RegistryInMemory

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.encoders import FORMATS
from kafka_actors.schemas import SchemaNotFoundError
from kafka_actors.schemas.writer_schema import WriterSchema

COLUMNS = pa.schema([pa.field("id", pa.int64(), False)])
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}],
}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": "-"}]}
TITLED = {"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}}

PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; }'


@pytest.fixture
def registry():
    made = RegistryInMemory()
    made.add("scored-value", ORDER)
    made.add("scored-value", WIDER)
    made.add("scored-json", TITLED, "JSON")
    return made


def chosen(registry, form="avro", columns=COLUMNS, **options):
    if isinstance(options.get("text"), dict):
        options["text"] = json.dumps(options["text"])
    return WriterSchema(registry=registry, format=FORMATS[form], **options).chosen("write", "scored", columns)


def test_the_latest_version_of_the_topics_values_unless_a_subject_or_a_schema_is_named(registry):
    assert chosen(registry).schema.version == 2
    assert chosen(registry, text=ORDER).schema.version == 1
    assert chosen(registry, "json_schema", subject="scored-json").schema.id == 3
    value = chosen(registry).encoder(pa.record_batch({"id": [1]}))[0].as_py()
    assert value == b"\0\0\0\0\2\2\2-"


@pytest.mark.parametrize(
    ("strategy", "form", "text", "subject"),
    [
        ("topic", "avro", ORDER, "scored-value"),
        ("record", "avro", ORDER, "shop.Order"),
        ("topic_record", "avro", ORDER, "scored-shop.Order"),
        ("record", "json_schema", TITLED, "Order"),
        ("topic_record", "avro", None, "scored-scored"),
        ("record", "protobuf", PROTO, "shop.Order"),
    ],
)
def test_the_subject_is_that_of_the_strategy(strategy, form, text, subject):
    made = chosen(RegistryInMemory(), form, strategy=strategy, text=text, register=True)
    assert made.schema.subject == subject


def test_what_is_registered_is_the_schema_or_one_of_the_columns_and_twice_is_once(registry):
    narrow = {**ORDER, "fields": ORDER["fields"]}
    assert chosen(registry, text=narrow, register=True).schema.id == 1
    assert len(registry.schemas) == 3
    made = [chosen(registry, register=True, subject="new").schema for _ in range(2)]
    assert [(one.id, one.version) for one in made] == [(4, 1)] * 2
    assert json.loads(made[0].text) == {
        "type": "record",
        "name": "scored",
        "fields": [{"name": "id", "type": "long"}],
    }


def test_a_schema_that_no_version_has_is_not_registered_unless_that_is_said(registry):
    other = {**ORDER, "name": "Other"}
    with pytest.raises(
        SchemaNotFoundError, match=r"write: subject scored-value: .*; register the schema before"
    ):
        chosen(registry, text=other)
    assert len(registry.schemas) == 3


@pytest.mark.parametrize(
    ("form", "columns", "options", "said"),
    [
        ("avro", COLUMNS, {"subject": "scored-json"}, "write: schema 3 .* is of type JSON, not AVRO"),
        ("avro", COLUMNS, {"strategy": "record"}, "write: subject_name_strategy is 'record', and no schema names the record"),
        ("avro", COLUMNS, {"strategy": "record", "text": '"long"'}, "write: is of no record"),
        ("json_schema", COLUMNS, {"strategy": "record", "text": '{"properties": {"a": {"type": "null"}}}'}, "write: has no title"),
        ("json_schema", COLUMNS, {"register": True}, "write: has register=True: say with schema= what is registered"),
        ("avro", None, {"register": True}, "write: has register=True, and its columns are known only at the start"),
        ("avro", pa.schema([("a", pa.uint64())]), {"register": True}, "write: a: Avro has no type for uint64"),
    ],
)  # fmt: skip
def test_what_can_not_be_chosen_is_refused_by_the_stages_name(registry, form, columns, options, said):
    with pytest.raises(ConfigError, match=said):
        chosen(registry, form, columns, **options)


def test_a_schema_that_gives_no_encoder_names_stage_and_schema(registry):
    registry.add("broken-value", '{"type": "record", "name": "R"}')
    with pytest.raises(ConfigError, match=r"write: schema 4 \(broken-value version 1\): .* has no 'fields'"):
        chosen(registry, subject="broken-value")


def test_of_a_file_with_several_messages_one_has_to_be_named(registry):
    registry.add("shop-value", PROTO + " message Refund { int64 id = 1; }", "PROTOBUF")
    said = r"write: schema 4 \(shop-value version 1\): message is missing, and the schema has several: shop.Order, shop.Refund"
    with pytest.raises(ConfigError, match=said):
        chosen(registry, "protobuf", subject="shop-value")
