"""Which settings of confluent-kafka are fastest here: `python -m benchmarks tune`. What it finds is in peers.py."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.common import Options, Section, run_sections
from benchmarks.data import Data

TRIED: tuple[dict[str, Any], ...] = (
    {"fetch.queue.backoff.ms": 1000},
    {"fetch.queue.backoff.ms": 100},
    {"fetch.queue.backoff.ms": 10},
    {"fetch.queue.backoff.ms": 1},
    {"queued.max.messages.kbytes": 1_048_576, "queued.min.messages": 1_000_000},
    {"fetch.queue.backoff.ms": 10, "queued.min.messages": 10_000},
    {"fetch.queue.backoff.ms": 10, "fetch.message.max.bytes": 262_144},
    {"fetch.queue.backoff.ms": 10, "fetch.message.max.bytes": 4_194_304},
    {"fetch.queue.backoff.ms": 10, "fetch.min.bytes": 1_048_576},
)


def main(options: Options) -> None:
    sections = []
    for data in (Data(records=4_000_000), Data("zstd", records=10_000_000)):
        clients = {
            ", ".join(
                f"{name}={value}" for name, value in settings.items()
            ): lambda stage, d=data, s=settings: stage.run("peers:confluent", stage.task(d, **s))
            for settings in TRIED
        }
        sections.append(Section(data.codec, data.topic, clients, [data]))
    for codec, result in run_sections(sections, options):
        for client in dict.fromkeys(run["client"] for run in result["runs"]):
            rates = [run["rate"] / 1e6 for run in result["runs"] if run["client"] == client]
            print(
                f"{codec:5} {statistics.median(rates):6.2f} ({min(rates):.2f}-{max(rates):.2f}) M/s  {client}"
            )
