"""What the benchmarks of clients have in common: topics full of records, fresh processes, and the report."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import crc32c

from kafka_actors.testing import BENCHMARK_JVM, KafkaCluster

RESULTS = Path(__file__).parent / "results"
BASE = "confluent-kafka"
"""The client that the others are compared with."""

Run = dict[str, Any]


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


def filled_topics(options: argparse.Namespace) -> Iterator[tuple[KafkaCluster, str, dict[str, Any]]]:
    """A broker of one's own, and for each codec a topic with all the records and the task of reading it."""
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
            yield cluster, codec, task


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


def fresh_process(arguments: list[str], client: str, label: str, options: argparse.Namespace) -> Run:
    """Runs `python -m …` and returns the JSON object that it prints. `--profile` records our clients with py-spy."""
    command = [sys.executable, "-m", *arguments]
    if options.profile and client.startswith("ours"):
        target = RESULTS / f"profile-{re.sub('[^a-z]+', '-', client)}-{label}.txt"
        spy = [str(Path(sys.executable).with_name("py-spy")), "record", "-f", "raw", "-t", "-n", "-r", "200"]
        command = [*spy, "-o", str(target), "--", *command]
    limit = options.seconds * 10 + 120
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    if done.returncode:
        raise SystemExit(f"{client} failed: {done.stderr[-2000:]}")
    # py-spy talks as well.
    result: Run = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return result


# ---------------------------------------------------------------- the report


def rate(run: Run) -> float:
    """Million records a second."""
    return float(run["records"] / run["seconds"] / 1e6)


def say(run: Run) -> None:
    """One line on stderr when a run is over."""
    what = f"{run['codec']:5} run {run['run'] + 1} {run['client']:24}"
    print(f"{what} {rate(run):7.2f} M records/s", file=sys.stderr)


def rates(runs: list[Run], record_bytes: int, base: float | None) -> str:
    """The columns that all tables have: the median with its range, MB/s, and the ratio to the base's median."""
    each = sorted(map(rate, runs))
    middle = statistics.median(each)
    ratio = "" if base is None else f"{middle / base:.1f} x"
    return f"{middle:.2f} ({each[0]:.2f}-{each[-1]:.2f}) | {middle * record_bytes:.0f} | {ratio}"


def report(
    name: str,
    options: argparse.Namespace,
    runs: list[Run],
    *,
    title: str,
    columns: list[str],
    row: Callable[[list[Run]], list[str]],
) -> None:
    """Prints a table, and writes it with all single runs to benchmarks/results. `columns` and `row`, which takes all
    runs of one client, are what follows the columns of `rates`."""
    machine = machine_facts()
    headings = ["codec", "client", "million records/s", "MB/s", f"against {BASE}", *columns]
    lines = [
        title,
        ", ".join(f"{key} {value}" for key, value in machine.items()),
        "",
        f"| {' | '.join(headings)} |",
        "|---" * len(headings) + "|",
    ]
    for codec in dict.fromkeys(run["codec"] for run in runs):
        chosen = [run for run in runs if run["codec"] == codec]
        base = statistics.median([rate(r) for r in chosen if r["client"] == BASE] or [0.0]) or None
        for client in dict.fromkeys(run["client"] for run in chosen):
            its = [run for run in chosen if run["client"] == client]
            cells = [codec, client, rates(its, options.size + 8, base), *row(its)]
            lines.append(f"| {' | '.join(cells)} |")
    text = "\n".join(lines) + "\n"
    whole = {"at": datetime.now(UTC).isoformat(), "machine": machine, "options": vars(options), "runs": runs}
    (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=1))
    (RESULTS / f"{name}.md").write_text(text)
    print(text)


def machine_facts() -> dict[str, Any]:
    """What a figure has to be read with."""
    return {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("kafka-actors", "confluent-kafka", "aiokafka", "pyarrow", "ray")},
    }
