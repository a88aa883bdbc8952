"""The data source over Spark Connect: found by itself, registered by hand, read, streamed and written."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
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

# A session of Connect and one without can't be in the same process.
SCRIPT = """
import sys
from pyspark.sql import SparkSession
from pyspark_kafka_actors import DefaultSource

servers, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()


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
writer = stream.select("value").writeStream.format("kafka_actors").options(**to)
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
print("ended", query.awaitTermination(90))
written = spark.read.format("kafka_actors").options(**options, subscribe=target).load()
print("written", written.count())
"""

# Spark Connect looks data sources up at each action: two DataFrames of one pipeline at a time, then runs of each kind.
PIPELINES = """
import sys
import kafka_actors as ka
import pyarrow.compute as pc
from pyspark.sql import SparkSession

servers, source, target, dead, directory = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
read = ka.Pipeline.read_kafka(source, group_id="g", bootstrap_servers=servers).dead_letters(dead)
decoded = read.decode_json("id BIGINT", on_error="dead_letter")
df = decoded.on_spark(spark).dataframe()
twice = decoded.with_columns(id=pc.field("id") + pc.field("id")).on_spark(spark).dataframe()
print("ids", sorted(row.id for row in df.collect() if row._error is None))
print("twice", sorted(row.id for row in twice.where("_error is null").collect()))
run = decoded.sql("select * from {this} order by id").write_kafka(target).on_spark(spark, progress=False)
run.run()
print(run.status().state)
stream = {"checkpoint": directory + "/c", "trigger": "availableNow"}
run = decoded.write_kafka(target).on_spark(spark, progress=False, **stream)
run.run()
print(run.status().state, run.status().records)
decoded.write_parquet(directory + "/out").on_spark(spark, progress=False).run()
print("files", sorted(row.id for row in spark.read.parquet(directory + "/out").collect()))
for topic in (target, dead):
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    print(spark.read.format("kafka_actors").options(**options).load().count())
"""


def run(script: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": REPOSITORY,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=directory,  # Connect leaves files where it runs
        capture_output=True,
        text=True,
        timeout=slow_s(200),
        check=False,
    )


def test_it_is_found_registered_read_streamed_and_written(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str], produce: Produce, tmp_path: Path
) -> None:
    source, target = kafka_topic(prefix="source"), kafka_topic(prefix="target")
    produce(source, [b"a"])
    done = run(SCRIPT, tmp_path, kafka_cluster.bootstrap_servers, source, target, str(tmp_path / "c"))
    assert done.stdout.splitlines() == [
        "kafka_actors [Row(value='a')]",
        "by_hand [Row(value='a')]",
        "ended True",
        "written 2",
    ], done.stderr[-3_000:]


def test_pipelines_run_there(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str], produce: Produce, tmp_path: Path
) -> None:
    topics = [kafka_topic(prefix=prefix) for prefix in ("source", "target", "dead")]
    produce(topics[0], [b'{"id": 1}', b"bad", b'{"id": 2}'])
    done = run(PIPELINES, tmp_path, kafka_cluster.bootstrap_servers, *topics, str(tmp_path))
    assert done.stdout.splitlines() == [
        "ids [1, 2]",
        "twice [2, 4]",
        "finished",
        "finished 3",
        "files [1, 2]",
        "4",
        "3",
    ], done.stderr[-3_000:]
