"""`write_kafka` by schemas of a registry: its arguments, what is known before and after it is bound, and rows that fail."""

import json
import pickle

import pyarrow as pa
import pytest
from fakes.records import records
from fakes.registries import RegistryInMemory

from kafka_actors.errors import ConfigError, StageError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FusedSteps
from kafka_actors.pipeline.rows import NO_RECORD, StageRows, rows_of
from kafka_actors.schemas import AvroDecoder
from kafka_actors.schemas.registry import Reference
from kafka_actors.sinks.stage import OpenSinks

READ = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092", group_id="g")
ORDERS = READ.decode_json("id BIGINT NOT NULL, note STRING")
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"]}],
}

SHOP = 'syntax = "proto3"; package shop; message Refund { int64 id = 1; } message Order { int32 id = 1; optional string note = 2; }'


@pytest.fixture
def registry():
    made = RegistryInMemory()
    made.add("scored-value", ORDER)
    return made


def test_before_the_engine_is_known_nothing_is_asked_and_afterwards_the_schema_stands_in_the_plan(registry):
    pipeline = ORDERS.write_kafka("scored", format="avro", registry=registry)
    assert "write_kafka(scored), by a schema of the registry" in pipeline.explain()
    ready = pipeline.ready()
    assert "write_kafka(scored), by schema 1 (scored-value version 1)" in ready.explain()
    registry.add("scored-value", {**ORDER, "name": "Other"})
    assert ready.ready().explain() == ready.explain(), "what was chosen is kept"


def test_columns_are_checked_against_the_schema(registry):
    more = ORDERS.map_batches(print, schema="id BIGINT, note STRING, extra INT")
    with pytest.raises(
        ConfigError, match=r"write_kafka\(scored\): schema 1 \(.*\): extra: the schema has no such field"
    ):
        more.write_kafka("scored", format="avro", registry=registry).ready().check()


def test_nothing_is_registered_by_a_pipeline_that_is_wrong(registry):
    broken = ORDERS.select("nothing").write_kafka("new", format="avro", registry=registry, register=True)
    with pytest.raises(ConfigError, match="nothing"):
        broken.ready()
    assert len(registry.schemas) == 1
    ORDERS.write_kafka("new", format="avro", registry=registry, register=True).ready().check()
    assert registry.schema_of("new-value").id == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "xml"}, "format is 'xml': accepts 'json', 'columns', 'avro', 'json_schema', 'protobuf'"),
        ({"format": "avro"}, r"has format='avro': say registry=, a kafka_actors.SchemaRegistry"),
        ({"format": "avro", "registry": "http://registry"}, "registry is 'http://registry', a str|registry is a str"),
        ({"subject": "x"}, "subject is for format='avro' or 'json_schema' or 'protobuf'"),
        ({"register": True}, "register is for format='avro' or 'json_schema' or 'protobuf'"),
        ({"format": "avro", "registry": RegistryInMemory(), "subject": ""}, "subject is '': accepts a subject's name"),
        ({"format": "avro", "registry": RegistryInMemory(), "register": 1}, "register is 1: accepts True or False"),
        ({"format": "avro", "registry": RegistryInMemory(), "schema": 1}, "schema is .*: accepts a schema, a dict or text"),
        ({"format": "avro", "registry": RegistryInMemory(), "schema": {}}, "schema: has {}, which has no type"),
        ({"message": "A"}, "message is for format='avro' or 'json_schema' or 'protobuf'"),
        ({"format": "avro", "registry": RegistryInMemory(), "message": "A"}, "message is for format='protobuf'"),
        ({"format": "protobuf", "registry": RegistryInMemory(), "message": 1}, "message is 1: accepts a message's full name"),
        ({"format": "protobuf", "registry": RegistryInMemory(), "schema": {}}, r"write_kafka\(scored\): schema is a dict: accepts a .proto"),
        ({"format": "protobuf", "registry": RegistryInMemory(), "schema": SHOP}, "message: is missing, and the schema has several"),
        ({"format": "avro", "registry": RegistryInMemory(), "subject_name_strategy": "x"}, "subject_name_strategy is 'x': accepts 'topic', 'record', 'topic_record'"),
    ],
)  # fmt: skip
def test_arguments_are_checked_at_once(options, said):
    with pytest.raises(ConfigError, match=said):
        ORDERS.write_kafka("scored", **options)


def test_a_topic_is_needed(registry):
    with pytest.raises(ConfigError, match="topic: is missing"):
        ORDERS.write_kafka(format="avro", registry=registry).ready()


class Sent:
    """A writer that keeps what it gets."""

    def __init__(self):
        self.batches = []

    def write(self, batch, origin):
        self.batches.append(batch)

    def flush(self):
        pass

    def close(self):
        pass


SOURCE = records(
    [b'{"id": 1, "note": "a"}', b'{"id": 3000000000, "note": "b"}', b'{"id": 3, "note": null}'],
    keys=[b"k0", b"k1", b"k2"],
)


def written(pipeline):
    """The keys and values that were sent, and the failures."""
    checked = pickle.loads(pickle.dumps(pipeline.ready().check()))
    sent, failures = Sent(), []
    sinks = OpenSinks(checked.sinks, pipeline.source, 0, lambda stage, source: sent)
    for rows in FusedSteps(checked.steps).run(SOURCE).rows:
        sinks.write(rows, SOURCE, failures)
    made = pa.Table.from_batches(sent.batches)
    return made.column("key").to_pylist(), made.column("value").combine_chunks(), failures


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_a_row_that_can_not_be_encoded_is_an_error_of_its_record_and_keys_stay(registry, policy):
    pipeline = ORDERS.dead_letters("dead").with_key("id")
    pipeline = pipeline.write_kafka("scored", format="avro", registry=registry, on_error=policy)
    keys, values, failures = written(pipeline)
    assert keys == [b"1", b"3"]
    assert AvroDecoder(ORDER, registry=registry)(values).to_pylist() == [
        {"id": 1, "note": "a"},
        {"id": 3, "note": None},
    ]
    assert [(one.record, one.stage, one.reason) for one in failures] == [
        (1, "write_kafka(scored)", "id: 3000000000 is no int of 32 bits")
    ]


def test_without_with_key_rows_have_the_keys_of_their_records(registry):
    pipeline = ORDERS.on_error("skip").write_kafka("scored", format="avro", registry=registry)
    assert written(pipeline)[0] == [b"k0", b"k2"]


def test_under_fail_the_first_record_is_named_and_nothing_is_sent(registry):
    pipeline = ORDERS.write_kafka("scored", format="avro", registry=registry)
    with pytest.raises(
        StageError, match=r"stage write_kafka\(scored\) failed on .*: id: 3000000000 is no int"
    ):
        written(pipeline)


def test_a_row_of_no_single_record_fails_for_all_of_the_batch(registry):
    checked = ORDERS.on_error("skip").write_kafka("scored", format="avro", registry=registry).ready().check()
    failures = []
    batch = pa.RecordBatch.from_pylist([{"id": 3 * 10**9, "note": None}], checked.columns)
    sinks = OpenSinks(checked.sinks, ORDERS.source, 0, lambda stage, source: Sent())
    sinks.write(StageRows(batch, rows_of(batch).origin * 0 + NO_RECORD), SOURCE, failures)
    assert [one.record for one in failures] == [0, 1, 2]


@pytest.mark.parametrize("in_a_file", [False, True])
def test_json_schemas_are_written_with_their_frame(registry, tmp_path, in_a_file):
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}
    if in_a_file:
        file = tmp_path / "new.json"
        file.write_text(json.dumps(schema))
        schema = file
    pipeline = ORDERS.write_kafka(
        "new", format="json_schema", registry=registry, schema=schema, register=True
    )
    _, values, failures = written(pipeline)
    assert failures == []
    assert values[2].as_py() == b'\0\0\0\0\2{"id":3}'


def test_protobuf_is_written_with_the_indexes_of_its_message_and_rows_that_do_not_fit_are_errors_of_their_records(
    registry, tmp_path
):
    path = tmp_path / "shop.proto"
    path.write_text(SHOP)
    pipeline = ORDERS.on_error("skip").write_kafka(
        "new", format="protobuf", registry=registry, schema=str(path), message="shop.Order", register=True
    )
    assert len(registry.schemas) == 1, "nothing is registered before the pipeline is made ready"
    _, values, failures = written(pipeline)
    assert registry.schema_of("new-value").text == SHOP
    assert values.to_pylist() == [b"\0\0\0\0\2\2\2\x08\1\x12\1a", b"\0\0\0\0\2\2\2\x08\3"]
    assert [(one.record, one.reason) for one in failures] == [(1, "id: 3000000000 is no int32")]


def test_columns_are_checked_against_the_message_and_a_text_with_imports_against_those_of_the_registry(
    registry,
):
    part = 'syntax = "proto3"; message Part { string sku = 1; }'
    text = 'syntax = "proto3"; import "part.proto"; message A { int64 id = 1; Part note = 2; }'
    registry.add("new-value", text, "PROTOBUF", (Reference("part.proto", "part", 1),))
    registry.references["part.proto"] = part
    pipeline = ORDERS.write_kafka("new", format="protobuf", registry=registry, schema=text)
    with pytest.raises(
        ConfigError,
        match=r"write_kafka\(new\): schema 2 \(.*\): note: the column is string, the schema has Part",
    ):
        pipeline.ready().check()
