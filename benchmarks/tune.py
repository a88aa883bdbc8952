"""Which settings of confluent-kafka are fastest here, and which size of a fetch makes the floor.

`python -m benchmarks tune --rounds 3`; what it finds is in peers.py and floor.py.
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.common import Client, Options, Section, run_sections
from benchmarks.consumer import reads
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


FLOORS = (256, 1024, 4096)
"""KiB a partition."""


def main(options: Options) -> None:
    sections = []
    for data in (Data(records=5_000_000), Data("zstd", records=5_000_000)):
        clients: dict[str, Client] = {}
        for settings in TRIED:
            name = ", ".join(f"{name}={value}" for name, value in settings.items())
            clients[name] = reads("peers:confluent", data, **settings)
        for kib in FLOORS:
            name = f"floor, {kib} KiB a partition"
            clients[name] = reads("floor:floor", data, partition_max_bytes=kib * 1024)
        sections.append(Section(data.codec, data.topic, clients, [data]))
    for codec, result in run_sections(sections, options):
        for client in dict.fromkeys(run["client"] for run in result["runs"]):
            rates = [run["rate"] / 1e6 for run in result["runs"] if run["client"] == client]
            middle = statistics.median(rates)
            print(f"{codec:5} {middle:6.2f} ({min(rates):.2f}-{max(rates):.2f}) M/s  {client}")
