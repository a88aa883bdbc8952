"""`Producer` beside confluent-kafka and Java's ProducerPerformance: each in a fresh process and a fresh topic.

All send the same JSON values under 8-byte keys, over and over, with acks=all and idempotence, until the time is
over, then flush; the rate is that of all that was acknowledged, and the end offsets of the topic have to agree. The
input of ours is an Arrow batch; confluent-kafka is measured from the same Arrow batch, which it needs as Python
objects, and from lists of bytes that are there already. Its queue is raised to a million messages; all else is as
shipped. Java's tool makes values of its own, without keys.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from benchmarks.common import Client, Section, Stage
from benchmarks.data import block_of
from benchmarks.peers import CONFLUENT, JAVA
from benchmarks.reading import Run, Task, cpu_of
from kafka_actors.testing import BENCHMARK_JVM

PRODUCER, SEND = "Producer", "Producer, send()"
FROM_ARROW = f"{CONFLUENT}, from Arrow"
SIZE, PARTITIONS = 100, 8
JAVA_RECORDS_PER_S = 800_000
"""About what Java's tool sends: how many records it is given is this by the seconds of a run."""

Pairs = Iterable[tuple[bytes, bytes]]


def sections() -> list[Section]:
    clients = {
        PRODUCER: "producer:batches",
        SEND: "producer:one_by_one",
        CONFLUENT: "producer:confluent",
        FROM_ARROW: "producer:confluent_from_arrow",
    }
    return [
        Section(
            f"producer/{codec}",
            f"Values of {SIZE} bytes under 8-byte keys to {PARTITIONS} partitions, {codec}, acks=all, idempotent",
            {**{name: sends(where, codec) for name, where in clients.items()}, JAVA: java(codec)},
            notes="All with their defaults, but confluent-kafka with `queue.buffering.max.messages=1000000` and the "
            "partitioner of Java's clients",
        )
        for codec in ("none", "zstd")
    ]


def sends(where: str, codec: str) -> Client:
    """A run into a topic of its own, whose end offsets have to be what the client says that it sent."""

    def run(stage: Stage) -> Run:
        return into_new_topic(stage, codec, lambda task: stage.run(where, task))

    return run


def into_new_topic(stage: Stage, codec: str, send: Callable[[Task], Run]) -> Run:
    topic = stage.cluster.create_topic(f"producer-{time.monotonic_ns()}", PARTITIONS)
    task = stage.task(codec=codec)
    task.topic = topic
    run = send(task)
    written = sum(stage.cluster.end_offsets(topic).values())
    if written != run["records"]:
        raise SystemExit(f"the client says that it sent {run['records']} records, the topic has {written}")
    stage.cluster.delete_topic(topic)
    return run


# ---------------------------------------------------------------- the clients, each in its own process


def measured(task: Task, send: Callable[[float], int]) -> Run:
    """`send` goes on until that time and returns how many records were acknowledged."""
    broker_before, cpu_before = cpu_of(task.broker_pid), time.process_time()
    began = time.perf_counter()
    records = send(began + task.seconds)
    seconds = time.perf_counter() - began
    return {
        "records": records,
        "seconds": seconds,
        "rate": records / seconds,
        "cpu": time.process_time() - cpu_before,
        "broker_cpu": cpu_of(task.broker_pid) - broker_before,
    }


def arrow() -> pa.RecordBatch:
    values, keys = block_of(SIZE)
    return pa.record_batch({"key": keys, "value": values})


def batches(told: dict[str, Any]) -> Run:
    """`send_batch` of Arrow."""
    from kafka_actors import Producer

    task, batch = Task.of(told), arrow()

    def send(end: float) -> int:
        sent = 0
        with Producer(bootstrap_servers=task.bootstrap, compression_type=task.options["codec"]) as producer:
            while time.perf_counter() < end:
                producer.send_batch(batch, task.topic)
                sent += batch.num_rows
            producer.flush()
        return sent

    return measured(task, send)


def one_by_one(told: dict[str, Any]) -> Run:
    """`send` of bytes."""
    from kafka_actors import Producer

    task = Task.of(told)
    values, keys = block_of(SIZE)

    def send(end: float) -> int:
        sent, topic = 0, task.topic
        with Producer(bootstrap_servers=task.bootstrap, compression_type=task.options["codec"]) as producer:
            one = producer.send
            while time.perf_counter() < end:
                for key, value in zip(keys, values, strict=True):
                    one(topic, value, key)
                sent += len(values)
            producer.flush()
        return sent

    return measured(task, send)


def confluent(told: dict[str, Any]) -> Run:
    """`produce` of bytes."""
    values, keys = block_of(SIZE)
    return _confluent(Task.of(told), lambda: zip(keys, values, strict=True))


def confluent_from_arrow(told: dict[str, Any]) -> Run:
    """`produce` of what Arrow makes of each batch."""
    batch = arrow()
    return _confluent(
        Task.of(told), lambda: zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    )


def _confluent(task: Task, pairs: Callable[[], Pairs]) -> Run:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "compression.type": task.options["codec"],
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
        }
    )

    def send(end: float) -> int:
        sent, topic, produce = 0, task.topic, producer.produce
        while time.perf_counter() < end:
            for key, value in pairs():
                while True:
                    try:
                        produce(topic, value, key)
                        break
                    except BufferError:
                        producer.poll(0.01)
                sent += 1
            producer.poll(0)
        if producer.flush(60):
            raise SystemExit("not all was delivered")
        return sent

    return measured(task, send)


def java(codec: str) -> Client:
    """ProducerPerformance, with so many records that it takes about as long."""

    def run(stage: Stage) -> Run:
        def send(task: Task) -> Run:
            records = int(task.seconds * JAVA_RECORDS_PER_S)
            said = stage.cluster.tool(
                "org.apache.kafka.tools.ProducerPerformance",
                *("--topic", task.topic, "--num-records", str(records), "--record-size", str(SIZE)),
                *("--throughput", "-1", "--producer-props", f"bootstrap.servers={task.bootstrap}"),
                *(f"compression.type={codec}", "acks=all", "enable.idempotence=true"),
                timeout=task.seconds * 20 + 120,
                jvm_options=BENCHMARK_JVM,
            ).stdout
            rate = float(re.findall(r"^\d+ records sent, ([\d.]+) records/sec", said, re.M)[-1])
            return {"records": records, "seconds": records / rate, "rate": rate}

        return into_new_topic(stage, codec, send)

    return run
