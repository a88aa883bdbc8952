"""Batches as they come from Kafka, made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kafka_actors.base.batches import SCHEMA


def records(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[list[tuple[str, bytes | None]] | None] | None = None,
    topic: str = "orders",
    partition: int = 3,
    first: int = 100,
) -> pa.RecordBatch:
    """One batch of one partition, with offsets from `first` on."""
    count = len(values)
    columns = {
        "key": keys or [None] * count,
        "value": values,
        "topic": [topic] * count,
        "partition": [partition] * count,
        "offset": range(first, first + count),
        "timestamp": [1_700_000_000_000_000 + n for n in range(count)],
        "timestampType": [0] * count,
        "headers": [None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers]
        if headers
        else [None] * count,
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


MURMUR2_OF_JAVA = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]
"""Keys and their hashes, of Kafka's own UtilsTest.testMurmur2; its partitioner takes them without the sign bit (`Utils.toPositive`)."""
