"""Dead letters in Spark's tasks: rows with `_error` are sent to the dead-letter topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_actors.config import ProducerConfig
from kafka_actors.events import log_event
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FailedRecord, events_of
from kafka_actors.pipeline.source import ReadKafka, producer_config
from kafka_actors.sinks import DeadLetters
from kafka_actors.sinks.kafka import DEAD_LETTER_TOPIC, check_target
from kafka_actors.sinks.sink import flush_all
from kafka_actors.spark.python_worker import WorkerCache
from kafka_actors.spark.source.arrow_types import ERROR, records_of

STAGE = "dead_letters"


class DeadLetterPlan(msgspec.Struct, frozen=True, eq=False):
    """Target of dead letters, which is pickled to the tasks."""

    key: str
    topic: str
    source: ReadKafka
    options: dict[str, Any]

    def check(self) -> None:
        """Checks, where the write is planned, that the topic exists. Raises as `sinks.kafka.check_target`."""
        check_target(self._config(), self.topic, DEAD_LETTER_TOPIC)

    @contextmanager
    def task(self) -> Iterator[TaskDeadLetters]:
        """Context of one task. The producer is cached for the next one, unless the block raises."""
        try:
            yield TaskDeadLetters(_cache.get(self.key, self._open))
        except BaseException:
            _cache.drop(self.key)
            raise

    def _open(self) -> DeadLetters:
        return DeadLetters(self._config(), self.topic, self.source.group_id or "")

    def _config(self) -> ProducerConfig:
        return producer_config(STAGE, self.source, self.options)


_cache: WorkerCache[DeadLetters] = WorkerCache(DeadLetters.close)


def dead_letter_plan(key: str, pipeline: Pipeline) -> DeadLetterPlan | None:
    """The target of a pipeline's dead letters, None where it has no topic."""
    if pipeline.dead_letter_topic is None or pipeline.source is None:
        return None
    return DeadLetterPlan(key, pipeline.dead_letter_topic, pipeline.source, pipeline.dead_letter_options)


class TaskDeadLetters:
    """Dead letters of a task. Each one sent is logged as an event in the executor."""

    def __init__(self, dead_letters: DeadLetters) -> None:
        self._dead_letters = dead_letters
        self._unflushed = False

    def write_failed(self, failed: pa.RecordBatch) -> None:
        """Sends the records in rows with `_error`. Raises as `DeadLetters.write`."""
        errors = failed.column(ERROR)
        stages, reasons = (pc.struct_field(errors, name).to_pylist() for name in ("stage", "reason"))
        self.write(
            [FailedRecord(*of) for of in zip(range(len(errors)), stages, reasons, strict=True)],
            records_of(errors),
        )

    def write(self, failed: Sequence[FailedRecord], source: pa.RecordBatch) -> None:
        """Sends failed records of `source`. Raises as `DeadLetters.write`."""
        records = source.take(pa.array([f.record for f in failed], pa.int32()))
        self._unflushed = True
        self._dead_letters.write(records, [f.stage for f in failed], [f.reason for f in failed])
        for event in events_of(failed, source, self._dead_letters.topic):
            log_event(event)

    def flush(self) -> None:
        """Waits until all are acknowledged. Raises `SinkError`."""
        if not self._unflushed:
            return
        flush_all([(STAGE, self._dead_letters)])
