"""From history on Spark to live on Ray, with real Spark, Kafka and Ray, whose driver is killed at each arrow."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from backfills.driver import ARROWS, Driver
from waiting import until

import kafka_actors as ka
from kafka_actors.backfill import HandoverPlan
from kafka_actors.base.message import messages_of
from kafka_actors.spark.source.readers import LIMITS
from kafka_actors.testing import KafkaCluster
from kafka_actors.types import TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.ray, pytest.mark.kafka]

LIMIT = 400
HISTORY = 1500
LONG_HISTORY = 8100
"""Micro-batches enough for each kill at one of them to find another that was just planned."""

# The plan is made once, read to its end once, and handed over once: what comes behind these can't be killed there again.
TWENTY = [
    *["asked"] * 2,
    "planned",
    *["batch"] * 7,
    "read",
    *["decided"] * 3,
    "handed over",
    *["starting"] * 5,
]


class Load:
    """Numbered records to the partitions of a topic in turn, from a thread; and a transaction that stays open."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        from confluent_kafka import Producer

        self._cluster = cluster
        self._servers = cluster.bootstrap_servers
        self._producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 5})
        self._transaction = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": f"tx-{topic}",
                "transaction.timeout.ms": 900_000,  # the broker's longest
            }
        )
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.topic = topic
        self.sent: set[str] = set()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def send(self, count: int, topic: str, partitions: int, producer: Any = None) -> None:
        for _ in range(count):
            number = next(self._numbers)
            value = f"{topic} {number}"
            (producer or self._producer).produce(topic, value.encode(), partition=number % partitions)
            self.sent.add(value)
        (producer or self._producer).flush(30)

    def begin_transaction(self) -> None:
        """In partition 0: nothing behind its first record is stable until it ends."""
        self._transaction.init_transactions(30)
        self._transaction.begin_transaction()
        self.send(5, self.topic, 1, self._transaction)

    def end_transaction(self) -> None:
        self._transaction.commit_transaction(30)

    def aborted(self) -> None:
        """A transaction that nobody may see."""
        self._transaction.begin_transaction()
        self._transaction.produce(self.topic, b"aborted", partition=0)
        self._transaction.flush(30)
        self._transaction.abort_transaction(30)

    def start(self) -> None:
        self._thread.start()

    def _work(self) -> None:
        while not self._over.wait(0.2):
            with self._lock:
                self.send(20, self.topic, 3)

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def grow(self) -> None:
        """A partition more, and another topic that the pattern matches; both with records."""
        from confluent_kafka import Producer

        with self._lock:
            self._cluster.add_partitions(self.topic, 4)
            second = f"{self.topic}-second"
            self._cluster.create_topic(second, partitions=1)
            newer = Producer({"bootstrap.servers": self._servers})  # the other one doesn't know the partition
            self.send(8, self.topic, 4, newer)
            self.send(30, second, 1)


class Scene:
    def __init__(self, cluster: KafkaCluster, topic: str, group: str, directory: Path) -> None:
        self.cluster = cluster
        self.group = group
        self.load = Load(cluster, topic)
        self.directory = directory
        self.drivers: list[Driver] = []
        self.told: dict[str, Any] = {
            "pattern": f"{topic}.*",
            "group": group,
            "servers": cluster.bootstrap_servers,
            "limit": LIMIT,
        }

    def driver(self, kill: str | None = None) -> Driver:
        made = Driver(self.directory, kill=kill, seed=len(self.drivers), **self.told)
        self.drivers.append(made)
        return made

    def plan(self) -> HandoverPlan:
        path = self.directory / "checkpoint" / "handover.json"
        return HandoverPlan.from_json(path.read_text(), str(path))

    def killed_at_each(self, arrows: list[str], grow_after: int, history: int = HISTORY) -> None:
        """One driver after the other is killed, with `history` records there at first. After the `grow_after`th there is
        a partition more, and a second topic."""
        load = self.load
        load.send(history, load.topic, 3)
        load.begin_transaction()
        load.send(60, load.topic, 3)
        load.start()
        for number, arrow in enumerate(arrows):
            driver = self.driver(kill=arrow)
            assert driver.wait(90) == -9, f"{arrow}: {driver.log()}"
            if number == grow_after:
                load.grow()
        ends = self.plan().ends
        first = TopicPartition(load.topic, 0)
        assert ends[first] == history // 3, "the last stable offset: before the open transaction"
        assert set(ends) == {TopicPartition(load.topic, p) for p in range(3)}
        load.end_transaction()
        load.aborted()

    def live(self, seen: Callable[[], set[str]]) -> None:
        """A driver that isn't killed, until all that was sent is there."""
        driver = self.driver()

        def all_there() -> bool:
            assert driver.process.poll() is None, driver.log()
            return self.load.sent <= seen()

        time.sleep(3)
        self.load.stop()
        try:
            until(all_there, 100, "all that was sent", pause=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}: {driver.log()}") from None
        assert driver.stop() == 0, driver.log()

    def close(self) -> None:
        self.load.stop()
        for driver in self.drivers:
            driver.kill()


@pytest.fixture
def scene(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str], group_id: str, tmp_path: Path
) -> Iterator[Scene]:
    made = Scene(kafka_cluster, kafka_topic(3, prefix="history"), group_id, tmp_path)
    yield made
    made.close()


def in_files(output: Path) -> Counter[str]:
    if not output.is_dir():
        return Counter()
    return Counter(pq.read_table(output, columns=["value"])["value"].to_pylist())


def in_topic(cluster: KafkaCluster, topic: str) -> Counter[str]:
    found: Counter[str] = Counter()
    with ka.Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        group_id=f"{topic}-{uuid.uuid4()}",
        enable_auto_commit=False,
    ) as consumer:
        ends = sum(cluster.end_offsets(topic).values())
        while sum(found.values()) < ends:
            batch = consumer.poll_batch(timeout_ms=100_000)
            assert batch is not None, f"{sum(found.values())} of {ends}"
            found.update(message.value.decode() for message in messages_of(batch))
    return found


def check_files(
    scene: Scene, arrows: list[str], grow_after: int, history: int = HISTORY, topic: str | None = None
) -> None:
    output = scene.directory / "out"
    scene.told |= {"output": str(output), "topic": topic}
    scene.killed_at_each(arrows, grow_after, history)
    scene.live(lambda: set(in_files(output)))
    found = in_files(output)
    assert found.keys() == scene.load.sent
    assert set(found.values()) == {1}
    schemas = [pq.read_schema(path).remove_metadata() for path in output.glob("[!.]*.parquet")]
    assert all(schema.equals(schemas[0]) for schema in schemas), "files of both engines have the same columns"


@pytest.mark.skipif(not LIMITS, reason="the micro-batches have a limit, which needs Spark 4.2")
def test_files_have_each_record_once_and_a_topic_beside_them_all_though_the_driver_was_killed(
    scene: Scene, kafka_topic: Callable[..., str]
) -> None:
    topic = kafka_topic(2, prefix="out")
    check_files(scene, ["batch", "handed over"], grow_after=0, topic=topic)
    found = in_topic(scene.cluster, topic)
    assert found.keys() == scene.load.sent
    assert sum(count - 1 for count in found.values()) <= LIMIT, "the micro-batch of the kill"


@pytest.mark.slow
@pytest.mark.skipif(not LIMITS, reason="the micro-batches have a limit, which needs Spark 4.2")
def test_files_have_each_record_once_though_the_driver_was_killed_twenty_times(scene: Scene) -> None:
    assert set(TWENTY) == set(ARROWS)
    assert len(TWENTY) == 20
    check_files(scene, TWENTY, grow_after=6, history=LONG_HISTORY)


@pytest.mark.slow
@pytest.mark.skipif(not LIMITS, reason="the micro-batches have a limit, which needs Spark 4.2")
def test_a_topic_has_at_most_one_micro_batch_twice_for_each_of_twenty_kills(
    scene: Scene, kafka_topic: Callable[..., str]
) -> None:
    output = kafka_topic(2, prefix="out")
    scene.told |= {"output": None, "topic": output}
    scene.killed_at_each(TWENTY, grow_after=6, history=LONG_HISTORY)
    scene.live(lambda: set(in_topic(scene.cluster, output)))
    found = in_topic(scene.cluster, output)
    assert found.keys() == scene.load.sent
    twice = sum(count - 1 for count in found.values())
    print(f"{twice} records came twice")
    assert twice <= LIMIT * TWENTY.count("batch")
