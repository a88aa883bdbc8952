"""Dead letters: records that could not be processed are sent to a topic of their own. And records in retry topics, which are tried again:
they have the same headers, and more, that say when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from kafka_actors.base.batches import HEADERS_TYPE, numbers
from kafka_actors.config import ProducerConfig
from kafka_actors.producer import Producer
from kafka_actors.producer.futures import BatchFuture
from kafka_actors.records.batch import MAX_MILLIS

from .kafka import CLOSE_MS, DEAD_LETTER_TOPIC, CopyingProducer, check_target, producer_of, producer_to
from .transactional import ProducerSlot

PREFIX = "kafka_actors.error."
CONTEXT = ("topic", "partition", "offset", "timestamp", "group", "stage", "reason")
"""Names of the headers of a dead letter, in their order."""
MORE = ("timestamp_type", "tier", "attempt", "not_before")
_NAMES = [PREFIX + name for name in (*CONTEXT, *MORE)]
_INT32 = 2**31 - 1
_LATEST = 253_402_300_799_999
"""The last millisecond that a `datetime` has."""
_NUMBERS = {
    "partition": _INT32,
    "offset": 2**63 - 1,
    "timestamp": MAX_MILLIS,
    "timestamp_type": _INT32,
    "tier": _INT32,
    "attempt": _INT32,
    "not_before": _LATEST,
}
"""Headers that are numbers, each with its highest: those of others may be any."""
_OWN = ("topic", "partition", "offset", "timestampType", "headers")
LONGEST_TEXT = 1000


class DeadLetters:
    """Sends failed records with their own key, value and headers, and headers that say where they came from and why.

    `kafka_actors.error.topic`, `.partition` and `.offset` identify the record, which may be sent twice;
    `.timestamp` (ms), `.group`, `.stage` and `.reason` say the rest. The key chooses the partition, so records with the
    same key keep their order.
    """

    flushes_beside_writes = True

    def __init__(
        self, config: ProducerConfig, topic: str, group: str, slot: ProducerSlot | None = None
    ) -> None:
        """`slot`: the producer of a worker with transactions, which then writes them; None for one of their own."""
        self.topic = topic
        self._group = group
        self._slot = slot
        self._producer: Producer | None = None
        if slot is None:
            self._producer = producer_to(config, topic, DEAD_LETTER_TOPIC, CopyingProducer)
        else:
            check_target(config, topic, DEAD_LETTER_TOPIC)

    def write(self, records: pa.RecordBatch, stages: Sequence[str], reasons: Sequence[str]) -> None:
        """Sends records, which have the columns of a fetched batch, with the stage that failed and the reason of each.
        Raises as `Producer.send_batch`."""
        batch = dead_letters(records, stages, reasons, self._group)
        if self._slot is not None:
            self._slot.send(batch, self.topic)
        elif self._producer is not None:
            self._producer.send_batch(batch, self.topic)

    def flush(self) -> None:
        """Waits until the brokers have acknowledged all of them. Raises `UndeliveredError`."""
        if self._producer is not None:
            self._producer.flush()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout_ms=CLOSE_MS)

    def __repr__(self) -> str:
        return f"<DeadLetters to {self.topic}>"


def dead_letters(
    records: pa.RecordBatch,
    stages: Sequence[str],
    reasons: Sequence[str],
    group: str,
    more: Sequence[Sequence[tuple[str, object]]] | None = None,
) -> pa.RecordBatch:
    """The batch to send, with the columns key, value and headers. `more`: what else the headers of each record say."""
    milliseconds = records.column("timestamp").cast(pa.int64()).to_numpy() // 1000
    rows = zip(
        records.column("headers").to_pylist(),
        records.column("topic").to_pylist(),
        records.column("partition").to_pylist(),
        records.column("offset").to_pylist(),
        milliseconds.tolist(),
        stages,
        reasons,
        more or [()] * records.num_rows,
        strict=True,
    )
    headers = []
    for own, topic, partition, offset, timestamp, stage, reason, rest in rows:
        values = (topic, partition, offset, timestamp, group, stage, reason)
        context = [*zip(CONTEXT, values, strict=True), *rest]
        headers.append(
            [*(own or []), *({"key": PREFIX + name, "value": _bytes(value)} for name, value in context)]
        )
    return pa.RecordBatch.from_arrays(
        [records.column("key"), records.column("value"), pa.array(headers, HEADERS_TYPE)],
        names=["key", "value", "headers"],
    )


def _bytes(value: object) -> bytes:
    """A header's value, cut to `LONGEST_TEXT`: a user's error may have any text, of any length."""
    return str(value)[:LONGEST_TEXT].encode(errors="backslashreplace")


def own_headers(headers: Any) -> Any:
    """Returns the headers that a dead letter, or a record of a retry topic, had before: those in front of what was added last, behind which may be
    more that was added on the way, as a trace context. None for none."""
    at = _last_place(headers, _NAMES[: len(CONTEXT)])
    if at is None:  # of others, or changed by them
        return [header for header in headers or () if not header["key"].startswith(PREFIX)] or None
    return headers[:at] or None


def _last_place(headers: Any, names: list[str]) -> int | None:
    """Returns where headers of these names, one after the other, begin for the last time."""
    found = [header["key"] for header in headers or ()]
    last = len(found) - len(names)
    return next((at for at in range(last, -1, -1) if found[at : at + len(names)] == names), None)


# ------------------------------------------------------------ retry topics


class RetryWriter:
    """Writes records into retry topics, under the number of the partition that they came from."""

    flushes_beside_writes = True

    def __init__(self, config: ProducerConfig, group: str) -> None:
        self._group = group
        self._producer: Producer = producer_of(config, CopyingProducer)

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
    due (ms since 1970), 0 for one that nobody has put there as `retry_records` does, and that is left as it is: also one that names another
    partition, into which it would be written again, where other workers and other records of its key are."""

    batch: pa.RecordBatch
    attempts: list[int]
    not_before: list[int]

    def due(self, now_ms: float, topic: str) -> int:
        """Returns how many records at the head are due, of those that came from this topic: a batch has one."""
        rows = zip(self.not_before, self.batch["topic"].to_pylist(), strict=True)
        wrong = (row for row, (at, of) in enumerate(rows) if at > now_ms or of != topic)
        return next(wrong, self.batch.num_rows)


def as_they_were(batch: pa.RecordBatch) -> WaitingRecords:
    """Returns records of a retry partition with the topic, partition, offset, timestamp and headers that they came with."""
    columns: dict[str, list[Any]] = {name: batch[name].to_pylist() for name in _OWN}
    columns["timestamp"] = numbers(batch["timestamp"]).tolist()
    attempts, not_before = [0] * batch.num_rows, [0] * batch.num_rows
    for row, headers in enumerate(columns["headers"]):
        if (said := _said(headers)) is None or said[2]["partition"] != columns["partition"][row]:
            continue
        at, columns["topic"][row], whole = said
        columns["partition"][row] = whole["partition"]
        columns["offset"][row] = whole["offset"]
        columns["timestamp"][row] = whole["timestamp"] * 1000
        columns["timestampType"][row] = whole["timestamp_type"]
        columns["headers"][row] = headers[:at] or None
        attempts[row], not_before[row] = whole["attempt"], whole["not_before"]
    types = {field.name: field.type for field in batch.schema}
    made = {name: batch[name] for name in types}
    made |= {name: pa.array(values, types[name]) for name, values in columns.items()}
    return WaitingRecords(pa.RecordBatch.from_pydict(made, schema=batch.schema), attempts, not_before)


def _said(headers: Any) -> tuple[int, str, dict[str, int]] | None:
    """Returns what the headers of a retry topic say: where they begin, the record's topic, and the numbers; None where there are none.
    They are the last that are together, and behind them may be what was added on the way, as a trace context."""
    if (at := _last_place(headers, _NAMES)) is None:
        return None
    said = {name.removeprefix(PREFIX): headers[at + n]["value"] or b"" for n, name in enumerate(_NAMES)}
    try:
        whole = {name: int(said[name]) for name in _NUMBERS}
        topic = said["topic"].decode()
    except ValueError:
        return None
    return (at, topic, whole) if all(abs(whole[name]) <= most for name, most in _NUMBERS.items()) else None
