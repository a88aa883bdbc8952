"""`Consumer` as a user runs it, defaults as shipped."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks.reading import Check, Clock, Run, Task, value_bytes
from kafka_actors import Consumer, TopicPartition
from kafka_actors.records import SCHEMA


def reader(task: Task) -> Consumer:
    """A consumer of all partitions from their starts, assigned by hand."""
    consumer = Consumer(bootstrap_servers=task.bootstrap, auto_offset_reset="earliest", **task.options)
    consumer.assign([TopicPartition(task.topic, p) for p in task.expected])
    return consumer


def batches(told: dict[str, Any]) -> Run:
    """`poll_batch`, all eight columns built."""
    task = Task.of(told)
    clock = Clock(task)
    while True:
        clock.making()
        check = Check(task.expected)
        with reader(task) as consumer:
            clock.start()
            while not check.complete:
                batch = consumer.poll_batch(timeout_ms=1000)
                if batch is not None:
                    fold(batch, check)
                    clock.first()
            more = clock.passed(check.records)
        check.verify()
        if not more:
            return clock.run()


def fold(batch: pa.RecordBatch, check: Check) -> None:
    """Every value byte into the checksum. A batch without one of the columns is not what is measured."""
    if not batch.schema.equals(SCHEMA):
        raise SystemExit(f"a batch has {batch.schema}, not the columns of records.SCHEMA")
    check.add(batch.column(3)[0].as_py(), batch.num_rows, value_bytes(batch.column(1)))


def fold_list(values: list[bytes], partition: int, check: Check) -> None:
    if values:
        check.add(partition, len(values), b"".join(values))


def messages(told: dict[str, Any]) -> Run:
    """`for message in consumer`, key and value read."""
    task = Task.of(told)
    clock = Clock(task)
    while True:
        clock.making()
        check = Check(task.expected)
        with reader(task) as consumer:
            clock.start()
            values: list[Any] = []
            partition, left = -1, task.total
            for message in consumer:
                _ = message.key
                if message.partition != partition or len(values) == 10_000:
                    fold_list(values, partition, check)
                    values, partition = [], message.partition
                    clock.first()
                values.append(message.value)
                left -= 1
                if not left:
                    break
            fold_list(values, partition, check)
            more = clock.passed(check.records)
        check.verify()
        if not more:
            return clock.run()
