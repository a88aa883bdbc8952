"""Keys decoded by a registry's schema: the column that they become, and what is refused."""

import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fakes.records import records
from fakes.registries import RegistryInMemory

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FusedSteps
from kafka_actors.schemas.framing import HEADERS, frame

READ = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092", group_id="g")
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "shop", "type": "string"}]}


@pytest.fixture
def registry():
    made = RegistryInMemory()
    made.add("orders-value", ORDER)
    return made


def test_a_key_becomes_one_more_column(registry):
    number = registry.add("orders-key", KEY)
    pipeline = READ.decode(registry).filter(pc.field("id") != 2).decode_key(registry).write(print).ready()
    assert f"by schema {number} (orders-key version 1)" in pipeline.explain()
    values = [frame(1) + bytes([2 * order]) for order in (1, 2, 3, 4)]
    keys = [frame(number) + b"\2a", b"never read", None, b"\2b"]
    source = records(
        values,
        keys=keys,
        headers=[None, None, None, [(HEADERS["key"], b"\1" + uuid.UUID(registry.schemas[1].guid).bytes)]],
    )
    (rows,) = FusedSteps(pipeline.check().steps).run(source).rows
    assert rows.batch.to_pylist() == [
        {"id": 1, "key": {"shop": "a"}},
        {"id": 3, "key": None},
        {"id": 4, "key": {"shop": "b"}},
    ]
    assert rows.origin.tolist() == [0, 2, 3]


def test_a_key_that_is_no_record_is_the_column_itself_and_one_that_cannot_be_decoded_is_an_error_of_its_record(
    registry,
):
    number = registry.add("orders-key", '"long"')
    pipeline = READ.decode(registry).decode_key(registry, column="shop", on_error="skip").ready()
    source = records([frame(1) + b"\2"] * 3, keys=[frame(number) + b"\x0a", b"x", frame(number)])
    outcome = FusedSteps(pipeline.check().steps).run(source)
    assert [rows.batch.to_pylist() for rows in outcome.rows] == [[{"id": 1, "shop": 5}]]
    assert [(failed.record, failed.stage) for failed in outcome.failures] == [
        (1, "decode_key"),
        (2, "decode_key"),
    ]
    assert outcome.failures[0].reason.startswith("key: the value begins with byte 120")


def test_kafkas_own_key_may_be_taken_the_place_of_and_no_other_column(registry):
    registry.add("orders-key", '"string"')
    own = READ.decode_key(registry).write(print).ready().check()
    assert own.columns.field("key").type == pa.string()
    assert own.columns.names == READ.check().columns.names
    with pytest.raises(
        ConfigError, match=r"decode_key: there is a column 'id' already: name another with column="
    ):
        READ.decode(registry).decode_key(registry, column="id").ready().check()
    with pytest.raises(ConfigError, match=r"decode_key: there is a column 'value' already"):
        READ.decode_key(registry, column="value").ready().check()
    with pytest.raises(ConfigError, match=r"decode_key: column is ''"):
        READ.decode_key(registry, column="")


@pytest.mark.parametrize("on_new_schema", ["keep", "fail"])
def test_other_topics_are_read_by_their_own_schema_though_the_pipeline_was_ready(registry, on_new_schema):
    """Topics of the command line do that to a pipeline that its file has bound already."""
    more = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string"}]}
    number = registry.add("more-value", more)
    for decoded in (
        READ.decode(registry, on_new_schema=on_new_schema),
        READ.decode_avro(more, registry=registry, on_new_schema=on_new_schema),
    ):
        ready = decoded.ready()
        assert ready.reading({"client_id": "c"}).stages == ready.stages
        other = ready.reading({}, topics=["more"]).ready()
        (rows,) = FusedSteps(other.check().steps).run(records([frame(number) + b"\2\2a"])).rows
        assert rows.batch.to_pylist() == [{"id": 1, "note": "a"}]


def test_on_spark_a_keys_schema_has_a_version(registry):
    registry.add("orders-key", KEY)
    READ.decode(registry).decode_key(registry, version=1).write(print).ready().check("spark")
    with pytest.raises(ConfigError, match=r"decode_key: needs version=, a number"):
        READ.decode(registry).decode_key(registry).write(print).ready().check("spark")
