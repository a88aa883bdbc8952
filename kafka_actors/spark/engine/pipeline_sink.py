"""Sink of a pipeline as a data source of its own, whose tasks write rows and send dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import ClassVar

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kafka_actors.errors import KafkaActorsError, SinkError
from kafka_actors.events import log_event
from kafka_actors.pipeline.engines import CheckedPipeline
from kafka_actors.pipeline.fused import FailedRecord, events_of, of_policy, once
from kafka_actors.pipeline.source import ReadKafka, producer_config
from kafka_actors.pipeline.stages import WriteKafka
from kafka_actors.sinks import Writer, origin_of
from kafka_actors.sinks.kafka import SINK_TOPIC, check_target, is_final
from kafka_actors.sinks.stage import guarded, opened
from kafka_actors.spark.python_worker import WorkerCache, freeze_imports
from kafka_actors.spark.source.task_tracing import traced_task

from .dead_letters import DeadLetterPlan, TaskDeadLetters
from .frames import PipelineFrame


class SinkPlan(msgspec.Struct, frozen=True, eq=False):
    """Write of a pipeline, pickled to the tasks and never part of a Spark plan. `before`: the frame that is written."""

    name: str
    key: str
    source: ReadKafka
    checked: CheckedPipeline
    retries: int
    before: PipelineFrame
    dead_letters: DeadLetterPlan | None


def sink_of(plan: SinkPlan) -> type[DataSource]:
    """Makes a class to register in a session, bound to the plan."""

    class Bound(PipelineSink):
        bound = plan

    return Bound


class PipelineSink(DataSource):
    """Data source of a pipeline's write; see the module. Its name is the plan's."""

    bound: ClassVar[SinkPlan]

    @classmethod
    def name(cls) -> str:
        return cls.bound.name

    def writer(self, schema: StructType, overwrite: bool) -> PipelineBatchWriter:
        return PipelineBatchWriter(self.bound)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PipelineStreamWriter:
        return PipelineStreamWriter(self.bound)


class SinkCommit(WriterCommitMessage):
    """Result of a task: all of its rows are durable; or an error that a retry would only repeat."""

    def __init__(self, refused: KafkaActorsError | None = None) -> None:
        self.refused = refused


def checked_plan(plan: SinkPlan) -> SinkPlan:
    """Checks, where the write is planned, that its topics exist. Raises `UnknownTopicOrPartitionError`."""
    freeze_imports()
    stage = None if plan.checked.sink is None else plan.checked.sink.stage
    if isinstance(stage, WriteKafka):
        check_target(producer_config(stage.name, plan.source, stage.options), stage.topic, SINK_TOPIC)
    if plan.dead_letters is not None:
        plan.dead_letters.check()
    return plan


def raise_refused(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Ends a write of which all tasks have returned. Raises the permanent error of a task."""
    for message in messages:
        if isinstance(message, SinkCommit) and message.refused is not None:
            raise message.refused


class PipelineBatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = checked_plan(plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Writes the rows of a task. Raises `StageError`, `SinkError`."""
        return _write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Ends a write of which all tasks have returned. Raises `StageError`, `SinkError`."""
        raise_refused(messages)


class PipelineStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a stream. A micro-batch that Spark runs again after a crash is written again."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = checked_plan(plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Writes the rows of a task. Raises `StageError`, `SinkError`."""
        return _write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Ends a write of which all tasks have returned. Raises `StageError`, `SinkError`."""
        raise_refused(messages)


# ---------------------------------------------------------------- in a task


def _close(sink: Writer) -> None:
    with suppress(KafkaActorsError):  # its rows are of a failed task, which has raised already
        sink.close()


_cache: WorkerCache[Writer] = WorkerCache(_close)


def _write(plan: SinkPlan, batches: Iterator[pa.RecordBatch]) -> SinkCommit:
    freeze_imports()
    sink_step = plan.checked.sink
    assert sink_step is not None  # a plan is made for one
    try:
        with traced_task(), ExitStack() as stack:
            dead = None if plan.dead_letters is None else stack.enter_context(plan.dead_letters.task())
            try:
                sink = _cache.get(plan.key, lambda: opened(sink_step, plan.source))
                task = SinkTask(plan, sink, dead)
                for batch in batches:
                    task.write(batch)
                task.flush()
            except BaseException:
                _cache.drop(plan.key)
                raise
    except KafkaActorsError as error:
        if not is_final(error):
            raise
        return SinkCommit(error)  # Spark would retry a task that raises three times
    return SinkCommit()


class SinkTask:
    """Write of one task: rows go to the sink; records that failed before, or that the sink refuses, to the dead letters."""

    def __init__(self, plan: SinkPlan, sink: Writer, dead: TaskDeadLetters | None) -> None:
        assert plan.checked.sink is not None  # as above
        self._before = plan.before
        self._sink = sink
        self._dead = dead
        self._step = plan.checked.sink
        self._writing = guarded(plan.checked, self._to_sink, plan.retries)

    def write(self, batch: pa.RecordBatch) -> None:
        """Writes a batch. Raises `StageError`."""
        good, failed = self._before.split(batch)
        for part in self._before.parts(good):
            failures: list[FailedRecord] = []
            self._writing.run(part.rows, part.source, failures)
            self._handle_failures(once(failures), part.source)
        if failed is not None:
            self._dead_letters.write_failed(failed)

    def _to_sink(self, prepared: pa.RecordBatch, source: pa.RecordBatch) -> None:
        self._sink.write(prepared, origin_of(source))

    def _handle_failures(self, failures: list[FailedRecord], source: pa.RecordBatch) -> None:
        policies = {self._step.stage.name: self._step.on_error}
        if dead := of_policy(failures, policies, "dead_letter"):
            self._dead_letters.write(dead, source)
        for event in events_of(of_policy(failures, policies, "skip"), source):
            log_event(event)

    @property
    def _dead_letters(self) -> TaskDeadLetters:
        assert self._dead is not None, "the check of a pipeline asks where dead letters go"
        return self._dead

    def flush(self) -> None:
        """Waits until all rows are durable. Raises `SinkError`."""
        try:
            self._sink.flush()
        except Exception as error:
            raise SinkError(self._step.stage.name, f"{type(error).__name__}: {error}") from error
        if self._dead is not None:
            self._dead.flush()
