"""Batches of records as a consumer hands them out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafka_actors.base.batches import SCHEMA


def records(
    values: list[bytes | None],
    *,
    topic: str = "orders",
    partition: int = 0,
    first: int = 0,
    keys: list[bytes | None] | None = None,
    headers: list[list[tuple[str, bytes | None]] | None] | None = None,
    timestamp_ms: int = 1_700_000_000_123,
) -> pa.RecordBatch:
    """A batch of one partition, with offsets that follow each other and a timestamp that counts up."""
    rows: list[dict[str, Any]] = [
        {
            "key": keys[i] if keys else None,
            "value": value,
            "topic": topic,
            "partition": partition,
            "offset": first + i,
            "timestamp": (timestamp_ms + i) * 1000,
            "timestampType": 0,
            "headers": None if headers is None or headers[i] is None else headers[i],
        }
        for i, value in enumerate(values)
    ]
    for row in rows:
        if row["headers"] is not None:
            row["headers"] = [{"key": key, "value": value} for key, value in row["headers"]]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
