"""What a worker of a pipeline's job runs: all stages on each batch, then the sink and the dead letters."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import ClassVar

import msgspec
import pyarrow as pa

from kafka_actors.config import ClientConfig
from kafka_actors.errors import KafkaActorsError, SinkError
from kafka_actors.events import EventSink, RecordsDeadLettered, RecordsSkipped, log_event
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.checking import Checked, Step
from kafka_actors.pipeline.fused import Fused, once
from kafka_actors.pipeline.guard import Guard
from kafka_actors.pipeline.output import preparing
from kafka_actors.pipeline.rows import Failed, Rows
from kafka_actors.pipeline.source import ReadKafka, producer_config
from kafka_actors.pipeline.stages import WriteFunction, WriteKafka, WriteParquet
from kafka_actors.sinks import (
    DeadLetters,
    KafkaWriter,
    ParquetWriter,
    UserSink,
    Writer,
    origin_of,
)

logger = logging.getLogger(__name__)


class Plan(msgspec.Struct, frozen=True):
    """What travels to the workers."""

    pipeline: Pipeline
    group_id: str


def process_of(plan: Plan) -> type[PipelineProcess]:
    """A class without arguments, as `Job` wants it: made once in each worker."""

    class Bound(PipelineProcess):
        bound = plan

    return Bound


class PipelineProcess:
    """Made in the worker: users' classes, the sink and the dead letters are made here.

    `flush` may be called while a batch is being worked on: writing and flushing take turns.
    """

    bound: ClassVar[Plan]

    def __init__(self, events: EventSink = log_event) -> None:
        pipeline = self.bound.pipeline
        checked = pipeline.check("ray")
        assert checked.sink is not None
        assert pipeline.source is not None
        self._events = events
        self._lock = threading.Lock()
        self._unflushed = False
        self._policies = {step.stage.name: step.on_error for step in (*checked.steps, checked.sink)}
        self._stages = Fused(checked.steps, retries=pipeline.retries)
        self._sink = opened(checked.sink, pipeline.source)
        self._writing = _guarded(checked, self._write, pipeline.retries)
        self._dead: DeadLetters | None = None
        if pipeline.dead_letter_topic is not None:
            config = producer_config("dead_letters", pipeline.source, pipeline.dead_letter_options)
            self._dead = DeadLetters(config, pipeline.dead_letter_topic, self.bound.group_id)

    def __call__(self, batch: pa.RecordBatch) -> None:
        """Raises `StageError`, and what keeps a dead letter from being sent."""
        rows, failures = self._stages.run(batch)
        for part in rows:
            self._writing.run(part, batch, failures)
        if failures:
            self._take_out(batch, once(failures))

    def _write(self, prepared: pa.RecordBatch, batch: pa.RecordBatch) -> None:
        with self._lock:
            self._unflushed = True
            self._sink.write(prepared, origin_of(batch))

    def _take_out(self, batch: pa.RecordBatch, failures: list[Failed]) -> None:
        """Dead letters are sent, and both kinds told of: one event for the records of a stage."""
        dead = [f for f in failures if self._policies[f.stage] == "dead_letter"]
        if dead:
            assert self._dead is not None
            records = batch.take(pa.array([f.record for f in dead]))
            with self._lock:
                self._unflushed = True
                self._dead.write(records, [f.stage for f in dead], [f.reason for f in dead])
        where = origin_of(batch)
        offsets = batch.column("offset")
        for stage, of_stage in groupby(sorted(failures, key=_stage), key=_stage):
            found = list(of_stage)
            span = (
                where.topic,
                where.partition,
                offsets[found[0].record].as_py(),
                offsets[found[-1].record].as_py(),
            )
            said = f"stage {stage}: {len(found)} records, the first: {found[0].reason}"
            if self._policies[stage] == "dead_letter" and self._dead is not None:
                self._events(RecordsDeadLettered(*span, len(found), self._dead.topic, said))
            else:
                self._events(RecordsSkipped(*span, said))

    def flush(self) -> None:
        """Returns when all that was given out is safe. Raises `SinkError`."""
        with self._lock:
            if not self._unflushed:
                return
            for name, writer in ((self._writing.name, self._sink), ("dead_letters", self._dead)):
                try:
                    if writer is not None:
                        writer.flush()
                except Exception as error:
                    raise SinkError(name, f"{type(error).__name__}: {error}") from error
            self._unflushed = False

    def close(self) -> None:
        self._stages.close()
        for writer in (self._sink, self._dead):
            if writer is not None:
                with suppress(KafkaActorsError):
                    writer.close()


def _stage(failure: Failed) -> str:
    return failure.stage


def opened(step: Step, source: ReadKafka) -> Writer:
    """The sink of a pipeline, open. Raises what keeps it from opening."""
    stage = step.stage
    if isinstance(stage, WriteKafka):
        return KafkaWriter(producer_config(stage.name, source, stage.options), stage.topic)
    if isinstance(stage, WriteParquet):
        return ParquetWriter(stage.path, stage.compression)
    assert isinstance(stage, WriteFunction)
    return UserSink(stage.target, stage.arguments).open(ClientConfig())


class _Writing:
    """The sink as the last stage: what it refuses at once is an error of its rows, with the sink's policy."""

    retriable = True

    def __init__(self, checked: Checked, write: Callable[[pa.RecordBatch, pa.RecordBatch], None]) -> None:
        self._prepare = preparing(checked)
        self._write = write

    def run(self, rows: Rows, source: pa.RecordBatch) -> list[Rows]:
        if rows.batch.num_rows:
            self._write(self._prepare(rows, source), source)
        return []

    def close(self) -> None:
        pass


def _guarded(
    checked: Checked, write: Callable[[pa.RecordBatch, pa.RecordBatch], None], retries: int
) -> Guard:
    assert checked.sink is not None
    return Guard(
        checked.sink.stage.name, checked.sink.on_error, retries, _Writing(checked, write), time.sleep
    )
