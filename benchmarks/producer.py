"""`Producer` beside confluent-kafka and Java's producer, in one run: alternating, each in a fresh process and a fresh topic.

    python -m benchmarks producer [--codecs none,zstd] [--runs 5] [--seconds 10] [--size 100] [--partitions 8]
                                  [--clients …] [--profile]

Starts a broker of its own. All send the same JSON-like values under 8-byte keys, over and over, with acks=all and
idempotence, until the time is over, then flush; the rate is that of all that was acknowledged, and the end offsets of
the topic have to agree. The input of ours is an Arrow batch; confluent-kafka is measured from the same Arrow batch,
which it needs as Python objects, and from lists of bytes that are there already. Its queue is raised to a million
messages; all else is as shipped. Java's is Kafka's own ProducerPerformance: values of its own, without keys. Prints a
table and writes it, with all single runs, to benchmarks/results/producer.{json,md}. `--profile` records our runs with
py-spy.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from benchmarks.common import BASE, RESULTS, Run, fresh_process, report, say
from kafka_actors.testing import BENCHMARK_JVM, KafkaCluster

ROWS = 65_536
JAVA = "java"


def rows_of(size: int) -> pa.RecordBatch:
    """What is sent: one Arrow batch."""
    filler = os.urandom(64).hex() * (size // 128 + 1)
    values = []
    for number in range(ROWS):
        head = b'{"id":%010d,"amount":%06d,"note":"' % (number, number * 7919 % 1_000_000)
        start = number % 61
        values.append((head + filler[start : start + size].encode())[: size - 2] + b'"}')
    return pa.record_batch({"key": [b"%08d" % n for n in range(ROWS)], "value": values})


# ---------------------------------------------------------------- the clients, each in its own process


def ours(task: dict[str, Any], batch: pa.RecordBatch) -> int:
    """`send_batch` of Arrow."""
    from kafka_actors import Producer

    sent, end = 0, time.perf_counter() + task["seconds"]
    with Producer(bootstrap_servers=task["bootstrap"], compression_type=task["codec"]) as producer:
        while time.perf_counter() < end:
            producer.send_batch(batch, task["topic"])
            sent += batch.num_rows
        producer.flush()
    return sent


def ours_one_by_one(task: dict[str, Any], batch: pa.RecordBatch) -> int:
    """`send` of lists of bytes."""
    from kafka_actors import Producer

    pairs = list(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
    sent, end, topic = 0, time.perf_counter() + task["seconds"], task["topic"]
    with Producer(bootstrap_servers=task["bootstrap"], compression_type=task["codec"]) as producer:
        send = producer.send
        while time.perf_counter() < end:
            for key, value in pairs:
                send(topic, value, key)
            sent += len(pairs)
        producer.flush()
    return sent


def confluent_from_arrow(task: dict[str, Any], batch: pa.RecordBatch) -> int:
    """`produce` of what Arrow makes of each batch."""
    return _confluent(
        task, lambda: zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True), batch.num_rows
    )


def confluent(task: dict[str, Any], batch: pa.RecordBatch) -> int:
    """`produce` of lists of bytes."""
    pairs = list(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
    return _confluent(task, lambda: pairs, batch.num_rows)


def _confluent(task: dict[str, Any], pairs: Callable[[], Any], rows: int) -> int:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": task["bootstrap"],
            "compression.type": task["codec"],
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    sent, end, topic, produce = 0, time.perf_counter() + task["seconds"], task["topic"], producer.produce
    while time.perf_counter() < end:
        for key, value in pairs():
            while True:
                try:
                    produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
        sent += rows
    if producer.flush(60):
        raise SystemExit("not all was delivered")
    return sent


CLIENTS: dict[str, Callable[[dict[str, Any], pa.RecordBatch], int]] = {
    "ours": ours,
    "ours, send": ours_one_by_one,
    BASE: confluent,
    "confluent-kafka, Arrow": confluent_from_arrow,
}


def client_main(name: str, task: dict[str, Any]) -> None:
    batch = rows_of(task["size"])
    began, cpu = time.perf_counter(), time.process_time()
    sent = CLIENTS[name](task, batch)
    result = {
        "records": sent,
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - cpu,
    }
    print(json.dumps(result))


# ---------------------------------------------------------------- the run


def main() -> None:
    options = parsed()
    if options.client:
        client_main(options.client, json.loads(options.task))
        return
    RESULTS.mkdir(exist_ok=True)
    runs: list[Run] = []
    with KafkaCluster(brokers=1, jvm_options=BENCHMARK_JVM).start() as cluster:
        measure(
            cluster, "ours", "none", options, "warm"
        )  # so that the broker's code is compiled before what counts
        for codec in options.codecs.split(","):
            for number in range(options.runs):
                for client in options.clients.split(";"):
                    run = measure(cluster, client, codec, options, f"{codec}-{number}")
                    runs.append({"codec": codec, "client": client, "run": number, **run})
                    say(runs[-1])
    report(
        "producer",
        options,
        runs,
        title=f"Values of {options.size} bytes under 8-byte keys to {options.partitions} partitions, acks=all and "
        f"idempotent; medians of {options.runs} alternating runs of {options.seconds:g} s, range in brackets",
        columns=["CPU cores"],
        row=row,
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks producer")
    parser.add_argument("--codecs", default="none,zstd")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--clients", default=";".join([*CLIENTS, JAVA]), help="separated by ;")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(
    cluster: KafkaCluster, client: str, codec: str, options: argparse.Namespace, label: str
) -> dict[str, Any]:
    """One run, into a topic of its own, which is deleted afterwards."""
    topic = cluster.create_topic(f"bench-{time.monotonic_ns()}", options.partitions)
    if client == JAVA:
        run = java(cluster, topic, codec, options)
    else:
        task = {
            "bootstrap": cluster.bootstrap_servers,
            "topic": topic,
            "codec": codec,
            "seconds": options.seconds,
            "size": options.size,
        }
        arguments = ["benchmarks.producer", "--client", client, "--task", json.dumps(task)]
        run = fresh_process(arguments, client, f"producer-{label}", options)
    written = sum(cluster.end_offsets(topic).values())
    if written != run["records"]:
        raise SystemExit(f"{client} says that it sent {run['records']} records, the topic has {written}")
    cluster.delete_topic(topic)
    time.sleep(1)
    return run


def java(cluster: KafkaCluster, topic: str, codec: str, options: argparse.Namespace) -> dict[str, Any]:
    """Kafka's ProducerPerformance, with so many records that it takes about as long."""
    records = int(options.seconds * 800_000 * 100 / max(100, options.size))
    began = time.perf_counter()
    said = cluster.tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(options.size)),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}"),
        *(f"compression.type={codec}", "acks=all", "enable.idempotence=true"),
        timeout=options.seconds * 20 + 120,
        jvm_options=BENCHMARK_JVM,
    ).stdout
    rates = re.findall(r"^\d+ records sent, ([\d.]+) records/sec", said, re.M)
    seconds = records / float(rates[-1]) if rates else time.perf_counter() - began
    return {"records": records, "seconds": seconds, "cpu": float("nan")}


def row(runs: list[Run]) -> list[str]:
    return [f"{statistics.median(run['cpu'] / run['seconds'] for run in runs):.2f}"]


if __name__ == "__main__":
    main()
