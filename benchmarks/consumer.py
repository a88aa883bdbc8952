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
import statistics
import time
from typing import Any

from benchmarks.common import RESULTS, Run, filled_topics, fresh_process, parser_of, report, say
from benchmarks.peers import CLIENTS
from kafka_actors.testing import BENCHMARK_JVM, KafkaCluster

JAVA = "java"


def main() -> None:
    options = parsed()
    RESULTS.mkdir(exist_ok=True)
    runs: list[Run] = []
    for cluster, codec, task in filled_topics(options):
        for number in range(options.runs):
            for client in options.clients.split(","):
                if client == JAVA:
                    run = measure_java(cluster, task, options)
                else:
                    run = measure(client, task, options, f"{codec}-{number}")
                runs.append({"codec": codec, "client": client, "run": number, **run})
                say(runs[-1])
    report(
        "consumer",
        options,
        runs,
        title=f"{options.records:,} records of {options.size} bytes and an 8-byte key in {options.partitions} "
        f"partitions; medians of {options.runs} alternating runs of {options.seconds:g} s, range in brackets",
        columns=["CPU cores", "start-up s", "RSS MB at 25 % / 90 %"],
        row=row,
    )


def parsed() -> argparse.Namespace:
    parser = parser_of("consumer", records=5_000_000)
    parser.add_argument("--clients", default=",".join([*CLIENTS, JAVA]))
    return parser.parse_args()


def measure(client: str, task: dict[str, Any], options: argparse.Namespace, label: str) -> Run:
    """One run in a fresh process."""
    run = fresh_process(["benchmarks.peers", client, json.dumps(task)], client, label, options)
    time.sleep(0.5)
    return run


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


def row(runs: list[Run]) -> list[str]:
    """CPU, start-up and memory of one client; Java's process is not looked into."""
    start_up = f"{statistics.median(run['start_up'] for run in runs):.2f}"
    if "cpu" not in runs[0]:
        return ["", start_up, ""]
    cores = statistics.median(run["cpu"] / run["seconds"] for run in runs)
    early, late = (statistics.median(run[key] for run in runs) for key in ("rss_early", "rss_late"))
    return [f"{cores:.2f}", start_up, f"{early:.0f} / {late:.0f}"]


if __name__ == "__main__":
    main()
