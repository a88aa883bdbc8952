"""`df.write.format("kafka_actors")` and `writeStream` in a real Spark session, against real Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from fakes.spark import errors_line, spark_session
from pace import this_run
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.utils import AnalysisException
from waiting import slow_s

from kafka_actors.errors import ConfigError
from kafka_actors.spark import transactional
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Topic = Callable[..., str]
HEADERS = "headers array<struct<key:string,value:binary>>"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture
def write(kafka_cluster: KafkaCluster) -> Callable[..., None]:
    """`write(df, topic=…, **{"kafka.x": …})`."""

    def save(df: DataFrame, mode: str | None = "append", **options: str) -> None:
        writer = df.write.format("kafka_actors").options(
            **{"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, **options}
        )
        (writer if mode is None else writer.mode(mode)).save()

    return save


@pytest.fixture
def log(kafka_cluster: KafkaCluster) -> Iterator[Callable[..., list[Any]]]:
    """`log(topic, partition)`: all of its records, as a client that is not ours reads them."""
    consumer = Consumer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "group.id": "unused"})

    def read(topic: str, partition: int = 0) -> list[Any]:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=slow_s(10))
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[Any] = []
        while not found or found[-1].offset() < end - 1:
            message = consumer.poll(slow_s(10))
            assert message is not None
            assert message.error() is None
            found.append(message)
        return found

    yield read
    consumer.close()


Write = Callable[..., None]
Log = Callable[..., list[Any]]


def records_of(spark: SparkSession, topic: str, kafka_cluster: KafkaCluster) -> DataFrame:
    """All of a topic, as a stream."""
    stream = spark.readStream.format("kafka_actors").option("subscribe", topic)
    stream = stream.option("kafka.bootstrap.servers", kafka_cluster.bootstrap_servers)
    return stream.option("startingOffsets", "earliest").load()


def into(topic: str, stream: DataFrame, checkpoint: Path, kafka_cluster: KafkaCluster) -> DataStreamWriter:
    """A query that writes a stream to a topic, not started yet."""
    writer = stream.writeStream.format("kafka_actors").option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", kafka_cluster.bootstrap_servers)
    return writer.option("checkpointLocation", str(checkpoint))


@pytest.mark.spark_versions
def test_all_columns_arrive_as_they_are(
    spark: SparkSession, write: Write, log: Log, kafka_topic: Topic
) -> None:
    topic = kafka_topic(2)
    rows = [
        (b"k", b"v", topic, 1, [("a", b"1"), ("b", None), ("a", b"")]),
        (None, b"", topic, 1, None),
        (b"", None, topic, 1, []),
    ]
    schema = f"key binary, value binary, topic string, partition int, {HEADERS}, id int"
    write(spark.createDataFrame([(*row, 7) for row in rows], schema).coalesce(1))
    found = [(m.key(), m.value(), m.topic(), m.partition(), m.headers()) for m in log(topic, 1)]
    assert found == [(*row[:4], row[4] or None) for row in rows]


def test_text_is_sent_as_utf_8_and_the_option_topic_wins(
    spark: SparkSession, write: Write, log: Log, kafka_topic: Topic
) -> None:
    topic = kafka_topic()
    df = spark.createDataFrame([("ключ", "wert ü", "elsewhere")], "key string, value string, topic string")
    write(df, topic=topic, **{"kafka.compression.type": "zstd"})
    [message] = log(topic)
    assert (message.key().decode(), message.value().decode()) == ("ключ", "wert ü")


def test_200_000_rows_of_many_tasks_each_once_and_read_back(
    spark: SparkSession, write: Write, kafka_topic: Topic, kafka_cluster: KafkaCluster
) -> None:
    topic = kafka_topic(4)
    df = spark.range(200_000).selectExpr("CAST(id % 97 AS STRING) AS key", "CAST(id AS STRING) AS value")
    write(df.repartition(4), topic=topic)
    options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribe": topic}
    back = spark.read.format("kafka_actors").options(**options).load()
    numbers = back.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id", "partition", "key")
    assert numbers.agg({"id": "sum"}).first()[0] == sum(range(200_000))
    assert numbers.select("id").distinct().count() == back.count() == 200_000
    assert numbers.select("key", "partition").distinct().count() == 97  # a key has one partition


def test_keys_go_where_javas_partitioner_sends_them(
    spark: SparkSession, write: Write, log: Log, kafka_topic: Topic, produce: Produce
) -> None:
    ours, theirs = kafka_topic(5, prefix="ours"), kafka_topic(5, prefix="theirs")
    keys = [f"key-{i}" for i in range(200)]
    write(spark.createDataFrame([(k, k) for k in keys], "key string, value string").coalesce(1), topic=ours)
    produce(theirs, keys, keys=keys, config={"partitioner": "murmur2_random"})
    for p in range(5):
        assert [m.key() for m in log(ours, p)] == [m.key() for m in log(theirs, p)]


@pytest.mark.spark_versions
def test_a_stream_from_topic_to_topic_writes_each_row_once(
    spark: SparkSession,
    log: Log,
    kafka_topic: Topic,
    produce: Produce,
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
) -> None:
    source, target = kafka_topic(2, prefix="source"), kafka_topic(1, prefix="target")

    def run() -> None:
        df = records_of(spark, source, kafka_cluster).selectExpr("key", "value")
        writer = into(target, df, tmp_path / "checkpoint", kafka_cluster)
        assert writer.trigger(availableNow=True).start().awaitTermination(slow_s(90))

    produce(source, [b"%d" % i for i in range(50)], partition=[i % 2 for i in range(50)])
    run()
    produce(source, [b"50"])
    run()
    assert sorted(int(m.value()) for m in log(target)) == list(range(51))


def test_an_aggregation_is_written_whole_at_each_trigger_as_spark_allows_a_python_sink(
    spark: SparkSession,
    log: Log,
    kafka_topic: Topic,
    produce: Produce,
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
) -> None:
    source, target = kafka_topic(prefix="source"), kafka_topic(prefix="target")
    produce(source, [b"a", b"b", b"a"])
    counts = records_of(spark, source, kafka_cluster).groupBy("value").count()
    rows = counts.selectExpr("value AS key", "CAST(count AS STRING) AS value")

    def run(mode: str) -> None:
        writer = into(target, rows, tmp_path / mode, kafka_cluster).outputMode(mode)
        assert writer.trigger(availableNow=True).start().awaitTermination(slow_s(90))

    run("complete")
    assert sorted((m.key(), m.value()) for m in log(target)) == [(b"a", b"2"), (b"b", b"1")]
    with pytest.raises(Exception, match="does not support Update mode"):
        run("update")


def test_spark_refuses_asynchronous_progress_for_the_sink_unless_it_is_told_not_to(
    spark: SparkSession,
    log: Log,
    kafka_topic: Topic,
    produce: Produce,
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
) -> None:
    source, target = kafka_topic(prefix="source"), kafka_topic(prefix="target")
    produce(source, [b"a", b"b"])
    df = records_of(spark, source, kafka_cluster).select("value")
    writer = into(target, df, tmp_path / "c", kafka_cluster).trigger(processingTime="50 milliseconds")
    writer = writer.option("asyncProgressTrackingEnabled", "true")
    with pytest.raises(Exception, match="does not support async progress tracking"):
        writer.start()
    query = writer.option("_asyncProgressTrackingOverrideSinkSupportCheck", "true").start()
    query.processAllAvailable()
    query.stop()
    assert [m.value() for m in log(target)] == [b"a", b"b"]


# ---------------------------------------------------------------- errors


def test_what_was_not_delivered_is_one_line_with_topic_and_partition(
    spark: SparkSession, write: Write, kafka_topic: Topic
) -> None:
    topic = kafka_topic(config={"max.message.bytes": 1000})
    df = spark.createDataFrame([(b"x" * 5_000,)], "value binary")
    with pytest.raises(Exception, match="not delivered") as caught:
        write(df, topic=topic)
    assert "1 record was not delivered: MESSAGE_TOO_LARGE (10)" in str(caught.value)
    assert f"for {topic}-0" in str(caught.value)
    assert "writing.py" not in str(caught.value)


@pytest.mark.parametrize(
    ("row", "schema", "says"),
    [
        (("v", None), "value string, topic string", "column 'topic' is null in a row"),
        (("v", 9), "value string, partition int", "has no partition 9: it has 1, from 0 to 0"),
    ],
)
def test_a_row_that_goes_nowhere_is_named(
    row: tuple[object, ...], schema: str, says: str, spark: SparkSession, write: Write, kafka_topic: Topic
) -> None:
    options = {} if "topic" in schema else {"topic": kafka_topic()}
    with pytest.raises(Exception, match=says) as caught:
        write(spark.createDataFrame([row], schema), **options)
    assert "Failed to commit" in str(caught.value), "no task raised, which would be tried again"


def test_a_wrong_option_column_or_mode_is_one_line(
    spark: SparkSession, write: Write, kafka_topic: Topic
) -> None:
    df = spark.createDataFrame([("v",)], "value string")
    for options, says in (
        ({}, "ConfigError: topic: is missing"),
        (
            {"topic": "t", "kafka.transactional.id": "x"},
            "ConfigError: kafka.transactional.id: is not supported",
        ),
        ({"topic": "t", "mode": "overwrite"}, "UsageError: a topic can't be overwritten"),
    ):
        with pytest.raises(AnalysisException) as caught:
            write(df, **options)
        assert errors_line(caught).startswith(f"kafka_actors.errors.{says}")
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        write(df, mode=None, topic="t")  # Spark asks no Python source: .mode("append") has to be said


def test_a_topic_that_is_not_there_is_named_before_anything_is_written(
    spark: SparkSession,
    write: Write,
    kafka_topic: Topic,
    produce: Produce,
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
) -> None:
    started: list[int] = []
    df = spark.createDataFrame([("v",)], "value string")
    with pytest.raises(AnalysisException) as caught:
        write(df.mapInPandas(lambda rows: started.append(1) or rows, df.schema), topic="misspelt")
    assert "the option topic's topic is not there on " in errors_line(caught)
    assert "for misspelt: " in errors_line(caught)
    source = kafka_topic(prefix="source")
    produce(source, [b"a"])
    stream = into(
        "misspelt", records_of(spark, source, kafka_cluster).select("value"), tmp_path / "c", kafka_cluster
    )
    began = time.monotonic()
    with pytest.raises(Exception, match="is not there on"):
        stream.trigger(availableNow=True).start().awaitTermination(slow_s(60))
    assert this_run().quiet_s(began, time.monotonic()) < 40


def test_what_a_broker_refuses_for_good_is_not_tried_again(
    spark: SparkSession, write: Write, log: Log, kafka_topic: Topic
) -> None:
    """A task that raises is tried four times: the sound rows beside it would be written four times."""
    topic = kafka_topic(config={"max.message.bytes": 1000})
    sound = kafka_topic()
    rows = [("v", sound), ("x" * 5_000, topic), ("v", "misspelt")]
    for bad in rows[1:]:
        df = spark.createDataFrame([rows[0], bad], "value string, topic string").coalesce(1)
        with pytest.raises(Exception, match=r"MESSAGE_TOO_LARGE|there is no such topic") as caught:
            write(df)
        assert "Failed to commit" in str(caught.value)
    assert len(log(sound)) <= 2


# ---------------------------------------------------------------- in transactions


@pytest.mark.spark_versions
def test_plans_that_may_deal_rows_to_other_tasks_are_refused_by_the_operators_name(
    spark: SparkSession, kafka_cluster: KafkaCluster
) -> None:
    stream = records_of(spark, "orders", kafka_cluster)
    named = stream.selectExpr("cast(value as string) as value", "timestamp")
    batch = spark.createDataFrame([("a", 1)], "value string, n int")
    taken = [
        stream.where("partition = 1").select("value"),
        named.union(named)
        .withWatermark("timestamp", "1 minute")
        .selectExpr("explode(split(value, ',')) as value"),
        named.mapInArrow(lambda batches: batches, "value string, timestamp timestamp"),
        batch.where("n > 0"),
        spark.range(10).selectExpr("cast(id as string) as value"),
    ]
    for df in taken:
        assert transactional(df)["transactional"] == "true"
    refused = {
        "Exchange": [
            named.repartition(3),
            named.groupBy("value").count(),
            named.dropDuplicates(["value"]),
            batch.groupBy("value").count(),
            batch.sort("n"),
        ],
        "Coalesce": [named.coalesce(1), batch.coalesce(1)],
        "StreamingRelation of rate": [spark.readStream.format("rate").load()],
        "Filter has rand()": [named.where("rand() > 0.5")],
        "Sample": [batch.sample(0.5)],
    }
    for name, dfs in refused.items():
        for df in dfs:
            with pytest.raises(ConfigError) as caught:
                transactional(df)
            assert str(caught.value).startswith(f"transactional: {name}")
    limits = [named.limit(3), batch.limit(3), batch.sort("n").limit(3)]
    joins = [named.join(batch, "value"), batch.crossJoin(batch.select("n"))]
    for df in limits + joins:
        with pytest.raises(
            ConfigError, match=r"^transactional: \S*(Limit|TakeOrdered|Join|CartesianProduct|Exchange)"
        ):
            transactional(df)


def test_each_write_within_foreach_batch_is_one_of_its_own(
    spark: SparkSession,
    kafka_topic: Topic,
    kafka_cluster: KafkaCluster,
    produce: Produce,
    tmp_path: Path,
    log: Log,
) -> None:
    source, target = kafka_topic(1), kafka_topic(1)
    produce(source, [b"a", b"b"])
    brokers = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers}

    def twice(df: DataFrame, number: int) -> None:
        rows = df.select("value")
        for _ in range(2):
            writer = rows.write.format("kafka_actors").mode("append").options(**brokers, topic=target)
            writer.options(**transactional(rows)).save()

    query = records_of(spark, source, kafka_cluster).writeStream.foreachBatch(twice)
    query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    read = spark.read.format("kafka_actors").options(**brokers, subscribe=target).load()
    assert sorted(bytes(row.value) for row in read.collect()) == [b"a", b"a", b"b", b"b"]


def test_a_transaction_longer_than_the_brokers_allow_is_refused_with_the_option(
    write: Write, spark: SparkSession, kafka_topic: Topic
) -> None:
    df = spark.createDataFrame([("a",)], "value string")
    with pytest.raises(PySparkException) as caught:
        write(df, topic=kafka_topic(1), **transactional(df), **{"kafka.transaction.timeout.ms": "900001"})
    said = errors_line(caught)
    assert "transaction_timeout_ms (900001) is beyond the brokers' transaction.max.timeout.ms" in said
