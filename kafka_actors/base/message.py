"""`Message`: one record of a batch as a Python object."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import pyarrow as pa
from msgspec import Struct

from kafka_actors.base.batches import numbers

__all__ = ["Message", "MessageBlocks", "messages_of"]

BLOCK = 1024  # rows turned into Python objects at a time: a break after the first message should cost little
BY_THEMSELVES = 8  # rows that take as long to turn into objects one by one as a block does at once
KEPT = 4  # blocks

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


class MessageBlocks:
    """Makes messages of single rows of batches, so that whoever holds many batches does not hold each record twice.

    A block costs as much as `BY_THEMSELVES` rows do one by one. So it is made once that many of it were asked for, and the last blocks are
    kept: where rows come in about their order, nearly all are made in blocks, and in no order does it cost more than twice as much as in the
    better way. May be used by several threads.
    """

    def __init__(self) -> None:
        self._kept: tuple[tuple[pa.RecordBatch, int, list[Message]], ...] = ()
        self._missed: dict[tuple[int, int], int] = {}

    def of(self, batch: pa.RecordBatch, rows: Sequence[int]) -> list[Message]:
        """Returns the messages of some rows, which rise."""
        first = rows[0] - rows[0] % BLOCK
        if rows[-1] >= first + BLOCK:
            within = bisect_left(rows, first + BLOCK)
            return self.of(batch, rows[:within]) + self.of(batch, rows[within:])
        for of, start, messages in self._kept:
            if start == first and of is batch:
                return [messages[row - first] for row in rows]
        if not self._pays(batch, first, len(rows)):
            return [message for row in rows for message in _block(batch.slice(row, 1))]
        messages = list(_block(batch.slice(first, BLOCK)))
        self._kept = ((batch, first, messages), *self._kept[: KEPT - 1])
        return [messages[row - first] for row in rows]

    def _pays(self, batch: pa.RecordBatch, first: int, rows: int) -> bool:
        """Whether so many rows of a block have been asked for that it is worth making it. A batch that gets the `id` of one that is gone has its
        block made early, no more."""
        if len(self._missed) > 10 * KEPT:
            self._missed.clear()
        missed = self._missed.get((id(batch), first), 0) + rows
        self._missed[id(batch), first] = missed if missed < BY_THEMSELVES else 0
        return missed >= BY_THEMSELVES


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
