"""The data source over Spark Connect: found by itself, registered by hand, read, streamed and written."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from waiting import slow_s

from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="Spark Connect needs grpcio"),
]

# Spark looks for `pyspark_…` in the folders of sys.path: there an installed package stands, an editable one does not.
REPOSITORY = str(Path(__file__).parents[2])

# A session of Connect and one without can't be in the same process; one server is for both programs.
START = """
import sys
from pyspark.sql import SparkSession

import kafka_actors

servers, source, target, checkpoint, pipeline_source, pipeline_target, dead, exactly, directory = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
"""

SOURCE = """
from pyspark_kafka_actors import DefaultSource


class ByHand(DefaultSource):
    @classmethod
    def name(cls):
        return "by_hand"


spark.dataSource.register(ByHand)
options = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest"}
for name in ("kafka_actors", "by_hand"):
    df = spark.read.format(name).options(**options, subscribe=source).load()
    print(name, df.selectExpr("CAST(value AS STRING)").collect())
to = {"kafka.bootstrap.servers": servers, "topic": target}
df.write.format("kafka_actors").mode("append").options(**to).save()
stream = spark.readStream.format("kafka_actors").options(**options, subscribe=source).load()
values = stream.select("value")
writer = values.writeStream.format("kafka_actors").options(**to, **kafka_actors.spark.transactional(values))
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
print("ended", query.awaitTermination(600))
written = spark.read.format("kafka_actors").options(**options, subscribe=target).load()
print("written", written.count())
df.createOrReplaceTempView("seen")
for refused in (values.repartition(2), values.where("rand() > 0.5"), spark.table("seen")):
    try:
        kafka_actors.spark.transactional(refused)
    except kafka_actors.errors.ConfigError as error:
        print(*str(error).split()[:4])
at_times = writer.option("checkpointLocation", checkpoint + "-2").option("asyncProgressTrackingEnabled", "true")
at_times = at_times.option("_asyncProgressTrackingOverrideSinkSupportCheck", "true")  # Spark asks for this
try:
    at_times.trigger(processingTime="1 second").start().awaitTermination(600)
except Exception as error:
    print("asyncProgressTrackingEnabled: is true" in str(error) or str(error))
"""

# Spark Connect looks data sources up at each action: two DataFrames of one pipeline at a time, then runs of each kind.
PIPELINES = """
import kafka_actors as ka
import pyarrow.compute as pc

print("pipelines")
read = ka.Pipeline.read_kafka(pipeline_source, group_id="g", bootstrap_servers=servers).dead_letters(dead)
decoded = read.decode_json("id BIGINT", on_error="dead_letter")
df = decoded.on_spark(spark).dataframe()
twice = decoded.with_columns(id=pc.field("id") + pc.field("id")).on_spark(spark).dataframe()
print("ids", sorted(row.id for row in df.collect() if row._error is None))
print("twice", sorted(row.id for row in twice.where("_error is null").collect()))
run = decoded.sql("select * from {this} order by id").write_kafka(pipeline_target).on_spark(spark, progress=False)
run.run()
print(run.status().state)
stream = {"checkpoint": directory + "/c", "trigger": "availableNow"}
run = decoded.write_kafka(pipeline_target).on_spark(spark, progress=False, **stream)
run.run()
print(run.status().state, run.status().records)
exact = decoded.write_kafka(exactly, delivery="exactly_once")
exact.on_spark(spark, progress=False, checkpoint=directory + "/exact", trigger="availableNow").run()
try:
    decoded.sql("select distinct id from {this}").write_kafka(exactly, delivery="exactly_once").on_spark(spark).run()
except ka.errors.ConfigError as error:
    print(str(error).partition(": ")[2].partition(" a shuffle")[0])
decoded.write_parquet(directory + "/out").on_spark(spark, progress=False).run()
print("files", sorted(row.id for row in spark.read.parquet(directory + "/out").collect()))
for topic in (pipeline_target, dead, exactly):
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    print(spark.read.format("kafka_actors").options(**options).load().count())
"""


@pytest.fixture(scope="module")
def ran(
    kafka_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> subprocess.CompletedProcess[str]:
    """Runs both programs in one process, after one another: a start of Spark takes longer than they do."""
    directory, produce = tmp_path_factory.mktemp("connect"), Produce(kafka_cluster.bootstrap_servers)
    name = f"connect-{uuid.uuid4().hex[:8]}"
    source, target, *topics = [kafka_cluster.create_topic(f"{name}-{number}") for number in range(6)]
    produce(source, [b"a"])
    produce(topics[0], [b'{"id": 1}', b"bad", b'{"id": 2}'])
    arguments = [kafka_cluster.bootstrap_servers, source, target, str(directory / "checkpoint"), *topics]
    return subprocess.run(
        [sys.executable, "-c", START + SOURCE + PIPELINES, *arguments, str(directory)],
        env={
            **os.environ,
            "PYTHONPATH": REPOSITORY,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=directory,  # Connect leaves files where it runs
        capture_output=True,
        text=True,
        timeout=slow_s(200),
        check=False,
    )


def test_it_is_found_registered_read_streamed_and_written(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.stdout.partition("pipelines\n")[0].splitlines() == [
        "kafka_actors [Row(value='a')]",
        "by_hand [Row(value='a')]",
        "ended True",
        "written 2",
        "transactional: Exchange is a",
        "transactional: Filter has rand(),",
        "transactional: the options of",
        "True",
    ], ran.stderr[-3_000:]


def test_pipelines_run_there(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.stdout.partition("pipelines\n")[2].splitlines() == [
        "ids [1, 2]",
        "twice [2, 4]",
        "finished",
        "finished 3",
        "delivery: Exchange is",
        "files [1, 2]",
        "4",
        "4",
        "2",
    ], ran.stderr[-3_000:]
