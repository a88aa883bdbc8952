"""Equal bytes in few and in many partitions."""

from __future__ import annotations

from benchmarks.common import Section
from benchmarks.consumer import reads
from benchmarks.data import Data

RECORDS = 30_000_000
PARTITIONS = (1, 8, 64, 512)


def name_of(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''}"


def sections() -> list[Section]:
    topics = {name_of(n): Data(partitions=n, records=RECORDS) for n in PARTITIONS}
    clients = {name: reads("our_consumer:batches", data) for name, data in topics.items()}
    title = f"Consumer, {RECORDS:,} values of 100 bytes, none, by the number of partitions"
    return [Section("scale", title, clients, list(topics.values()))]
