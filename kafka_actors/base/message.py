"""`Message`: one record of a batch as a Python object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Any

import pyarrow as pa
from msgspec import Struct

from kafka_actors.base.batches import numbers

__all__ = ["Message", "messages_of"]

BLOCK = 1024  # rows turned into Python objects at a time: a break after the first message should cost little

Headers = tuple[tuple[str, bytes | None], ...]


class Message(Struct, frozen=True, gc=False):
    """One record. `timestamp` is milliseconds since 1970, -1 for none; `timestamp_type` 0 for CreateTime, 1 for
    LogAppendTime, -1 for none. `key`, `value` and the values of `headers` are bytes, or None where they are null.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def messages_of(batch: pa.RecordBatch, start: int = 0) -> Iterator[Message]:
    """Yields the records of a batch in order, from row `start` on. The batch has the columns of `records.SCHEMA`."""
    blocks = (_block(batch.slice(first, BLOCK)) for first in range(start, batch.num_rows, BLOCK))
    return chain.from_iterable(blocks)


def _block(batch: pa.RecordBatch) -> Iterator[Message]:
    """Makes messages of a block: columns become lists and lists become messages in C, without Python code per record."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    milliseconds = numbers(columns["timestamp"]) // 1000
    return map(
        Message,
        repeat(columns["topic"][0].as_py()),
        repeat(columns["partition"][0].as_py()),
        numbers(columns["offset"]).tolist(),
        milliseconds.tolist(),
        numbers(columns["timestampType"]).tolist(),
        columns["key"].to_pylist(),
        columns["value"].to_pylist(),
        _headers(columns["headers"]),
    )


def _headers(column: Any) -> Iterable[Headers]:
    if column.null_count == len(column):
        return repeat((), len(column))
    return [tuple((h["key"], h["value"]) for h in row) if row else () for row in column.to_pylist()]
