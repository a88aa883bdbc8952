"""Transactional writes of Spark: the driver is killed at each step between the first task's EndTxn and the commit log, a checkpoint is an
older copy; whoever reads with `read_committed` has each row once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fakes.spark_faults import LOGGED, SCRIPT, STEPS
from waiting import slow_s, until, until_ended

import kafka_actors as ka
from kafka_actors.cli.main import run_command_line
from kafka_actors.config import ProducerConfig, build
from kafka_actors.spark.source.machines.task_markers import (
    PREFIX,
    TaskMarker,
    TaskName,
    WriteName,
    is_marker_group,
)
from kafka_actors.spark.source.task_transaction import TaskProducer, TaskTransaction, task_producer
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PARTITIONS, EACH = 3, 600
TESTS = Path(__file__).parents[1]


class Copy:
    """A query that copies a topic, run by one driver after another from one checkpoint; `read` is what readers of the target see."""

    def __init__(
        self, cluster: KafkaCluster, topic: Callable[..., str], produce: Produce, directory: Path
    ) -> None:
        self._cluster = cluster
        self._produce = produce
        self._directory = directory
        self.source, self.target = topic(PARTITIONS), topic(PARTITIONS)
        self.checkpoint = directory / "checkpoint"
        self.written = 0

    def fill(self) -> None:
        values = [b"%d" % (self.written + number) for number in range(EACH)]
        self._produce(self.source, values, partition=[number % PARTITIONS for number in range(EACH)])
        self.written += EACH

    def start(self, step: str = "", batch: int = 0) -> subprocess.Popen[bytes]:
        words = self._directory / f"words-{batch}-{step}"
        words.mkdir(exist_ok=True)
        told = {"STEP": step, "BATCH": str(batch), "TASKS": str(PARTITIONS), "DIRECTORY": str(words)}
        path = os.pathsep.join(filter(None, [str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH")]))
        with (self._directory / "log").open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    SCRIPT,
                    self._cluster.bootstrap_servers,
                    self.source,
                    self.target,
                    str(self.checkpoint),
                ],
                env={
                    **os.environ,
                    **{f"DYING_{name}": value for name, value in told.items()},
                    "PYTHONPATH": path,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def dies(self, step: str, batch: int) -> Path:
        """Has a driver end what the one before left open, and die in its next micro-batch. Returns the directory of its tasks."""
        self.fill()
        driver = self.start(step, batch)
        if step == LOGGED:
            logged = self.checkpoint / "commits" / str(batch)
            until(logged.exists, 120, f"the commit log of micro-batch {batch}")
            os.killpg(driver.pid, signal.SIGKILL)
        assert driver.wait(slow_s(120)) == -signal.SIGKILL, self.log
        assert not (self.checkpoint / "commits" / str(batch)).exists() or step == LOGGED
        return self._directory / f"words-{batch}-{step}"

    def ends(self, code: int = 0) -> None:
        """Has a driver do all that is left."""
        driver = self.start()
        assert (until_ended(driver, 120, lambda: self.log) != 0) == bool(code), self.log

    @property
    def log(self) -> str:
        return (self._directory / "log").read_text()[-4_000:]

    def read(self) -> dict[int, list[int]]:
        """The committed rows of each partition, in order."""
        found: dict[int, list[int]] = {}
        reader = ka.Consumer(
            topics=[self.target],
            bootstrap_servers=self._cluster.bootstrap_servers,
            group_id=f"{self.target}-{uuid.uuid4()}",  # each reads all
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        with reader as consumer:
            while not self._read_to_the_end(consumer):
                batch = consumer.poll_batch(timeout_ms=200)
                if batch is not None:
                    rows = found.setdefault(batch["partition"][0].as_py(), [])
                    rows += map(int, batch["value"].to_pylist())
        return found

    def _read_to_the_end(self, consumer: ka.Consumer) -> bool:
        ends = self._cluster.end_offsets(self.target)
        owned = consumer.assignment()
        return len(owned) == PARTITIONS and all(consumer.position(tp) == ends[tp] for tp in owned)

    def check(self) -> None:
        """Each row is there once, and each partition in order."""
        found = self.read()
        counted = Counter(number for rows in found.values() for number in rows)
        assert [number for number in range(self.written) if counted[number] != 1] == [], self.log
        assert len(counted) == self.written
        assert all(rows == sorted(rows) for rows in found.values())


def producer_of(cluster: KafkaCluster, **options: Any) -> TaskProducer:
    given = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": PREFIX, **options}
    return task_producer(build(ProducerConfig, None, **given))


def test_a_marker_is_read_only_when_no_transaction_moves_it(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str]
) -> None:
    task = WriteName(str(uuid.uuid4()), 3).task("sink", kafka_topic(1), 0)
    older, newer = producer_of(kafka_cluster), producer_of(kafka_cluster)
    with older, newer:
        with TaskTransaction(older, task, "s") as transaction:
            older.send_batch(pa.record_batch({"value": [b"a"]}), topic=task.topic)
            marker = TaskMarker(1, "s").committed(3)
            older.send_offsets_to_transaction({task.marker: marker}, ka.ConsumerGroupMetadata(task.group))
            with pytest.raises(ka.errors.KafkaTimeoutError, match=f"the marker {task.group}"):
                newer.stable_offsets(task.group, [task.marker], timeout_ms=2_000)
            transaction.commit(1)
        until(
            lambda: newer.stable_offsets(task.group, [task.marker]) == {task.marker: marker}, 10, "the marker"
        )
        with TaskTransaction(newer, task, "s") as again:
            assert not again.writes
            again.commit(1)


@pytest.mark.slow
def test_a_task_that_takes_longer_than_its_transaction_may_says_so(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str]
) -> None:
    """Brokers look for such transactions every ten seconds."""
    task = WriteName(str(uuid.uuid4()), 3).task("sink", kafka_topic(1), 0)
    with producer_of(kafka_cluster, transaction_timeout_ms=1_000) as producer:
        with pytest.raises(
            ka.errors.ProducerFencedError, match=r"longer than kafka.transaction.timeout.ms \(1000\)"
        ):
            write_slowly(producer, task)
        with producer_of(kafka_cluster) as newer, TaskTransaction(newer, task, "s") as again:
            assert again.writes


def write_slowly(producer: TaskProducer, task: TaskName) -> None:
    with TaskTransaction(producer, task, "s", 1.0) as transaction:
        producer.send_batch(pa.record_batch({"value": [b"a"]}), topic=task.topic).result()
        time.sleep(25)
        transaction.commit(1)


@pytest.fixture
def copy(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str], produce: Produce, tmp_path: Path
) -> Copy:
    return Copy(kafka_cluster, kafka_topic, produce, tmp_path)


def test_each_row_is_there_once_when_the_driver_is_killed(
    copy: Copy, kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver is killed while a transaction ends; the slow test has each step. A zombie of a former driver ends with a
    named error, and what is run from an older copy of the checkpoint as well. The groups with the markers are listed only when they are
    asked for."""
    steps, zombie = ("end sent",), STEPS[-1]
    for batch, step in enumerate(steps):
        copy.dies(step, batch)
    of_zombie = len(steps)
    words = copy.dies(zombie, of_zombie)
    older = copy.checkpoint.with_name("older")
    shutil.copytree(copy.checkpoint, older)
    copy.dies(LOGGED, of_zombie + 1)  # the zombie's micro-batch is written again, then one more
    (words / "go on").touch()
    until((words / "error").exists, 60, "the end of the zombie")
    said = (words / "error").read_text()
    assert said.startswith("ProducerFencedError: "), said
    assert f"task 0 of micro-batch {of_zombie} of query" in said
    assert "another try of it has begun and fenced this one" in said
    copy.check()
    copy.fill()
    copy.ends()
    copy.checkpoint = older
    copy.ends(code=1)
    assert f"the checkpoint {older} is at micro-batch {of_zombie}" in copy.log
    assert f"written up to micro-batch {of_zombie + 2} already" in copy.log
    copy.check()
    assert not any(map(is_marker_group, listed(kafka_cluster, capsys)))
    groups = [name for name in listed(kafka_cluster, capsys, "--markers") if f"-{copy.target}-" in name]
    ends = [name.rpartition("-")[2] for name in groups if is_marker_group(name)]
    assert sorted(ends) == [*map(str, range(PARTITIONS)), "splits"]


def listed(cluster: KafkaCluster, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run_command_line(["groups", "list", *arguments, "-b", cluster.bootstrap_servers]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(20))
def test_each_row_is_there_once_however_often_the_driver_is_killed(copy: Copy, round_: int) -> None:
    for batch, step in enumerate((*STEPS, LOGGED)):
        words = copy.dies(step, batch)
        (words / "go on").touch()
    copy.ends()
    copy.check()
