"""Records that could not be worked on, to a topic of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kafka_actors.base.batches import HEADERS_TYPE
from kafka_actors.config import ProducerConfig

from .kafka import CLOSE_MS
from .targets import DEAD_LETTER_TOPIC, producer_to

PREFIX = "kafka_actors.error."
LONGEST_TEXT = 1000


class DeadLetters:
    """Sends records as they were, key, value and headers, with headers that say where they came from and why.

    `kafka_actors.error.topic`, `.partition` and `.offset` tell which record it is: it may come twice; `.timestamp`
    (ms), `.group`, `.stage` and `.reason` the rest. Records go by their key, so those of a key keep their order.
    """

    def __init__(self, config: ProducerConfig, topic: str, group: str) -> None:
        self.topic = topic
        self._group = group
        self._producer = producer_to(config, topic, DEAD_LETTER_TOPIC)

    def write(self, records: pa.RecordBatch, stages: Sequence[str], reasons: Sequence[str]) -> None:
        """Records with the columns that were read; for each the stage that failed and why. Raises as
        `Producer.send_batch`."""
        self._producer.send_batch(dead_letters(records, stages, reasons, self._group), self.topic)

    def flush(self) -> None:
        """Returns when all are acknowledged. Raises `UndeliveredError`."""
        self._producer.flush()

    def close(self) -> None:
        self._producer.close(timeout_ms=CLOSE_MS)

    def __repr__(self) -> str:
        return f"<DeadLetters to {self.topic}>"


def dead_letters(
    records: pa.RecordBatch, stages: Sequence[str], reasons: Sequence[str], group: str
) -> pa.RecordBatch:
    """What is sent, with columns key, value and headers."""
    milliseconds = records.column("timestamp").cast(pa.int64()).to_numpy() // 1000
    rows = zip(
        records.column("headers").to_pylist(),
        records.column("topic").to_pylist(),
        records.column("partition").to_pylist(),
        records.column("offset").to_pylist(),
        milliseconds.tolist(),
        stages,
        reasons,
        strict=True,
    )
    headers = []
    for own, topic, partition, offset, timestamp, stage, reason in rows:
        said = {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": timestamp,
            "group": group,
            "stage": stage,
            "reason": reason,
        }
        more = [{"key": PREFIX + name, "value": _bytes(value)} for name, value in said.items()]
        headers.append([*(own or []), *more])
    return pa.RecordBatch.from_arrays(
        [records.column("key"), records.column("value"), pa.array(headers, HEADERS_TYPE)],
        names=["key", "value", "headers"],
    )


def _bytes(value: object) -> bytes:
    """A user's error may say anything, and at any length."""
    return str(value)[:LONGEST_TEXT].encode(errors="backslashreplace")
