"""The data source over Spark Connect: found by itself, registered by hand, read, streamed and written."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(300),
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


def test_it_is_found_registered_read_streamed_and_written(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str], produce: Produce, tmp_path: Path
) -> None:
    source, target = kafka_topic(prefix="source"), kafka_topic(prefix="target")
    produce(source, [b"a"])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, kafka_cluster.bootstrap_servers, source, target, str(tmp_path / "c")],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": REPOSITORY,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=tmp_path,  # Connect leaves files where it runs
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "kafka_actors [Row(value='a')]",
        "by_hand [Row(value='a')]",
        "ended True",
        "written 2",
    ], done.stderr[-3_000:]
