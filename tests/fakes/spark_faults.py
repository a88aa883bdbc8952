"""Data sources whose sinks fail at a step of a transactional write: the driver is killed, or a task fails behind its commit.

`DyingSource` takes its orders from the environment, which the processes of a driver with a local master inherit:

DYING_STEP: one of `STEPS`; DYING_BATCH: the micro-batch in which it happens; DYING_TASKS: the number of tasks of that; DYING_DIRECTORY: where the
tasks of a driver leave word for each other; DYING_GROUP: the driver's process group.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from atomic_files import write_atomically
from pyspark import TaskContext
from pyspark.sql.types import StructType

from kafka_actors.producer.machines.transaction_errors import TransactionApi
from kafka_actors.producer.transactions import Transactions
from kafka_actors.spark.source.data_source import KafkaDataSource
from kafka_actors.spark.source.task_transaction import TaskTransaction
from kafka_actors.spark.source.writers import (
    KafkaBatchWriter,
    KafkaStreamWriter,
    WriteCommit,
    micro_batch_of_task,
    partition_of_task,
)

STEPS = (
    "end sent",  # the first task's EndTxn is on its way
    "end answered",
    "task returned",  # the first one, and another one is about to commit
    "all answered",
    "commit begins",  # the driver has heard of all tasks
    "commit ends",  # and the commit log isn't written yet
    "zombie",  # the driver dies before the first EndTxn, and a task goes on when its micro-batch was written again
)
LOGGED = "logged"
"""The commit log is written: whoever watches the checkpoint kills the driver then, which waits for that at its end."""


def armed(step: str, batch: int) -> bool:
    return os.environ.get("DYING_STEP") == step and os.environ.get("DYING_BATCH") == str(batch)


def directory() -> Path:
    return Path(os.environ["DYING_DIRECTORY"])


def kill_driver() -> None:
    """Ends the driver with its JVM; Python workers are a group of their own."""
    os.killpg(int(os.environ["DYING_GROUP"]), signal.SIGKILL)


def die() -> None:
    """Ends all processes of the driver."""
    kill_driver()
    os.killpg(0, signal.SIGKILL)


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


class DyingSource(KafkaDataSource):
    """The data source, whose stream's sink dies as it is told to."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:
        return DyingWriter(self._sink(schema))


class DyingWriter(KafkaStreamWriter):
    """Writer of `DyingSource`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteCommit:
        batch = micro_batch_of_task()[1]
        number = partition_of_task()
        commit, ask = TaskTransaction.commit, Transactions.ask

        def committed(transaction: TaskTransaction, rows: int) -> None:
            if armed("zombie", batch) and number == 0:
                os.setpgid(0, 0)  # Spark's daemon ends its group when its driver is gone
                kill_driver()
                wait_for(directory() / "go on")
            if armed("task returned", batch) and number == 1:
                wait_for(directory() / "returned")
                time.sleep(0.1)
                die()
            commit(transaction, rows)
            (directory() / f"answered-{batch}-{number}").touch()
            if armed("end answered", batch):
                die()
            if armed("all answered", batch):
                everyone = len(list(directory().glob(f"answered-{batch}-*")))
                if everyone == int(os.environ["DYING_TASKS"]):
                    die()

        async def ask_or_die(transactions: Transactions, request: Any, now: Any) -> None:
            if request.api is TransactionApi.END and armed("end sent", batch):
                sending = asyncio.ensure_future(ask(transactions, request, now))
                await asyncio.sleep(0.003)  # on its way, and maybe carried out
                die()
                await sending
            await ask(transactions, request, now)

        TaskTransaction.commit = committed  # type: ignore[method-assign]
        Transactions.ask = ask_or_die  # type: ignore[method-assign]
        try:
            done = super().write(iterator)
        except BaseException as error:
            write_atomically(directory() / "error", f"{type(error).__name__}: {error}")
            raise
        finally:
            TaskTransaction.commit = commit  # type: ignore[method-assign]
            Transactions.ask = ask  # type: ignore[method-assign]
        (directory() / "returned").touch()
        return done

    def commit(self, messages: Any, batchId: int) -> None:
        if armed("commit begins", batchId):
            die()
        super().commit(messages, batchId)
        if armed("commit ends", batchId):
            die()


class FailsOnceSource(KafkaDataSource):
    """The data source, of whose sink's tasks each fails at its first try when it has committed."""

    @classmethod
    def name(cls) -> str:
        return "fails_once"

    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        return FailsOnceBatchWriter(self._sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:
        return FailsOnceStreamWriter(self._sink(schema))


def fail_at_first() -> None:
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        raise RuntimeError("the first try, when it had committed")


class FailsOnceBatchWriter(KafkaBatchWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteCommit:
        done = super().write(iterator)
        fail_at_first()
        return done


class FailsOnceStreamWriter(KafkaStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteCommit:
        done = super().write(iterator)
        fail_at_first()
        return done


SCRIPT = """
import os
import signal
import sys

os.environ["DYING_GROUP"] = str(os.getpid())
from fakes.spark_faults import DyingSource
from pyspark.sql import SparkSession

import kafka_actors

servers, source, target, checkpoint = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.memory", "1g").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(DyingSource)
brokers = {"kafka.bootstrap.servers": servers}
reader = spark.readStream.format("kafka_actors").options(**brokers, subscribe=source, startingOffsets="earliest")
df = reader.option("minPartitions", os.environ["DYING_TASKS"]).load().selectExpr("value", "partition")
writer = df.writeStream.format("dying").options(**brokers, topic=target, **kafka_actors.spark.transactional(df))
writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
for _ in range(20):
    try:
        writer.start().awaitTermination()
        break
    except Exception as error:
        if "Python worker failed to connect back" not in str(error):
            raise
if os.environ["DYING_STEP"] == "logged":
    signal.pause()
"""
"""A driver that writes one topic to another. On a busy machine a Python process may take longer to start than the ten seconds that Spark gives it."""
