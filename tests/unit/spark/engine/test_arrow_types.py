"""Arrow's types as Spark has them, and a pipeline's options as its source has them."""

import pyarrow as pa
import pytest

import kafka_actors as ka
from kafka_actors.errors import ConfigError

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from kafka_actors.spark.engine.arguments import source_options
from kafka_actors.spark.engine.arrow_types import as_spark
from kafka_actors.spark.engine.pipeline_source import SourcePlan

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


def test_a_plan_for_spark_shows_no_password():
    plan = SourcePlan("orders", None, source_options(READ.source))
    assert "sesame" in plan.options["kafka.sasl.plain.password"]
    assert "sesame" not in repr(plan)
