"""A stream whose driver is killed, again and again, at any moment: each record is in the files once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fakes.spark import written
from waiting import slow_s

from kafka_actors.spark.source.readers import LIMITS
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

SCRIPT = """
import sys
from pyspark.sql import SparkSession

servers, topic, directory, limit = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
if limit:
    options["maxOffsetsPerTrigger"] = limit
stream = spark.readStream.format("kafka_actors").options(**options).load()
writer = stream.writeStream.format("parquet").option("checkpointLocation", directory + "/checkpoint")
writer.trigger(availableNow=True).start(directory + "/out").awaitTermination()
"""


def test_each_record_is_written_once_however_often_the_driver_is_killed(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str], produce: Produce, tmp_path: Path
) -> None:
    topic = kafka_topic(3)
    rand = random.Random(7)
    sent = 0
    for _ in range(6):
        produce(topic, [b"%d" % (sent + i) for i in range(2_000)], partition=[i % 3 for i in range(2_000)])
        sent += 2_000
        query = start(kafka_cluster.bootstrap_servers, topic, tmp_path)
        planned = wait_for_a_batch(query, tmp_path / "checkpoint" / "offsets")
        time.sleep(rand.uniform(0.0, 0.6))  # between planning, reading, writing and committing
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(query.pid, signal.SIGKILL)
        query.wait(slow_s(30))
        assert planned
    assert start(kafka_cluster.bootstrap_servers, topic, tmp_path).wait(slow_s(120)) == 0
    found = Counter(pq.read_table(written(tmp_path / "out"), columns=["value"])["value"].to_pylist())
    assert set(found) == {b"%d" % i for i in range(sent)}
    assert set(found.values()) == {1}


def start(servers: str, topic: str, directory: Path) -> subprocess.Popen[bytes]:
    limit = "150" if LIMITS else ""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, servers, topic, str(directory), limit],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the JVM and its Python workers go with it
    )


def wait_for_a_batch(query: subprocess.Popen[bytes], offsets: Path) -> bool:
    """Whether the query planned one more, or ended."""
    before = set(offsets.glob("[0-9]*"))
    deadline = time.monotonic() + slow_s(60)
    while time.monotonic() < deadline:
        if query.poll() is not None or set(offsets.glob("[0-9]*")) - before:
            return True
        time.sleep(0.02)
    return False
