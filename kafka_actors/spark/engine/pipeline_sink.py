"""Sinks of a pipeline as one data source, whose tasks write each row to all of them and send dead letters.

So a micro-batch with several sinks is read and processed once, by one job of Spark. A task returns when its rows are durable:
acknowledged by brokers, flushed by the user's class, in complete files. Files are moved to their place when all tasks have
returned, and offsets are committed after that; see `parquet_sink`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import ClassVar

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kafka_actors.errors import KafkaActorsError
from kafka_actors.events import log_event
from kafka_actors.pipeline.engines import CheckedSink
from kafka_actors.pipeline.fused import FailedRecord, events_of, of_policy
from kafka_actors.pipeline.source import ReadKafka
from kafka_actors.pipeline.stages import WriteKafka, WriteParquet
from kafka_actors.sinks.kafka import is_final
from kafka_actors.sinks.sink import TransactionBroken
from kafka_actors.sinks.stage import OpenSinks
from kafka_actors.spark.python_worker import PickledSource, WorkerCache, freeze_imports
from kafka_actors.spark.source.machines.task_markers import WriteName
from kafka_actors.spark.source.task_tracing import traced_task
from kafka_actors.spark.source.task_transaction import ends_the_write
from kafka_actors.spark.source.writers import micro_batch_of_task

from .dead_letters import DeadLetterPlan, TaskDeadLetters
from .frames import PipelineFrame
from .parquet_sink import HiddenFiles, TaskFile, WriteUnit, batch_unit, discard, reveal, run_unit
from .transactional_sink import ProcessSinks, check_topics_of, exactly_once


class SinkPlan(msgspec.Struct, frozen=True, eq=False):
    """Write of a pipeline, pickled to the tasks and never part of a Spark plan. `name` is the data source's, `run` names this
    run; `files` are the Parquet sinks, with absolute paths, and `sinks` the others, which are cached in Python workers by
    `key`; `before`: the frame that is written; `splits`: the digest of the plan's split options, where a sink delivers exactly once."""

    name: str
    run: str
    key: str
    source: ReadKafka
    sinks: tuple[CheckedSink, ...]
    files: tuple[WriteParquet, ...]
    retries: int
    before: PipelineFrame
    dead_letters: DeadLetterPlan | None
    splits: str = ""
    checkpoint: str | None = None

    @property
    def has_dead_letters(self) -> bool:
        """Whether a task may have dead letters: records that failed before, or that a sink refuses."""
        return self.before.errors or any(sink.step.on_error == "dead_letter" for sink in self.sinks)


def sink_of(plan: SinkPlan) -> type[DataSource]:
    """Makes a class to register in a session, bound to the plan."""

    class Bound(PipelineSink):
        bound = plan

    return Bound


class PipelineSink(PickledSource, DataSource):
    """Data source of a pipeline's write; see the module. Its name is the plan's."""

    bound: ClassVar[SinkPlan]

    @classmethod
    def name(cls) -> str:
        return cls.bound.name

    def writer(self, schema: StructType, overwrite: bool) -> PipelineBatchWriter:
        return PipelineBatchWriter(self.bound)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PipelineStreamWriter:
        return PipelineStreamWriter(self.bound, plans=not self.pickled)


class SinkCommit(WriterCommitMessage):
    """Result of a task: all of its rows are durable, with the hidden files of each Parquet sink of its `unit`; or an error that a
    retry would only repeat."""

    def __init__(
        self,
        refused: KafkaActorsError | None = None,
        unit: WriteUnit | None = None,
        files: Sequence[HiddenFiles] = (),
    ) -> None:
        self.refused = refused
        self.unit = unit
        self.files = files


def checked_plan(plan: SinkPlan) -> SinkPlan:
    """Checks, where the write is planned, that its topics exist. Raises `UnknownTopicOrPartitionError`."""
    freeze_imports()
    for stage in (sink.step.stage for sink in plan.sinks):
        if isinstance(stage, WriteKafka):
            check_topics_of(stage, plan.source)
    if plan.dead_letters is not None:
        plan.dead_letters.check()
    return plan


class PipelineBatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch: `write` runs in tasks, `commit` and `abort` where the write is planned."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = checked_plan(plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Writes the rows of a task. Raises `StageError`, `SinkError`."""
        name = WriteName(self._plan.run, 0, streaming=False)
        return _write(self._plan, name, run_unit(self._plan.run), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Ends a write of which all tasks have returned. Raises `StageError`, `SinkError`."""
        _commit(self._plan, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Deletes hidden files."""
        _abort(self._plan, messages)


class PipelineStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a stream, as `PipelineBatchWriter` does for a batch. A micro-batch that Spark runs again after a crash is
    written again, but not to sinks that deliver exactly once; its files replace those of the first try. `plans` as for `KafkaStreamWriter`."""

    def __init__(self, plan: SinkPlan, *, plans: bool = True) -> None:
        self._plan = checked_plan(plan) if plans else plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Writes the rows of a task. Raises `StageError`, `SinkError`."""
        query, batch = micro_batch_of_task()
        name = WriteName(query, batch, self._plan.checkpoint)
        return _write(self._plan, name, batch_unit(query, batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Ends a write of which all tasks have returned. Raises `StageError`, `SinkError`."""
        _commit(self._plan, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Deletes hidden files."""
        _abort(self._plan, messages)


def _commit(plan: SinkPlan, messages: list[WriterCommitMessage | None]) -> None:
    """Moves files to their place, unless a task has returned an error, which is raised: then no file appears."""
    done = _done(messages)
    for message in done:
        if message.refused is not None:
            _abort(plan, messages)
            raise message.refused
    units = {message.unit for message in done if message.unit is not None}
    for unit in units:  # one, or none where there were no tasks
        for number, stage in enumerate(plan.files):
            reveal(stage, unit, [message.files[number] for message in done])


def _abort(plan: SinkPlan, messages: list[WriterCommitMessage | None]) -> None:
    for message in _done(messages):
        for stage, hidden in zip(plan.files, message.files, strict=False):  # none of a task that was refused
            discard(stage, hidden)


def _done(messages: list[WriterCommitMessage | None]) -> list[SinkCommit]:
    return [message for message in messages if isinstance(message, SinkCommit)]


# ---------------------------------------------------------------- in a task


_cache: WorkerCache[ProcessSinks] = WorkerCache(ProcessSinks.close)


def _write(plan: SinkPlan, name: WriteName, unit: WriteUnit, batches: Iterator[pa.RecordBatch]) -> SinkCommit:
    freeze_imports()
    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    files: list[TaskFile] = []
    try:
        with traced_task(), ExitStack() as stack:
            dead = None
            if plan.dead_letters is not None and plan.has_dead_letters:
                dead = stack.enter_context(plan.dead_letters.task())
            try:
                files += (TaskFile(stage, unit, number) for stage in plan.files)
                sinks = _cache.get(plan.key, lambda: ProcessSinks(plan.sinks, plan.source, plan.retries))
                with ExitStack() as begun:
                    transactions = sinks.transactions(name, number, plan.splits)
                    for transaction in transactions:
                        begun.enter_context(transaction)
                    task = SinkTask(plan, sinks.all, files, dead)
                    for batch in batches:
                        task.write(batch)
                    hidden = task.finish()
                    for transaction in transactions:
                        transaction.commit(task.rows)
                return SinkCommit(None, unit, hidden)
            except BaseException:
                for file in files:
                    file.discard()
                _cache.drop(plan.key)
                raise
    except KafkaActorsError as error:
        final = ends_the_write if exactly_once(plan.sinks) else is_final
        if not final(error):
            raise
        return SinkCommit(error)  # Spark would retry a task that raises three times


class SinkTask:
    """Write of one task: rows go to all sinks and files; records that failed before, or that a sink refuses, to the dead letters."""

    def __init__(
        self,
        plan: SinkPlan,
        sinks: OpenSinks,
        files: Sequence[TaskFile] = (),
        dead: TaskDeadLetters | None = None,
    ) -> None:
        self._before = plan.before
        self._policies = {sink.name: sink.step.on_error for sink in plan.sinks}
        self._sinks = sinks
        self._files = files
        self._dead = dead
        self.rows = 0
        """Rows that were given to the sinks."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Writes a batch. Raises `StageError`, `SinkError`."""
        good, failed = self._before.split(batch)
        for file in self._files:
            file.write(self._before.for_user(good, kafka=file.stage.kafka))
        for part in self._before.parts(good) if self._policies else ():
            self.rows += part.rows.batch.num_rows
            failures: list[FailedRecord] = []
            try:
                self._sinks.write(part.rows, part.source, failures)
            except TransactionBroken as broken:  # it is past the policies for errors of rows
                raise broken.cause from broken.cause.__cause__
            self._handle_failures(failures, part.source)
        if failed is not None:
            self._dead_letters.write_failed(failed)

    def _handle_failures(self, failures: list[FailedRecord], source: pa.RecordBatch) -> None:
        if dead := of_policy(failures, self._policies, "dead_letter"):
            self._dead_letters.write(dead, source)
        for event in events_of(of_policy(failures, self._policies, "skip"), source):
            log_event(event)

    @property
    def _dead_letters(self) -> TaskDeadLetters:
        assert self._dead is not None, "the check of a pipeline asks where dead letters go"
        return self._dead

    def finish(self) -> list[HiddenFiles]:
        """Returns the complete files once all rows are durable. Raises `SinkError`."""
        # Files come first: until the commit nobody sees them, whatever a broker answers.
        files = [file.finish() for file in self._files]
        self._sinks.flush()
        if self._dead is not None:
            self._dead.flush()
        return files
