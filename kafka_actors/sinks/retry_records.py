"""Records in retry topics: as they were, with headers behind their own that say where they came from and when they are tried again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from kafka_actors.base.batches import numbers
from kafka_actors.config import ProducerConfig
from kafka_actors.producer import Producer
from kafka_actors.producer.futures import BatchFuture

from .dead_letters import CONTEXT, PREFIX, dead_letters
from .kafka import CLOSE_MS, producer_of

__all__ = ["RetryWriter", "WaitingRecords", "as_they_were", "retry_records"]

MORE = ("timestamp_type", "tier", "attempt", "not_before")
_NAMES = [PREFIX + name for name in (*CONTEXT, *MORE)]
_NUMBERS = ("partition", "offset", "timestamp", *MORE)
_OWN = ("topic", "partition", "offset", "timestampType", "headers")


class RetryWriter:
    """Writes records into retry topics, under the number of the partition that they came from."""

    def __init__(self, config: ProducerConfig, group: str) -> None:
        self._group = group
        self._producer: Producer = producer_of(config)

    def write(
        self,
        records: pa.RecordBatch,
        topic: str,
        reasons: Sequence[str],
        tier: int,
        attempts: Sequence[int],
        not_before: Sequence[int],
    ) -> BatchFuture:
        """Sends records, as `retry_records` makes them. Returns the outcome to come. Raises as `Producer.send_batch`."""
        made = retry_records(records, reasons, self._group, tier, attempts, not_before)
        return self._producer.send_batch(made, topic)

    def flush(self) -> None:
        """Waits until the brokers have acknowledged all of them. Raises `UndeliveredError`."""
        self._producer.flush()

    def close(self) -> None:
        self._producer.close(timeout_ms=CLOSE_MS)

    def __repr__(self) -> str:
        return "<RetryWriter>"


def retry_records(
    records: pa.RecordBatch,
    reasons: Sequence[str],
    group: str,
    tier: int,
    attempts: Sequence[int],
    not_before: Sequence[int],
) -> pa.RecordBatch:
    """Makes the batch to send, with the columns key, value, headers and partition.

    Headers are those of a dead letter, and `kafka_actors.error.timestamp_type`, `.tier`, `.attempt` (calls that have failed so far) and
    `.not_before` (ms since 1970).
    """
    rows = zip(
        records.column("timestampType").to_pylist(), [tier] * len(attempts), attempts, not_before, strict=True
    )
    more = [[(name, value) for name, value in zip(MORE, row, strict=True)] for row in rows]
    made = dead_letters(records, ["process"] * len(more), reasons, group, more)
    return made.append_column("partition", records.column("partition"))


class WaitingRecords(NamedTuple):
    """Records of a retry partition. `batch`: as they were first read, `attempts`: calls that have failed so far, `not_before`: when each is
    due (ms since 1970), 0 for one that nobody has put there as `retry_records` does, and that is left as it is."""

    batch: pa.RecordBatch
    attempts: list[int]
    not_before: list[int]

    def due(self, now_ms: float) -> int:
        """Returns how many records at the head are due, of those that came from one topic: a batch has one."""
        first = next((row for row, at in enumerate(self.not_before) if at > now_ms), len(self.not_before))
        topics = self.batch["topic"].to_pylist()
        return next((row for row in range(first) if topics[row] != topics[0]), first)


def as_they_were(batch: pa.RecordBatch) -> WaitingRecords:
    """Returns records of a retry partition with the topic, partition, offset, timestamp and headers that they came with."""
    columns: dict[str, list[Any]] = {name: batch[name].to_pylist() for name in _OWN}
    columns["timestamp"] = numbers(batch["timestamp"]).tolist()
    attempts, not_before = [0] * batch.num_rows, [0] * batch.num_rows
    for row, headers in enumerate(columns["headers"]):
        if (said := _said(headers)) is None:
            continue
        columns["topic"][row], whole = said
        columns["partition"][row] = whole["partition"]
        columns["offset"][row] = whole["offset"]
        columns["timestamp"][row] = whole["timestamp"] * 1000
        columns["timestampType"][row] = whole["timestamp_type"]
        columns["headers"][row] = headers[: -len(_NAMES)] or None
        attempts[row], not_before[row] = whole["attempt"], whole["not_before"]
    types = {field.name: field.type for field in batch.schema}
    made = {name: batch[name] for name in types}
    made |= {name: pa.array(values, types[name]) for name, values in columns.items()}
    return WaitingRecords(pa.RecordBatch.from_pydict(made, schema=batch.schema), attempts, not_before)


def _said(headers: Any) -> tuple[str, dict[str, int]] | None:
    """Returns what the last headers of a record say, its topic and the numbers; None where they aren't those of a retry topic."""
    last = (headers or [])[-len(_NAMES) :]
    if [header["key"] for header in last] != _NAMES:
        return None
    said = {header["key"].removeprefix(PREFIX): header["value"] or b"" for header in last}
    try:
        return said["topic"].decode(), {name: int(said[name]) for name in _NUMBERS}
    except ValueError:
        return None
