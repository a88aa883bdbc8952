"""The columns: Spark's own, and what a user chooses of them."""

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from kafka_actors import records
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.spark.source.data_source import KafkaDataSource
from kafka_actors.spark.source.schema import COLUMNS, HEADERS, WITH_HEADERS, columns_of, schema


def test_spark_makes_of_the_schema_the_arrow_types_that_record_batches_have() -> None:
    assert to_arrow_schema(WITH_HEADERS, timezone="UTC") == records.SCHEMA
    assert to_arrow_schema(COLUMNS, timezone="UTC") == pa.schema(list(records.SCHEMA)[:7])


def test_headers_are_there_when_asked_for() -> None:
    assert schema(False).fieldNames() == records.SCHEMA.names[:7]
    assert schema(True).fieldNames() == records.SCHEMA.names


def batch() -> pa.RecordBatch:
    values = {
        "key": [None],
        "value": [b"v"],
        "topic": ["t"],
        "partition": [1],
        "offset": [2],
        "timestamp": [3],
    }
    values |= {"timestampType": [0], "headers": [None]}
    return pa.RecordBatch.from_arrays(
        [pa.array(values[f.name], f.type) for f in records.SCHEMA], schema=records.SCHEMA
    )


def test_fewer_columns_in_another_order() -> None:
    wanted = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
    chosen = columns_of(wanted, False).of(batch())
    assert chosen.to_pylist() == [{"offset": 2, "value": b"v"}]
    assert chosen.schema == to_arrow_schema(wanted, timezone="UTC")


def test_not_null_is_honoured_where_it_is_true() -> None:
    wanted = StructType(
        [StructField("value", BinaryType()), StructField("offset", LongType(), nullable=False)]
    )
    chosen = columns_of(wanted, False).of(batch())
    assert chosen.schema == to_arrow_schema(wanted, timezone="UTC")
    assert chosen.to_pylist() == [{"value": b"v", "offset": 2}]


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (StructField("valeu", BinaryType()), r"^schema: column 'valeu' .*did you mean 'value'\?$"),
        (StructField("xyz", BinaryType()), r"^schema: column 'xyz' .*there are key, value, topic"),
        (
            StructField("value", StringType()),
            r"^schema: column 'value' is string, but the source has binary$",
        ),
        (
            StructField("offset", IntegerType()),
            r"^schema: column 'offset' is int, but the source has bigint$",
        ),
        (StructField("key", BinaryType(), nullable=False), r"^schema: column 'key' is NOT NULL"),
        (HEADERS, r"^includeHeaders: has to be true"),
    ],
)
def test_a_column_that_cannot_be_is_named(field: StructField, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        columns_of(StructType([field]), False)


def test_a_topic_is_never_overwritten() -> None:
    with pytest.raises(UsageError, match=r"use \.mode\('append'\)"):
        KafkaDataSource({}).writer(StructType(), overwrite=True)
