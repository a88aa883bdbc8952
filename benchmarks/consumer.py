"""`Consumer` beside confluent-kafka, aiokafka and Java's consumer on one topic, in one run: alternating, in fresh processes.

    python -m benchmarks consumer [--codecs none,lz4,zstd] [--runs 5] [--seconds 10] [--records 5000000]
                                  [--size 100] [--partitions 8] [--clients …] [--profile]

Starts a broker of its own and makes the data with confluent-kafka once per codec. Every client runs with its
defaults, CRC checks on, and verifies that it read every value, in order. Java's is Kafka's own ConsumerPerformance,
whose figure is fetch.nMsg.sec: it counts and does not look at the values. Prints a table and writes it, with all
single runs, to benchmarks/results/consumer.{json,md}. `--profile` records our runs with py-spy.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import crc32c

from benchmarks.peers import CLIENTS
from kafka_actors.testing import BENCHMARK_JVM, KafkaCluster

RESULTS = Path(__file__).parent / "results"
JAVA = "java"


def main() -> None:
    options = parsed()
    RESULTS.mkdir(exist_ok=True)
    runs: list[dict[str, Any]] = []
    with KafkaCluster(brokers=1, jvm_options=BENCHMARK_JVM).start() as cluster:
        for codec in options.codecs.split(","):
            topic = cluster.create_topic(f"bench-{codec}", options.partitions)
            print(f"{codec}: producing {options.records:,} records of {options.size} bytes", file=sys.stderr)
            expected = produce(cluster.bootstrap_servers, topic, codec, options)
            task = {
                "bootstrap": cluster.bootstrap_servers,
                "topic": topic,
                "expected": expected,
                "seconds": options.seconds,
            }
            for number in range(options.runs):
                for client in options.clients.split(","):
                    if client == JAVA:
                        run = measure_java(cluster, task, options)
                    else:
                        run = measure(client, task, options, f"{codec}-{number}")
                    runs.append({"codec": codec, "client": client, "run": number, **run})
                    rate = run["records"] / run["seconds"] / 1e6
                    print(f"{codec:5} run {number + 1} {client:16} {rate:7.2f} M records/s", file=sys.stderr)
    write(options, runs)


def parsed() -> argparse.Namespace:
    parser = parser_of("consumer", records=5_000_000)
    parser.add_argument("--clients", default=",".join([*CLIENTS, JAVA]))
    return parser.parse_args()


def parser_of(name: str, records: int) -> argparse.ArgumentParser:
    """The options that make the data and the runs."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}")
    parser.add_argument("--codecs", default="none,zstd")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="a run of a client without workers")
    parser.add_argument("--records", type=int, default=records)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=262_144)
    parser.add_argument("--linger-ms", type=float, default=20)
    parser.add_argument("--profile", action="store_true")
    return parser


def produce(
    bootstrap: str, topic: str, codec: str, options: argparse.Namespace
) -> dict[int, tuple[int, int]]:
    """Produces JSON-like values under 8-byte keys, evenly. Returns (records, CRC-32C of the values) by partition."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": options.linger_ms,
            "batch.size": options.batch_size,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "enable.idempotence": True,
        }
    )
    sums = dict.fromkeys(range(options.partitions), 0)
    counts = dict.fromkeys(range(options.partitions), 0)
    filler = os.urandom(64).hex() * (options.size // 128 + 1)
    for number in range(options.records):
        partition = number % options.partitions
        head = b'{"id":%010d,"amount":%06d,"note":"' % (number, number * 7919 % 1_000_000)
        start = number % 61
        value = (head + filler[start : start + options.size].encode())[: options.size - 2] + b'"}'
        while True:
            try:
                producer.produce(topic, value, b"%08d" % (number % 100_000_000), partition)
                break
            except BufferError:
                producer.poll(0.1)
        sums[partition] = crc32c.crc32c(value, sums[partition])
        counts[partition] += 1
        if not number % 10_000:
            producer.poll(0)
    producer.flush()
    return {p: (counts[p], sums[p]) for p in sums}


def measure(client: str, task: dict[str, Any], options: argparse.Namespace, label: str) -> dict[str, Any]:
    """One run in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.peers", client, json.dumps(task)]
    if options.profile and client.startswith("ours"):
        target = RESULTS / f"profile-{client.replace(' ', '-')}-{label}.txt"
        spy = Path(sys.executable).with_name("py-spy")
        command = [
            str(spy),
            "record",
            "-f",
            "raw",
            "-t",
            "-n",
            "-r",
            "200",
            "-o",
            str(target),
            "--",
            *command,
        ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=options.seconds * 10 + 120, check=False
    )
    if done.returncode:
        raise SystemExit(f"{client} failed: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    time.sleep(0.5)
    return result


def measure_java(cluster: KafkaCluster, task: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Kafka's ConsumerPerformance: one pass over the topic."""
    records = sum(count for count, _ in task["expected"].values())
    done = cluster.tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", task["bootstrap"], "--topic", task["topic"], "--messages", str(records)),
        *("--timeout", "60000", "--hide-header"),
        timeout=options.seconds * 10 + 120,
        jvm_options=BENCHMARK_JVM,
    )
    figures = [field.strip() for field in done.stdout.strip().splitlines()[-1].split(",")]
    read, rebalance_ms, fetch_ms = int(figures[4]), float(figures[6]), float(figures[7])
    if read < records:
        raise SystemExit(f"java read {read} of {records} records: {done.stdout}{done.stderr}")
    time.sleep(0.5)
    return {"records": read, "seconds": fetch_ms / 1000, "start_up": rebalance_ms / 1000}


def machine_facts() -> dict[str, Any]:
    """What a figure has to be read with."""
    return {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("kafka-actors", "confluent-kafka", "aiokafka", "pyarrow", "ray")},
    }


def write(options: argparse.Namespace, runs: list[dict[str, Any]]) -> None:
    machine = machine_facts()
    report = {"at": datetime.now(UTC).isoformat(), "machine": machine, "options": vars(options), "runs": runs}
    (RESULTS / "consumer.json").write_text(json.dumps(report, indent=1))
    text = table(options, runs, machine)
    (RESULTS / "consumer.md").write_text(text)
    print(text)


def table(options: argparse.Namespace, runs: list[dict[str, Any]], machine: dict[str, Any]) -> str:
    lines = [
        f"{options.records:,} records of {options.size} bytes and an 8-byte key in {options.partitions} partitions; "
        f"medians of {options.runs} alternating runs of {options.seconds:g} s, range in brackets",
        ", ".join(f"{name} {value}" for name, value in machine.items()),
        "",
        "| codec | client | million records/s | MB/s | against confluent-kafka | CPU cores | start-up s | RSS MB at 25 % / 90 % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for codec in dict.fromkeys(run["codec"] for run in runs):
        chosen = [run for run in runs if run["codec"] == codec]
        base = median_rate([run for run in chosen if run["client"] == "confluent-kafka"])
        for client in dict.fromkeys(run["client"] for run in chosen):
            lines.append(
                row(codec, client, [r for r in chosen if r["client"] == client], base, options.size + 8)
            )
    return "\n".join(lines) + "\n"


def median_rate(runs: list[dict[str, Any]]) -> float | None:
    return statistics.median(run["records"] / run["seconds"] for run in runs) if runs else None


def row(codec: str, client: str, runs: list[dict[str, Any]], base: float | None, size: int) -> str:
    rates = sorted(run["records"] / run["seconds"] / 1e6 for run in runs)
    rate = statistics.median(rates)
    ratio = "" if base is None else f"{rate * 1e6 / base:.1f} x"
    start_up = statistics.median(run["start_up"] for run in runs)
    cores, memory = "", ""
    if "cpu" in runs[0]:
        cores = f"{statistics.median(run['cpu'] / run['seconds'] for run in runs):.2f}"
        early, late = (statistics.median(run[key] for run in runs) for key in ("rss_early", "rss_late"))
        memory = f"{early:.0f} / {late:.0f}"
    return (
        f"| {codec} | {client} | {rate:.2f} ({rates[0]:.2f}-{rates[-1]:.2f}) | {rate * size:.0f} | {ratio} "
        f"| {cores} | {start_up:.2f} | {memory} |"
    )


if __name__ == "__main__":
    main()
