"""Arrow's types as Spark has them, and the rows that its source gives."""

import uuid

import pyarrow as pa
import pytest
from fakes.records import records

import kafka_actors as ka
from kafka_actors.errors import ConfigError

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from kafka_actors.on_spark.plan import SparkPlan, fused_of, rows_for_spark, source_options
from kafka_actors.on_spark.types import as_spark

READ = ka.Pipeline.read_kafka(
    "orders",
    group_id="g",
    bootstrap_servers=["a:1", "b:2"],
    sasl_mechanism="PLAIN",
    sasl_plain_username="u",
    sasl_plain_password="sesame",
    security_protocol="SASL_PLAINTEXT",
    isolation_level="read_committed",
    start_timeout_s=5,
)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (pa.large_string(), pa.string()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.binary(4), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ms", tz="Europe/Berlin"), pa.timestamp("us", tz="UTC")),
        (pa.timestamp("s"), pa.timestamp("us")),
        (
            pa.large_list(pa.field("x", pa.large_string(), False)),
            pa.list_(pa.field("element", pa.string(), False)),
        ),
        (pa.struct({"a": pa.large_binary()}), pa.struct({"a": pa.binary()})),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int32())),
        (pa.decimal128(10, 2), pa.decimal128(10, 2)),
    ],
)
def test_a_type_is_what_spark_makes_of_it_and_nothing_else(kind, wanted):
    made = as_spark("s", pa.schema({"x": kind}))
    assert made.field("x").type == wanted
    assert to_arrow_schema(from_arrow_schema(made), timezone="UTC").equals(made)


@pytest.mark.parametrize(
    "kind", [pa.uint32(), pa.float16(), pa.duration("us"), pa.decimal256(50, 2), pa.null()]
)
def test_types_that_spark_has_not_are_named(kind):
    with pytest.raises(ConfigError, match=r"^s: column 'x' is .*, which Spark has not"):
        as_spark("s", pa.schema({"x": kind}))


def test_the_options_of_the_source_are_the_pipelines_as_text():
    assert source_options(READ.source) == {
        "subscribe": "orders",
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.plain.username": "u",
        "kafka.sasl.plain.password": "sesame",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
    }


def plan(pipeline, kafka=False):
    checked = pipeline.check("spark")
    return SparkPlan(uuid.uuid4().hex, pipeline, checked.steps, checked.columns, kafka, {})


def test_failed_records_are_rows_with_nothing_but_the_error():
    pipeline = READ.decode_json("id BIGINT NOT NULL, tags ARRAY<STRING>", on_error="dead_letter")
    made = plan(pipeline, kafka=True)
    schema = made.schema()
    assert schema.names == ["id", "tags", "_kafka", "_error"]
    assert schema.field("id").nullable, "there is none in the row of an error"
    source = records([b'{"id": 1, "tags": ["a"]}', b"x"], keys=[b"k", b"l"], headers=[None, [("h", b"1")]])
    good, bad = rows_for_spark(made, fused_of(made), schema, source)
    assert good.schema == bad.schema == schema
    (row,) = good.to_pylist()
    assert (row["id"], row["tags"], row["_kafka"]["offset"], row["_error"]) == (1, ["a"], 100, None)
    (row,) = bad.to_pylist()
    assert (row["id"], row["tags"], row["_kafka"]["offset"]) == (None, None, 101)
    assert row["_error"] == {
        "stage": "decode_json",
        "reason": "JSON is malformed: invalid character (byte 0)",
        "key": b"l",
        "value": b"x",
        "headers": [{"key": "h", "value": b"1"}],
        "topic": "orders",
        "partition": 3,
        "offset": 101,
    }


def test_without_dead_letters_the_columns_are_the_pipelines():
    made = plan(READ.decode_json("id BIGINT NOT NULL", on_error="skip"))
    assert made.schema() == pa.schema([pa.field("id", pa.int64(), False)])
    (batch,) = rows_for_spark(made, fused_of(made), made.schema(), records([b'{"id": 1}', b"x"]))
    assert batch.to_pydict() == {"id": [1]}


def test_classes_are_made_once_for_a_plan_in_a_process():
    made = plan(READ.raw())
    assert fused_of(made) is fused_of(made)
