"""`spark.read.format("kafka_actors")` in a real Spark session, against real Kafka."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from fakes.spark import errors_line, spark_session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import AnalysisException
from waiting import slow_s

from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Topic = Callable[..., str]

# What `spark.read.format("kafka")` has, as Spark's documentation gives it.
SPARKS_COLUMNS = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture
def load(spark: SparkSession, kafka_cluster: KafkaCluster) -> Callable[..., DataFrame]:
    """`load(subscribe=…, **{"kafka.x": …})`: a DataFrame of the source, found by its name alone."""

    def make(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("kafka_actors").options(
            **{"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, **options}
        )
        return (reader if schema is None else reader.schema(schema)).load()

    return make


Load = Callable[..., DataFrame]


def rows(df: DataFrame) -> list[dict[str, Any]]:
    found = [row.asDict(recursive=True) for row in df.collect()]
    for row in found:
        for column in ("key", "value"):
            if row.get(column) is not None:
                row[column] = bytes(row[column])
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


# ---------------------------------------------------------------- columns


def test_the_columns_are_those_of_sparks_own_source(load: Load, kafka_topic: Topic) -> None:
    topic = kafka_topic()
    plain = load(subscribe=topic)
    assert plain.dtypes == SPARKS_COLUMNS
    with_headers = load(subscribe=topic, includeHeaders="true")
    assert with_headers.dtypes == [*SPARKS_COLUMNS, ("headers", "array<struct<key:string,value:binary>>")]
    assert all(field.nullable for field in with_headers.schema.fields)
    assert plain.count() == 0


def test_none_is_not_empty_in_keys_values_and_headers(
    load: Load, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic()
    kinds = [None, b"", b"bytes \xff\x00"]
    header_lists = [None, [], *([("h", kind)] for kind in kinds), [("a", b"1"), ("b", None), ("a", b"2")]]
    cases = list(product(kinds, kinds, header_lists))
    keys, values, headers = (list(column) for column in zip(*cases, strict=True))
    now = int(time.time() * 1000)  # wall clock: what a producer stamps
    stamps = [now + i for i in range(len(cases))]
    produce(topic, values, keys=keys, headers=headers, timestamps=stamps)
    expected = [
        {
            "key": key,
            "value": value,
            "topic": topic,
            "partition": 0,
            "offset": offset,
            "timestamp": datetime.fromtimestamp(stamps[offset] / 1000, UTC).replace(tzinfo=None),
            "timestampType": 0,
            # Kafka's records don't tell no headers from an empty list of them.
            "headers": [{"key": k, "value": v} for k, v in header_list] if header_list else None,
        }
        for offset, (key, value, header_list) in enumerate(cases)
    ]
    assert rows(load(subscribe=topic, includeHeaders="true")) == expected
    assert rows(load(subscribe=topic)) == [
        {name: row[name] for name, _ in SPARKS_COLUMNS} for row in expected
    ]


def test_log_append_time_is_the_brokers(load: Load, kafka_topic: Topic, produce: Produce) -> None:
    topic = kafka_topic(config={"message.timestamp.type": "LogAppendTime"})
    before = datetime.now(UTC).replace(tzinfo=None)
    produce(topic, [b"x"] * 10, timestamps=[1_000_000_000_000] * 10)
    found = rows(load(subscribe=topic))
    assert {row["timestampType"] for row in found} == {1}
    assert all(abs((row["timestamp"] - before).total_seconds()) < 120 for row in found)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_of_each_codec_are_read(codec: str, load: Load, kafka_topic: Topic, produce: Produce) -> None:
    topic = kafka_topic(2)
    values = [b'{"id":%d,"country":"de"}' % i for i in range(5_000)]
    produce(topic, values, partition=[i % 2 for i in range(5_000)], compression=codec)
    found = rows(load(subscribe=topic))
    assert [row["value"] for row in found if row["partition"] == 1] == values[1::2]
    assert [row["offset"] for row in found if row["partition"] == 0] == list(range(2_500))


@pytest.mark.spark_versions
def test_a_schema_of_fewer_columns_is_honoured(load: Load, kafka_topic: Topic, produce: Produce) -> None:
    topic = kafka_topic()
    produce(topic, [b"a", None, b"c"])
    df = load("offset bigint NOT NULL, value binary", subscribe=topic)
    assert df.columns == ["offset", "value"]
    assert [(row.offset, row.value) for row in df.orderBy("offset").collect()] == [
        (0, b"a"),
        (1, None),
        (2, b"c"),
    ]


# ---------------------------------------------------------------- many records, many partitions


def test_300_000_records_of_two_topics_each_once(load: Load, kafka_topic: Topic, produce: Produce) -> None:
    first, second = kafka_topic(4, prefix="first"), kafka_topic(2, prefix="second")
    produce(first, (b"%08d" % i for i in range(200_000)), partition=[i % 4 for i in range(200_000)])
    produce(second, (b"%09d" % i for i in range(100_000)), partition=[i % 2 for i in range(100_000)])
    df = load(subscribe=f"{first},{second}")
    found = df.selectExpr("topic", "partition", "offset", "length(value) AS size").groupBy(
        "topic", "partition"
    )
    totals = {
        (row.topic, row.partition): tuple(row)[2:]
        for row in found.agg({"*": "count", "offset": "sum", "size": "sum"})
        .selectExpr("topic", "partition", "`count(1)`", "`sum(offset)`", "`sum(size)`")
        .collect()
    }
    each = 50_000
    offsets = each * (each - 1) // 2
    assert totals == {
        **{(first, p): (each, offsets, 8 * each) for p in range(4)},
        **{(second, p): (each, offsets, 9 * each) for p in range(2)},
    }
    assert df.select("topic", "partition", "offset").distinct().count() == 300_000
    assert df.rdd.getNumPartitions() == 6


@pytest.mark.spark_versions
def test_big_ranges_are_split_and_small_ones_share_a_task(
    load: Load, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(3)
    values = [b"%d" % i for i in range(3_000)]
    produce(topic, values, partition=[i % 3 for i in range(3_000)])
    for options, tasks in (({}, 1), ({"minPartitions": "9"}, 9), ({"maxRecordsPerPartition": "400"}, 9)):
        df = load(subscribe=topic, **options)
        assert df.rdd.getNumPartitions() == tasks
        assert sorted(bytes(row.value) for row in df.select("value").collect()) == sorted(values)


def test_aborted_records_under_read_committed(
    load: Load, kafka_topic: Topic, kafka_cluster: KafkaCluster
) -> None:
    topic = kafka_topic()
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(slow_s(30))
    for i, end in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % i, partition=0)
        producer.flush()
        end(slow_s(30))
    committed = load(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert [row["value"] for row in rows(committed)] == [b"0", b"2"]
    assert [row["value"] for row in rows(load(subscribe=topic))] == [b"0", b"1", b"2", b"3"]


def test_a_dataframe_keeps_its_offsets_and_another_load_sees_more(
    load: Load, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic()
    produce(topic, [b"a"])
    df = load(subscribe=topic)
    assert df.count() == 1
    produce(topic, [b"b"])
    assert df.count() == 1
    assert load(subscribe=topic).count() == 2


def test_a_limit_ends_the_tasks_early_and_the_next_query_runs(
    load: Load, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic()
    produce(topic, (b"%0500d" % i for i in range(100_000)))
    df = load(subscribe=topic)
    for _ in range(3):
        assert [row.offset for row in df.select("offset").limit(5).collect()] == [0, 1, 2, 3, 4]
    assert df.count() == 100_000


def test_a_view_in_sql(
    spark: SparkSession, kafka_cluster: KafkaCluster, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic()
    produce(topic, [b"a", b"b"])
    view = (
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING kafka_actors OPTIONS (subscribe '{topic}', "
        f"`kafka.bootstrap.servers` '{kafka_cluster.bootstrap_servers}')"
    )
    spark.sql(view)
    assert spark.sql("SELECT CAST(value AS STRING), offset FROM orders ORDER BY offset").collect() == [
        ("a", 0),
        ("b", 1),
    ]
    produce(topic, [b"c"])
    assert spark.sql("SELECT count(*) FROM orders").collect() == [(2,)], "the first query fixed the offsets"
    spark.sql(view)
    assert spark.sql("SELECT count(*) FROM orders").collect() == [(3,)]


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"subscribe": "t", "startingOffset": "earliest"},
            "ConfigError: startingoffset: is not an option; did you mean",
        ),
        ({"subscribe": "t", "assign": '{"t":[0]}'}, "ConfigError: subscribe, assign: are given together"),
        (
            {"subscribe": "t", "startingOffsets": "last"},
            "ConfigError: startingOffsets: is 'last': accepts JSON",
        ),
        (
            {"subscribe": "t", "kafka.auto.offset.reset": "latest"},
            "ConfigError: kafka.auto.offset.reset: is not supp",
        ),
        (
            {"subscribe": "t", "kafka.sasl.mechanism": "PLAIN"},
            "ConfigError: kafka.sasl.mechanism: is given, but security_protocol is 'PLAINTEXT'",
        ),
    ],
)
def test_a_wrong_option_is_one_line_at_load(load: Load, options: dict[str, str], says: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        load(**options)
    assert errors_line(caught).startswith(f"kafka_actors.errors.{says}")


def test_what_only_a_stream_may_have_is_one_line_at_the_first_action(load: Load) -> None:
    df = load(subscribe="t", startingOffsets="latest")
    with pytest.raises(AnalysisException) as caught:
        df.count()
    assert "startingOffsets: can't be 'latest' in a batch read" in errors_line(caught)


def test_an_unknown_topic_is_one_line_at_the_first_action(load: Load) -> None:
    with pytest.raises(AnalysisException) as caught:
        load(subscribe="not-there", **{"fetchOffset.retryIntervalMs": "10"}).count()
    assert errors_line(caught).endswith(
        "ConfigError: subscribe: there is no topic 'not-there' in the cluster"
    )


def test_lost_records_are_one_line_with_topic_partition_and_offset(
    load: Load, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster
) -> None:
    topic = kafka_topic()
    produce(topic, [b"%d" % i for i in range(10)])
    kafka_cluster.delete_records(topic, 0, 4)
    options = {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":1}}}}'}
    with pytest.raises(AnalysisException) as caught:
        load(**options).count()
    assert f"DataLossError: {topic}-0 at offset 1: " in errors_line(caught)
    assert [row["offset"] for row in rows(load(**options, failOnDataLoss="false"))] == list(range(4, 10))


def test_an_error_in_a_task_is_one_line(
    load: Load, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster
) -> None:
    topic = kafka_topic()
    produce(topic, [b"%d" % i for i in range(10)])
    df = load(subscribe=topic)
    planned = df.rdd  # fixes the ranges; the tasks run later
    assert planned.getNumPartitions() == 1
    kafka_cluster.delete_records(topic, 0, 4)
    with pytest.raises(Exception, match=r"PYTHON_EXCEPTION|Python worker") as caught:
        planned.count()
    assert f"{topic}-0 at offset 0: offset out of range" in str(caught.value)
    assert "reading.py" not in str(
        caught.value
    )  # what Spark shows of the traceback ends where Spark called us


# ---------------------------------------------------------------- how Spark finds it


def test_the_package_that_spark_looks_up_imports_little() -> None:
    """A failing import there would hide every other data source, and all look-ups pay for a slow one."""
    import subprocess

    script = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_kafka_actors as p; "
    )
    script += "print(p.DefaultSource.name(), *sorted(m for m in set(sys.modules) - before if 'kafka' in m or '.' not in m))"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert out[0] == "kafka_actors"
    assert set(out[1:]) == {
        "kafka_actors",
        "kafka_actors.errors",
        "kafka_actors.lazy",
        "kafka_actors.spark",
        "kafka_actors.spark.source",
        "kafka_actors.spark.python_worker",
        "kafka_actors.spark.source.data_source",
        "pyspark_kafka_actors",
    }


def test_the_example_runs(kafka_cluster: KafkaCluster, kafka_topic: Topic, produce: Produce) -> None:
    import subprocess

    topic = kafka_topic()
    produce(
        topic,
        [b'{"country":"de","amount":2.5}', b'{"country":"de","amount":1.5}', b'{"country":"us","amount":1}'],
    )
    example = Path(__file__).parents[2] / "examples" / "spark_batch.py"
    done = subprocess.run(
        [sys.executable, str(example), kafka_cluster.bootstrap_servers, topic],
        capture_output=True,
        text=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=example.parents[1],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "|     de|    4.0|" in done.stdout
    assert "|     us|    1.0|" in done.stdout


# ---------------------------------------------------------------- filters, tables


@pytest.mark.spark_versions
def test_filters_narrow_what_is_fetched_for_a_reader_that_asks(
    spark: SparkSession, load: Load, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(3)
    now = int(time.time() * 1000)
    stamps = [now + 1_000 * (i // 3) for i in range(300)]
    produce(topic, [b"%d" % i for i in range(300)], partition=[i % 3 for i in range(300)], timestamps=stamps)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        df = load(subscribe=topic, pushFilters="true", maxRecordsPerPartition="10")
        assert df.rdd.getNumPartitions() == 30
        late = datetime.fromtimestamp((now + 95_000) / 1000, UTC)
        for condition, tasks, rows_left in (
            ("partition = 1", 10, 100),
            ("partition IN (0, 2) AND offset >= 80", 4, 40),
            ("offset BETWEEN 5 AND 14 AND partition != 1", 3, 20),
            (f"timestamp >= TIMESTAMP '{late:%Y-%m-%d %H:%M:%S.%f}'", 3, 15),
            ("offset < 0", 1, 0),
            ("timestamp >= TIMESTAMP '1969-12-31 23:59:59.999Z'", 30, 300),
            ("timestamp > TIMESTAMP '1900-01-01 00:00:00Z'", 30, 300),
        ):
            left = load(subscribe=topic, pushFilters="true", maxRecordsPerPartition="10").where(condition)
            assert (left.count(), left.rdd.getNumPartitions()) == (rows_left, tasks), condition
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert (
        load(subscribe=topic).where("partition = 1").count() == 100
    )  # one that doesn't ask, with the setting off


@pytest.mark.spark_versions
def test_a_table_of_the_catalog(
    spark: SparkSession, kafka_cluster: KafkaCluster, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic()
    produce(topic, [b"a", b"b"])
    spark.sql(
        f"CREATE TABLE orders_log USING kafka_actors OPTIONS (subscribe '{topic}', "
        f"`kafka.bootstrap.servers` '{kafka_cluster.bootstrap_servers}')"
    )
    try:
        assert spark.table("orders_log").dtypes == SPARKS_COLUMNS
        assert spark.sql("SELECT CAST(value AS STRING) FROM orders_log ORDER BY offset").collect() == [
            ("a",),
            ("b",),
        ]
        produce(topic, [b"c"])
        assert spark.sql("SELECT count(*) FROM orders_log").collect() == [(3,)], "each query asks anew"
        assert spark.sql("SELECT * FROM orders_log WITH (`endingTimestamp` '1')").count() == 0
        stream = spark.readStream.option("startingOffsets", "earliest").table("orders_log").select("offset")
        query = stream.writeStream.format("memory").queryName("from_table").trigger(once=True).start()
        assert query.awaitTermination(slow_s(60))
        assert spark.table("from_table").count() == 3
    finally:
        spark.sql("DROP TABLE orders_log")
    with pytest.raises(AnalysisException) as caught:
        spark.sql(
            "CREATE TABLE secret_log USING kafka_actors OPTIONS (subscribe 't', `kafka.bootstrap.servers` 'a:1', "
            "`kafka.security.protocol` 'SASL_PLAINTEXT', `kafka.sasl.mechanism` 'PLAIN', "
            "`kafka.sasl.plain.username` 'u', `kafka.sasl.plain.password` 'hush')"
        )
    assert (
        "kafka.sasl.plain.password: is in plain text, and a catalog shows a table's options"
        in errors_line(caught)
    )
    assert "hush" not in str(caught.value)
