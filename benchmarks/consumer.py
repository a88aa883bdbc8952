"""`Consumer` beside confluent-kafka, Java's ConsumerPerformance, aiokafka and the floor, on the same topic in the same run."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import peers
from benchmarks.common import OURS, Client, Section, Stage
from benchmarks.data import FEWER, Data
from benchmarks.peers import CONFLUENT, CONFLUENT_NOTE, JAVA
from benchmarks.reading import Run

AIOKAFKA, FLOOR = "aiokafka", "floor"
CODECS = ("none", "lz4", "zstd")


def sections() -> list[Section]:
    batches = {OURS: "our_consumer:batches", CONFLUENT: "peers:confluent", FLOOR: "floor:floor"}
    found = []
    for codec in CODECS:
        data, fewer = Data(codec), Data(codec, records=FEWER)
        clients = {**reading(batches, data), JAVA: java(data), **reading({AIOKAFKA: "peers:aiokafka"}, fewer)}
        title = f"100-byte values, {codec}, batch by batch"
        once = frozenset({AIOKAFKA})
        notes = f"{CONFLUENT_NOTE}. {AIOKAFKA} reads {FEWER:,} of them, once"
        found.append(Section(f"consumer/{codec}", title, clients, [data, fewer], once=once, notes=notes))
    for name, size, records in (("1KB", 1_000, 5_000_000), ("50KB", 50_000, 100_000)):
        data = Data(size=size, records=records)
        title = f"{name} values, none, batch by batch"
        clients = reading(batches, data)
        found.append(Section(f"consumer/{name}", title, clients, [data], notes=CONFLUENT_NOTE))
    return found


def reading(clients: dict[str, str], data: Data) -> dict[str, Client]:
    """Each reads the topic in a fresh process."""
    return {name: reads(where, data) for name, where in clients.items()}


def reads(where: str, data: Data, **task_options: object) -> Client:
    return lambda stage: stage.run(where, stage.task(data, **task_options))


def java(data: Data) -> Callable[[Stage], Run]:
    return lambda stage: peers.java(stage.cluster, stage.task(data))
