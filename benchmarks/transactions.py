"""Transactions beside confluent-kafka and Java's TransactionalMessageCopier: copies of a topic, and transactions of one record each.

A copier reads a topic, writes each record to the same partition of another topic, and commits its offsets with what it wrote, so many
records in each transaction. What was written is read back under `read_committed` and has to be the source, record by record.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from benchmarks.common import OURS, Client, Section, Stage
from benchmarks.data import Data, block_of
from benchmarks.our_consumer import fold, reader
from benchmarks.peers import CONFLUENT, CONFLUENT_SETTINGS, JAVA
from benchmarks.producer import PRODUCER
from benchmarks.reading import Check, Run, Task, cpu_of
from kafka_actors.testing import BENCHMARK_JVM

COPIER = f"{OURS} and {PRODUCER}"
SIZE = 100_000
"""Records in each transaction of a copy."""
SOURCE = Data(records=2_000_000)
READ_COMMITTED = "read_committed"


def sections() -> list[Section]:
    notes = (
        f"{SIZE:,} records in each transaction, acks=all; confluent-kafka with "
        "`queue.buffering.max.messages=1000000` and as in consumer/none"
    )
    return [
        Section(
            "transactions/copy",
            "100-byte values from topic to topic in transactions, offsets with them",
            {COPIER: copies("transactions:ours"), CONFLUENT: copies("transactions:confluent"), JAVA: java},
            [SOURCE],
            notes=notes,
        ),
        Section(
            "transactions/one",
            "Transactions of one record each, one after the other",
            {PRODUCER: ones("transactions:ours_one"), CONFLUENT: ones("transactions:confluent_one")},
        ),
    ]


def copies(where: str) -> Client:
    def run(stage: Stage) -> Run:
        return into_new_topic(
            stage, lambda target: stage.run(where, stage.task(SOURCE, target=target, group=target))
        )

    return run


def into_new_topic(stage: Stage, copy: Callable[[str], Run]) -> Run:
    """Has the source copied into a topic of its own, and reads that back."""
    target = stage.cluster.create_topic(f"copy-{time.monotonic_ns()}", SOURCE.partitions)
    run = copy(target)
    task = stage.task(SOURCE)
    check, task.topic, task.options = Check(task.expected), target, {"isolation_level": READ_COMMITTED}
    with reader(task) as consumer:
        while not check.complete:
            if (batch := consumer.poll_batch(timeout_ms=1000)) is not None:
                fold(batch, check)
    check.verify()
    stage.cluster.delete_topic(target)
    return run


def java(stage: Stage) -> Run:
    """TransactionalMessageCopier, from when it has its partitions to its last transaction but one, by its own clock."""

    def copy(target: str) -> Run:
        said = stage.cluster.tool(
            "org.apache.kafka.tools.TransactionalMessageCopier",
            *(
                "--broker-list",
                stage.cluster.bootstrap_servers,
                "--input-topic",
                stage.options.data(SOURCE).topic,
            ),
            *(
                "--group-mode",
                "--input-partition",
                "0",
                "--output-topic",
                target,
                "--transaction-size",
                str(SIZE),
            ),
            *("--transactional-id", target, "--consumer-group", target, "--use-group-metadata"),
            timeout=300,
            jvm_options=BENCHMARK_JVM,
        ).stdout
        steps = [json.loads(line) for line in said.splitlines() if '"ProcessLoop"' in line]
        times = [datetime.strptime(at["time"] + "+0000", "%Y/%m/%d %H:%M:%S:%f%z") for at in steps]
        records, seconds = steps[-1]["totalProcessed"], (times[-1] - times[0]).total_seconds()
        return {"records": records, "seconds": seconds, "rate": records / seconds}

    return into_new_topic(stage, copy)


def ones(where: str) -> Client:
    def run(stage: Stage) -> Run:
        return stage.run_on_a_new_topic(where, stage.task(), 1)

    return run


# ---------------------------------------------------------------- the clients, each in its own process


def measured(task: Task, work: Iterator[int]) -> Run:
    """Runs `work`, which yields once when all is connected, then the number of records of each transaction."""
    next(work)
    broker_before, cpu_before = cpu_of(task.broker_pid), time.process_time()
    began = time.perf_counter()
    counts = list(work)
    seconds = time.perf_counter() - began
    return {
        "records": sum(counts),
        "seconds": seconds,
        "rate": sum(counts) / seconds,
        "transactions": len(counts),
        "cpu": time.process_time() - cpu_before,
        "broker_cpu": cpu_of(task.broker_pid) - broker_before,
    }


def ours(told: dict[str, Any]) -> Run:
    task = Task.of(told)

    def work() -> Iterator[int]:
        from kafka_actors import Consumer, Producer, TopicPartition

        target, group = task.options["target"], task.options["group"]
        with (
            Consumer(
                bootstrap_servers=task.bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level=READ_COMMITTED,
            ) as consumer,
            Producer(bootstrap_servers=task.bootstrap, transactional_id=target) as producer,
        ):
            partitions = [TopicPartition(task.topic, p) for p in task.expected]
            consumer.assign(partitions)
            producer.init_transactions()
            yield 0
            left = task.total
            while left:
                with producer.transaction():
                    rows = 0
                    while rows < min(SIZE, left):
                        batch = consumer.poll_batch(timeout_ms=1000)
                        if batch is not None:
                            producer.send_batch(batch.select(["key", "value", "partition"]), topic=target)
                            rows += batch.num_rows
                    offsets = {tp: consumer.position(tp) for tp in partitions}
                    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                left -= rows
                yield rows

    return measured(task, work())


def confluent(told: dict[str, Any]) -> Run:
    task = Task.of(told)

    def work() -> Iterator[int]:
        from confluent_kafka import Consumer, TopicPartition

        target, group = task.options["target"], task.options["group"]
        settings = {"bootstrap.servers": task.bootstrap, "group.id": group, "isolation.level": READ_COMMITTED}
        consumer = Consumer({**settings, **CONFLUENT_SETTINGS})
        consumer.assign([TopicPartition(task.topic, p, 0) for p in task.expected])
        producer = _confluent_producer(task, target)
        yield 0
        left = task.total
        while left:
            producer.begin_transaction()
            rows = 0
            while rows < min(SIZE, left):
                messages = consumer.consume(min(task.at_once, left - rows), timeout=1.0)
                for message in messages:
                    producer.produce(target, message.value(), message.key(), partition=message.partition())
                rows += len(messages)
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            producer.commit_transaction()
            left -= rows
            yield rows
        consumer.close()

    return measured(task, work())


def ours_one(told: dict[str, Any]) -> Run:
    task = Task.of(told)

    def work() -> Iterator[int]:
        from kafka_actors import Producer

        value = block_of(100)[0][0]
        with Producer(bootstrap_servers=task.bootstrap, transactional_id=task.topic) as producer:
            producer.init_transactions()
            yield 0
            end = time.perf_counter() + task.seconds
            while time.perf_counter() < end:
                producer.begin_transaction()
                producer.send(task.topic, value)
                producer.commit_transaction()
                yield 1

    return measured(task, work())


def confluent_one(told: dict[str, Any]) -> Run:
    task = Task.of(told)

    def work() -> Iterator[int]:
        value = block_of(100)[0][0]
        producer = _confluent_producer(task, task.topic)
        yield 0
        end = time.perf_counter() + task.seconds
        while time.perf_counter() < end:
            producer.begin_transaction()
            producer.produce(task.topic, value)
            producer.commit_transaction()
            yield 1

    return measured(task, work())


def _confluent_producer(task: Task, transactional_id: str) -> Any:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "transactional.id": transactional_id,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions()
    return producer
