"""The sink of a pipeline as a data source of its own: its tasks write rows, and dead letters beside them."""

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
from kafka_actors.pipeline.check import CheckedPipeline
from kafka_actors.pipeline.failure_events import events_of, of_policy
from kafka_actors.pipeline.fused import once
from kafka_actors.pipeline.rows import FailedRecord
from kafka_actors.pipeline.source import ReadKafka, producer_config
from kafka_actors.pipeline.stages import WriteKafka
from kafka_actors.sinks import Writer, origin_of
from kafka_actors.sinks.stage import guarded, opened
from kafka_actors.sinks.targets import SINK_TOPIC, check_target, is_final
from kafka_actors.spark.source.gc_settings import leave_imports_out
from kafka_actors.spark.source.task_tracing import traced_task
from kafka_actors.spark.worker_cache import WorkerCache

from .dead_letters import DeadLetterPlan, TaskDeadLetters
from .frames import PipelineFrame


class SinkPlan(msgspec.Struct, frozen=True, eq=False):
    """It travels to the tasks, never into a Spark plan. `before`: the DataFrame that is written."""

    name: str
    key: str
    source: ReadKafka
    checked: CheckedPipeline
    retries: int
    before: PipelineFrame
    dead_letters: DeadLetterPlan | None


def sink_of(plan: SinkPlan) -> type[DataSource]:
    """A class to register in a session, bound to the plan."""

    class Bound(PipelineSink):
        bound = plan

    return Bound


class PipelineSink(DataSource):
    """See the module. Its name is the plan's."""

    bound: ClassVar[SinkPlan]

    @classmethod
    def name(cls) -> str:
        return cls.bound.name

    def writer(self, schema: StructType, overwrite: bool) -> PipelineBatchWriter:
        return PipelineBatchWriter(self.bound)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PipelineStreamWriter:
        return PipelineStreamWriter(self.bound)


class SinkCommit(WriterCommitMessage):
    """A task has written, and all of it is safe; or the error that a second try would only repeat."""

    def __init__(self, refused: KafkaActorsError | None = None) -> None:
        self.refused = refused


def planned(plan: SinkPlan) -> SinkPlan:
    """Where the write is planned: the topics that it goes to are there. Raises `UnknownTopicOrPartitionError`."""
    leave_imports_out()
    stage = None if plan.checked.sink is None else plan.checked.sink.stage
    if isinstance(stage, WriteKafka):
        check_target(producer_config(stage.name, plan.source, stage.options), stage.topic, SINK_TOPIC)
    if plan.dead_letters is not None:
        plan.dead_letters.check()
    return plan


def committed(messages: Sequence[WriterCommitMessage | None]) -> None:
    """All tasks have ended. Raises what was refused for good."""
    for message in messages:
        if isinstance(message, SinkCommit) and message.refused is not None:
            raise message.refused


class PipelineBatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = planned(plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Raises `StageError`, `SinkError`."""
        return _write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Raises `StageError`, `SinkError`."""
        committed(messages)


class PipelineStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a stream. A micro-batch that is done again after a crash is written again."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = planned(plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Raises `StageError`, `SinkError`."""
        return _write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Raises `StageError`, `SinkError`."""
        committed(messages)


# ---------------------------------------------------------------- in a task


def _close(sink: Writer) -> None:
    with suppress(KafkaActorsError):  # what it holds belongs to a task that failed, and says so there
        sink.close()


_kept: WorkerCache[Writer] = WorkerCache(_close)


def _write(plan: SinkPlan, batches: Iterator[pa.RecordBatch]) -> SinkCommit:
    leave_imports_out()
    sink_step = plan.checked.sink
    assert sink_step is not None  # a plan is made for one
    try:
        with traced_task(), ExitStack() as stack:
            dead = None if plan.dead_letters is None else stack.enter_context(plan.dead_letters.task())
            try:
                sink = _kept.get(plan.key, lambda: opened(sink_step, plan.source))
                task = SinkTask(plan, sink, dead)
                for batch in batches:
                    task.write(batch)
                task.flush()
            except BaseException:
                _kept.drop(plan.key)
                raise
    except KafkaActorsError as error:
        if not is_final(error):
            raise
        return SinkCommit(error)  # a task that raises is tried three times more
    return SinkCommit()


class SinkTask:
    """Rows go to the sink, failed records to the dead letters: those that came failed, and those the sink refuses."""

    def __init__(self, plan: SinkPlan, sink: Writer, dead: TaskDeadLetters | None) -> None:
        assert plan.checked.sink is not None  # as above
        self._before = plan.before
        self._sink = sink
        self._dead = dead
        self._step = plan.checked.sink
        self._writing = guarded(plan.checked, self._to_sink, plan.retries)

    def write(self, batch: pa.RecordBatch) -> None:
        """Raises `StageError`."""
        good, failed = self._before.split(batch)
        for part in self._before.parts(good):
            failures: list[FailedRecord] = []
            self._writing.run(part.rows, part.source, failures)
            self._take_out(once(failures), part.source)
        if failed is not None:
            self._letters.write_failed(failed)

    def _to_sink(self, prepared: pa.RecordBatch, source: pa.RecordBatch) -> None:
        self._sink.write(prepared, origin_of(source))

    def _take_out(self, failures: list[FailedRecord], source: pa.RecordBatch) -> None:
        policies = {self._step.stage.name: self._step.on_error}
        if dead := of_policy(failures, policies, "dead_letter"):
            self._letters.write(dead, source)
        for event in events_of(of_policy(failures, policies, "skip"), source):
            log_event(event)

    @property
    def _letters(self) -> TaskDeadLetters:
        assert self._dead is not None, "the check of a pipeline asks where dead letters go"
        return self._dead

    def flush(self) -> None:
        """Returns when all is safe. Raises `SinkError`."""
        try:
            self._sink.flush()
        except Exception as error:
            raise SinkError(self._step.stage.name, f"{type(error).__name__}: {error}") from error
        if self._dead is not None:
            self._dead.flush()
