"""A copier from topic to topic in transactions, and readers of what it has committed: ours, librdkafka's and Java's."""

from __future__ import annotations

from typing import Any

import confluent_kafka
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.testing import KafkaCluster
from kafka_actors.types import TopicPartition


def consumer_of(cluster: Any, topic: str, group: str, **options: Any) -> ka.Consumer:
    return ka.Consumer(
        topics=[topic],
        group_id=group,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        batch_rows=100,
        **options,
    )


def copied(
    consumer: ka.Consumer,
    producer: ka.Producer,
    target: str,
    count: int,
    *,
    fails: frozenset[int] = frozenset(),
) -> int:
    """Copies so many records, each batch in a transaction; those of the numbers in `fails` are aborted. Returns their number."""
    done = number = 0

    def step() -> bool:
        nonlocal done, number
        batch = consumer.poll_batch(timeout_ms=500)
        if batch is None:
            return False
        number += 1
        at = TopicPartition(batch["topic"][0].as_py(), batch["partition"][0].as_py())
        try:
            with producer.transaction():
                producer.send_batch(batch.select(["value", "partition"]), topic=target)
                producer.send_offsets_to_transaction({at: consumer.position(at)}, consumer.group_metadata())
                if number in fails:
                    raise InterruptedError("as if the copier's function had failed")
        except InterruptedError:
            consumer.seek_to_committed()
        else:
            done += batch.num_rows
        return done >= count

    until(step, 60, "all records copied")
    return number


def read_by_us(cluster: Any, topic: str, count: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {0: [], 1: []}
    with ka.Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        places = [TopicPartition(topic, p) for p in found]
        consumer.assign(places)

        def step() -> bool:
            batch = consumer.poll_batch(timeout_ms=200)
            if batch is not None:
                found[batch["partition"][0].as_py()] += [int(v) for v in batch["value"].to_pylist()]
            ends = consumer.end_offsets(places)
            return sum(map(len, found.values())) >= count and all(
                consumer.position(tp) >= end for tp, end in ends.items()
            )

        until(step, 60, "the end of the log", shown=lambda: found)
    return found


def read_by_librdkafka(cluster: Any, topic: str, count: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {0: [], 1: []}
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"reader-of-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    reader.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in found])

    def step() -> bool:
        for message in reader.consume(1000, 0.2):
            assert message.error() is None
            found[message.partition()].append(int(message.value()))
        return sum(map(len, found.values())) >= count

    try:
        until(step, 60, "the end of the log", shown=lambda: found)
    finally:
        reader.close()
    return found


def read_by_java(cluster: Any, topic: str, count: int) -> list[int]:
    """Reads with the console consumer of the default version: not each version has it under this name, or on Maven Central."""
    shown = KafkaCluster().tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        cluster.bootstrap_servers,
        "--topic",
        topic,
        "--from-beginning",
        "--isolation-level",
        "read_committed",
        "--max-messages",
        str(count),
        "--timeout-ms",
        str(round(slow_s(30) * 1000)),
    )
    return [int(line) for line in shown.stdout.splitlines() if line.isdigit()]  # and its log
