"""Decoders of a pipeline by schemas of a registry: what is known before it is bound to an engine, and what is checked then."""

import pickle
import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fakes.records import records
from fakes.registries import RegistryInMemory

from kafka_actors.errors import ConfigError, StageError
from kafka_actors.events import NewSchemaSeen
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FusedSteps
from kafka_actors.schemas import SchemaNotFoundError
from kafka_actors.schemas.framing import HEADERS, frame
from kafka_actors.types import TopicPartition

READ = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092", group_id="g")
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; } message Other { }'


@pytest.fixture
def registry():
    made = RegistryInMemory()
    made.add("orders-value", ORDER)
    return made


def test_before_the_engine_is_known_the_columns_are_the_registrys(registry):
    pipeline = READ.decode(registry).filter(pc.field("id") > 3).write(print)
    assert "→ columns from the registry" in pipeline.explain()
    with pytest.raises(
        ConfigError, match="decode_json: comes after a stage whose columns are known only at the start"
    ):
        READ.decode(registry).decode_json("a INT").check()
    with pytest.raises(
        ConfigError, match="its output_schema depends on columns that are known only at the start"
    ):
        READ.decode(registry).map_batches(keeps).check()


def keeps(batch):
    return batch


keeps.output_schema = lambda schema: schema


def test_made_ready_it_has_its_schema_and_stages_that_name_columns_are_checked(registry):
    pipeline = READ.decode(registry).filter(pc.field("nothing") > 3).write(print)
    with pytest.raises(ConfigError, match="nothing"):
        pipeline.ready().check()
    ready = READ.decode(registry).filter(pc.field("id") > 3).write(print).ready()
    assert "by schema 1 (orders-value version 1)" in ready.explain()
    assert ready.ready().stages == ready.stages
    asked = len(registry.asked)
    outcome = FusedSteps(pickle.loads(pickle.dumps(ready.check().steps))).run(
        records([frame(1) + b"\x08", frame(1) + b"\x02"])
    )
    assert [rows.batch.to_pylist() for rows in outcome.rows] == [[{"id": 4}]]
    assert len(registry.asked) == asked, "the schema travels with the pipeline"


def test_columns_that_are_said_are_checked_before_and_compared_then(registry):
    pipeline = READ.decode(registry, schema="id BIGINT NOT NULL")
    assert pipeline.check().columns == pa.schema([pa.field("id", pa.int64(), False)])
    assert pipeline.ready().check().columns.names == ["id"]
    with pytest.raises(
        ConfigError, match=r"decode: schema: says id string, and schema 1 \(.*\) gives id int64"
    ):
        READ.decode(registry, schema="id STRING").ready().check()


def test_a_subject_that_is_not_there_is_named(registry):
    with pytest.raises(SchemaNotFoundError, match="subject nothing"):
        READ.decode(registry, subject="nothing").ready()


def test_a_registry_that_is_away_holds_the_stage_up_and_fails_no_record(registry):
    ready = READ.decode(registry).ready()
    registry.add("orders-value", {**ORDER, "fields": [*ORDER["fields"], {"name": "x", "type": "int"}]})
    registry.away = True
    waits, place = [], TopicPartition("orders", 3)

    def sleep(seconds):
        waits.append(seconds)
        registry.away = len(waits) < 3
        said = "waits for the registry: stage decode: schema 2: no answer of the registry"
        assert (steps.waits_for(place), steps.waits_for(TopicPartition("orders", 4))) == (said, "")

    steps = FusedSteps(ready.check().steps, sleep=sleep)
    outcome = steps.run(records([frame(2) + b"\x08\x02", frame(1) + b"\x0a"]))
    assert steps.waits_for(place) == ""
    assert [rows.batch.to_pylist() for rows in outcome.rows] == [[{"id": 4}, {"id": 5}]]
    assert len(waits) == 3
    assert outcome.failures == []


def test_a_schema_that_is_new_is_told_once_for_each_stage_and_only_when_a_value_was_read_by_it(registry):
    steps = FusedSteps(READ.decode(registry, on_error="skip").ready().check().steps)
    steps.run(records([frame(1) + b"\x0a", frame(9) + b"\x0a", b"none"]))
    assert steps.new_schemas == []
    registry.add("orders-value", {**ORDER, "fields": [*ORDER["fields"], {"name": "x", "type": "int"}]})
    for _ in range(2):
        steps.run(records([frame(1) + b"\x0a", frame(2) + b"\x0a\2"]))
    assert steps.new_schemas == [NewSchemaSeen("decode", "2", "schema 1 (orders-value version 1)")]


def test_a_value_that_can_not_be_decoded_names_the_schema(registry):
    with pytest.raises(StageError, match=r"schema 1 .*: id: the value ends before the schema does"):
        FusedSteps(READ.decode(registry).ready().check().steps).run(records([frame(1)]))


def test_protobuf_by_a_text_and_by_a_registry(registry):
    rows = (
        FusedSteps(READ.decode_protobuf(PROTO, message="shop.Order").check().steps)
        .run(records([b"\x08\x05"]))
        .rows
    )
    assert rows[0].batch.to_pylist() == [{"id": 5}]
    number = registry.add("p", PROTO, "PROTOBUF")
    pipeline = READ.decode_protobuf(registry=registry, subject="p", message="shop.Order").ready()
    outcome = FusedSteps(pipeline.check().steps).run(records([frame(number) + b"\0\x08\x06"]))
    assert outcome.rows[0].batch.to_pylist() == [{"id": 6}]


@pytest.mark.parametrize("form", ["AVRO", "PROTOBUF"])
def test_by_a_schema_that_is_given_those_of_the_topics_are_known_where_new_ones_fail(form):
    registry = RegistryInMemory()
    schema = ORDER if form == "AVRO" else 'syntax = "proto3"; message Order { int64 id = 1; }'
    decode, body = (READ.decode_avro, b"\x08") if form == "AVRO" else (READ.decode_protobuf, b"\0\x08\4")
    strict = decode(schema, registry=registry, on_new_schema="fail", on_error="skip")
    with pytest.raises(
        ConfigError, match=r"decode.*: on_new_schema is 'fail', and .* no subject orders-value"
    ):
        strict.ready()
    registry.add("orders-value", schema, form)
    ready = strict.ready()
    registry.add(
        "orders-value", {**ORDER, "doc": "new"} if form == "AVRO" else f"{schema} message M {{ }}", form
    )
    assert ready.ready().stages == ready.stages
    outcome = FusedSteps(pickle.loads(pickle.dumps(ready.check().steps))).run(
        records([frame(1) + body, frame(2) + body])
    )
    assert [rows.batch.to_pylist() for rows in outcome.rows] == [[{"id": 4}]]
    assert [(failed.record, "wasn't known" in failed.reason) for failed in outcome.failures] == [(1, True)]
    pattern = Pipeline.read_kafka(pattern="ord.*", bootstrap_servers="localhost:9092")
    with pytest.raises(ConfigError, match=r"decode_avro: on_new_schema is 'fail', and .* given by a pattern"):
        pattern.decode_avro(ORDER, registry=registry, on_new_schema="fail").ready()


def in_header(guid):
    return [(HEADERS["value"], b"\1" + uuid.UUID(guid).bytes)]


def test_a_frame_in_a_header_is_found_where_a_filter_has_taken_rows_away(registry):
    guid = registry.schemas[0].guid
    pipeline = READ.filter(pc.field("offset") > 100).decode(registry).ready()
    source = records([b"no", b"\x08", frame(1) + b"\x02"], headers=[None, in_header(guid), []])
    outcome = FusedSteps(pipeline.check().steps).run(source)
    assert [rows.batch.to_pylist() for rows in outcome.rows] == [[{"id": 4}, {"id": 1}]]
    assert registry.asked == [], "the GUID of a version travels with the pipeline"


def test_values_by_a_guid_that_is_new_are_read_by_its_schema_or_fail(registry):
    kept, strict = (READ.decode(registry, on_new_schema=what).ready() for what in ("keep", "fail"))
    registry.add("orders-value", {**ORDER, "fields": [{"name": "x", "type": "int"}, *ORDER["fields"]]})
    guid = registry.schemas[1].guid
    source = records([b"\x02\x08"], headers=[in_header(guid)])
    (rows,) = FusedSteps(kept.check().steps).run(source).rows
    assert rows.batch.to_pylist() == [{"id": 4}]
    assert registry.asked == [guid]
    with pytest.raises(StageError, match=f"schema {guid} .*wasn't known"):
        FusedSteps(strict.check().steps).run(source)
