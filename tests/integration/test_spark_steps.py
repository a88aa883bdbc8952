"""Fifty random steps, as Spark's own Kafka source is tested: records come, topics come, grow, go and come again under their
names, the query restarts. Each record that was sent is there once, in the end."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fakes.spark import spark_session, written
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from waiting import at_pace_s, slow_s

from kafka_actors.spark.source.readers import LIMITS
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

STEPS = 50
NAMES = 4


class World:
    """Topics under few names, what was sent to them, and a query that reads all of them by a pattern."""

    def __init__(
        self, spark: SparkSession, cluster: KafkaCluster, produce: Produce, prefix: str, checkpoint: Path
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._produce = produce
        self._names = [f"{prefix}-{number}" for number in range(NAMES)]
        self._pattern = f"{prefix}-.*"
        self._checkpoint = str(checkpoint)
        self._numbers = iter(range(10**9))
        self._partitions: dict[str, int] = {}
        self._out = checkpoint.with_name("out")
        self._deleted = 0
        self.query: StreamingQuery | None = None
        self.sent: dict[str, set[bytes]] = {}
        """By the topics that there are."""
        self.may_be: set[bytes] = set()
        """Records of topics when they were deleted."""
        self.has_been: set[bytes] = set()
        """Records of deleted topics that were read before."""

    # ------------------------------------------------------------ the query

    def start(self, limit: int | None, *, to_the_end: bool = False) -> None:
        options = {
            "kafka.bootstrap.servers": self._cluster.bootstrap_servers,
            "subscribePattern": self._pattern,
            "startingOffsets": "earliest",
            "failOnDataLoss": "false",
            # As long as a task waits for a topic that is gone; and it fails where a broker takes longer.
            "kafkaConsumer.pollTimeoutMs": str(round(1000 * at_pace_s(2))),
            **({} if limit is None or not LIMITS else {"maxOffsetsPerTrigger": str(limit)}),
        }
        stream = self._spark.readStream.format("kafka_actors").options(**options).load()
        trigger: dict[str, Any] = {"availableNow": True} if to_the_end else {"processingTime": "0 seconds"}
        writer = stream.select("value").writeStream.format("parquet").trigger(**trigger)
        self.query = writer.option("checkpointLocation", self._checkpoint).start(str(self._out))

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()
            assert self.query.exception() is None
            self.query = None

    def catch_up(self) -> None:
        deadline = time.monotonic() + slow_s(60)
        while not {value for values in self.sent.values() for value in values} <= set(self.found()):
            assert self.query is not None
            assert self.query.isActive, self.query.exception()
            assert time.monotonic() < deadline, "the query did not catch up"
            time.sleep(0.2)

    def found(self) -> Counter[bytes]:
        """Records in the files of finished micro-batches."""
        files = written(self._out)
        return Counter(pq.read_table(files, columns=["value"])["value"].to_pylist() if files else [])

    # ------------------------------------------------------------ steps

    def add_topic(self, rand: random.Random) -> None:
        free = [name for name in self._names if name not in self.sent]
        if free:
            name, partitions = rand.choice(free), rand.randint(1, 2)
            self._cluster.create_topic(name, partitions=partitions)
            self._partitions[name], self.sent[name] = partitions, set()
            self.add_records(rand)

    def delete_topic(self, rand: random.Random) -> None:
        if len(self.sent) > 1:
            if read_first := self._deleted % 2 == 0:
                self.catch_up()
            self._deleted += 1
            name = rand.choice(sorted(self.sent))
            values = self.sent.pop(name)
            self.may_be |= values
            if read_first:
                self.has_been |= values
            self._cluster.delete_topic(name)

    def add_partitions(self, rand: random.Random) -> None:
        name = rand.choice(sorted(self.sent))
        self._partitions[name] += 1
        self._cluster.add_partitions(name, self._partitions[name])

    def add_records(self, rand: random.Random) -> None:
        name = rand.choice(sorted(self.sent))
        values = [b"%d" % next(self._numbers) for _ in range(rand.randint(1, 40))]
        self._produce(name, values, partition=[rand.randrange(self._partitions[name]) for _ in values])
        self.sent[name].update(values)

    def restart(self, rand: random.Random) -> None:
        self.stop()
        if rand.random() < 0.5:
            self.add_records(rand)
        self.start(rand.choice([None, 5, 50]))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.mark.parametrize("seed", [4, 8])
def test_each_record_is_there_once_after_fifty_random_steps(
    seed: int,
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    kafka_topic: Callable[..., str],
    produce: Produce,
    tmp_path: Path,
) -> None:
    rand = random.Random(seed)
    prefix = kafka_topic(prefix="steps")  # a name that no other test has; the pattern doesn't match it
    world = World(spark, kafka_cluster, produce, prefix, tmp_path / "checkpoint")
    steps = [world.add_records] * 4 + [world.restart] * 2
    steps += [world.add_topic, world.delete_topic] * 2 + [world.add_partitions]
    taken: Counter[str] = Counter()
    try:
        world.add_topic(rand)
        world.start(None)
        for _ in range(STEPS):
            step = rand.choice(steps)
            taken[step.__name__] += 1
            step(rand)
            time.sleep(rand.uniform(0.0, 0.4))
        world.stop()
        for _ in range(
            1 if LIMITS else 2
        ):  # before 4.2 it is one micro-batch: perhaps one that is done again
            world.start(None, to_the_end=True)
            assert world.query is not None
            assert world.query.awaitTermination(slow_s(90))
    finally:
        world.stop()
    assert set(taken) == {step.__name__ for step in steps}
    assert len(world.may_be) > len(world.has_been) > 0
    found = world.found()
    assert {value: count for value, count in found.items() if count > 1} == {}
    still = {value for values in world.sent.values() for value in values}
    assert still - found.keys() == set()
    assert world.has_been - found.keys() == set()
    assert found.keys() - still - world.may_be == set()
