"""Dead letters: records that could not be processed are sent to a topic of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kafka_actors.base.batches import HEADERS_TYPE
from kafka_actors.config import ProducerConfig
from kafka_actors.producer import Producer

from .kafka import CLOSE_MS, DEAD_LETTER_TOPIC, check_target, producer_to
from .transactional import ProducerSlot

PREFIX = "kafka_actors.error."
CONTEXT = ("topic", "partition", "offset", "timestamp", "group", "stage", "reason")
"""What the headers of a dead letter say, in their order."""
LONGEST_TEXT = 1000


class DeadLetters:
    """Sends failed records with their own key, value and headers, and headers that say where they came from and why.

    `kafka_actors.error.topic`, `.partition` and `.offset` identify the record, which may be sent twice;
    `.timestamp` (ms), `.group`, `.stage` and `.reason` say the rest. The key chooses the partition, so records with the
    same key keep their order.
    """

    def __init__(
        self, config: ProducerConfig, topic: str, group: str, slot: ProducerSlot | None = None
    ) -> None:
        """`slot`: the producer of a worker with transactions, which then writes them; None for one of their own."""
        self.topic = topic
        self._group = group
        self._slot = slot
        self._producer: Producer | None = None
        if slot is None:
            self._producer = producer_to(config, topic, DEAD_LETTER_TOPIC)
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
