"""The columns: Spark's own, and what a user chooses of them; the options of a table, and that it keeps no secret."""

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from kafka_actors import records
from kafka_actors.config.security import SECRETS
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.spark.source.data_source import KafkaDataSource
from kafka_actors.spark.source.schema import (
    COLUMNS,
    HEADERS,
    WITH_HEADERS,
    columns_of,
    options_of,
    schema,
    with_options,
)


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


TABLE = {"provider": "kafka_actors", "subscribe": "t", "kafka.bootstrap.servers": "a:1"}
LOGIN = 'a.PlainLoginModule required username="u" password="{}";'


def test_options_come_back_with_the_schema_and_those_of_a_query_go_before() -> None:
    schema = with_options(COLUMNS, TABLE)
    assert options_of({}, schema) == TABLE
    assert options_of({"subscribe": "other"}, schema) == {**TABLE, "subscribe": "other"}
    assert columns_of(schema, False) == columns_of(COLUMNS, False)


def test_what_is_no_table_is_left_alone() -> None:
    assert with_options(COLUMNS, {"subscribe": "t"}) is COLUMNS
    assert options_of({"subscribe": "t"}, COLUMNS) == {"subscribe": "t"}
    with pytest.raises(UsageError, match="without columns of its own"):
        options_of({}, COLUMNS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((f"kafka.{field.replace('_', '.')}", "hush") for field in sorted(SECRETS)),
        ("kafka.ssl.truststore.password", "hush"),
        ("kafka.sasl.jaas.config", LOGIN.format("hush")),
        ("schema.registry.basic.auth.user.info", "alice:hush"),
        ("schema.registry.bearer.auth.token", "hush"),
    ],
)
def test_a_secret_that_is_written_out_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="is in plain text") as caught:
        with_options(COLUMNS, {**TABLE, name: value})
    assert caught.value.option == name
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.ssl.key.password", "${env:P}"),
        ("kafka.sasl.jaas.config", LOGIN.format("${file:/run/secret:p}")),
        ("schema.registry.basic.auth.user.info", "${env:SR_KEY}:${env:SR_SECRET}"),
    ],
)
def test_a_reference_may_be_kept(name: str, value: str) -> None:
    assert options_of({}, with_options(COLUMNS, {**TABLE, name: value}))[name] == value
