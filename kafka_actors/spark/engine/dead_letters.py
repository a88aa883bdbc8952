"""Dead letters in the tasks of Spark: rows with `_error` go to their topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_actors.config import ProducerConfig
from kafka_actors.errors import SinkError
from kafka_actors.events import log_event
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.failure_events import events_of
from kafka_actors.pipeline.rows import FailedRecord
from kafka_actors.pipeline.source import ReadKafka, producer_config
from kafka_actors.sinks import DeadLetters
from kafka_actors.sinks.targets import DEAD_LETTER_TOPIC, check_target
from kafka_actors.spark.worker_cache import WorkerCache

from .frames import ERROR, records_of

STAGE = "dead_letters"


class DeadLetterPlan(msgspec.Struct, frozen=True, eq=False):
    """Where dead letters go; it travels to the tasks."""

    key: str
    topic: str
    source: ReadKafka
    options: dict[str, Any]

    def check(self) -> None:
        """Where the write is planned: the topic is there. Raises as `sinks.targets.check_target`."""
        check_target(self._config(), self.topic, DEAD_LETTER_TOPIC)

    @contextmanager
    def task(self) -> Iterator[TaskDeadLetters]:
        """For one task. The producer is kept for the next one, unless something goes wrong."""
        try:
            yield TaskDeadLetters(_kept.get(self.key, self._open))
        except BaseException:
            _kept.drop(self.key)
            raise

    def _open(self) -> DeadLetters:
        return DeadLetters(self._config(), self.topic, self.source.group_id or "")

    def _config(self) -> ProducerConfig:
        return producer_config(STAGE, self.source, self.options)


_kept: WorkerCache[DeadLetters] = WorkerCache(DeadLetters.close)


def dead_letter_plan(key: str, pipeline: Pipeline) -> DeadLetterPlan | None:
    """None where the pipeline doesn't say where to."""
    if pipeline.dead_letter_topic is None or pipeline.source is None:
        return None
    return DeadLetterPlan(key, pipeline.dead_letter_topic, pipeline.source, pipeline.dead_letter_options)


class TaskDeadLetters:
    """The dead letters of a task. Each that is sent is told of in the executor's log."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters
        self._unflushed = False

    def write_failed(self, failed: pa.RecordBatch) -> None:
        """Rows with `_error`. Raises as `DeadLetters.write`."""
        errors = failed.column(ERROR)
        stages, reasons = (pc.struct_field(errors, name).to_pylist() for name in ("stage", "reason"))
        self.write(
            [FailedRecord(*of) for of in zip(range(len(errors)), stages, reasons, strict=True)],
            records_of(errors),
        )

    def write(self, failed: Sequence[FailedRecord], source: pa.RecordBatch) -> None:
        """Records of `source`. Raises as `DeadLetters.write`."""
        records = source.take(pa.array([f.record for f in failed], pa.int32()))
        self._unflushed = True
        self._letters.write(records, [f.stage for f in failed], [f.reason for f in failed])
        for event in events_of(failed, source, self._letters.topic):
            log_event(event)

    def flush(self) -> None:
        """Raises `SinkError`."""
        if not self._unflushed:
            return
        try:
            self._letters.flush()
        except Exception as error:
            raise SinkError(STAGE, f"{type(error).__name__}: {error}") from error
