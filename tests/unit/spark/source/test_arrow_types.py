"""Arrow's types as Spark has them."""

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from kafka_actors.errors import ConfigError
from kafka_actors.spark.source.arrow_types import as_spark


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
    "kind",
    [
        pa.uint32(),
        pa.float16(),
        pa.duration("us"),
        pa.timestamp("ns"),
        pa.list_(pa.timestamp("ns", tz="UTC")),
        pa.decimal256(50, 2),
        pa.null(),
    ],
)
def test_types_that_spark_has_not_are_named(kind):
    with pytest.raises(ConfigError, match=r"^s: column '(x|element)' is .*, which Spark doesn't have"):
        as_spark("s", pa.schema({"x": kind}))
