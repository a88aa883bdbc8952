"""Data source of one pipeline, and the fused stages that it runs in its tasks.

It plans as the data source `kafka_actors` does. Arrow stages that run together in one Python worker are `FusedStages`: in
the data source, or in a mapInArrow behind it.

The source is registered in the session under a name of its own. Spark has no way to take a data source back out of a
session, but in the same session another one may take its name. In another session of the application it may not: Spark
compares with the names of the session that is active at the time, and raises DATA_SOURCE_ALREADY_EXISTS.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from kafka_actors.base.tasks import carried_out_async
from kafka_actors.events import log_event
from kafka_actors.pipeline.casts import CastError, unfit_rows
from kafka_actors.pipeline.engines import CheckedStage
from kafka_actors.pipeline.expressions import readable
from kafka_actors.pipeline.fused import (
    FailedRecord,
    FusedSteps,
    StageOutput,
    events_of,
    of_policy,
    stage_error,
)
from kafka_actors.pipeline.rows import StageRows
from kafka_actors.pipeline.schema_stages import Decode, DecodeKey
from kafka_actors.pipeline.stages import Filter, Select, WithColumns
from kafka_actors.spark.python_worker import OneLineErrors, WorkerCache, freeze_imports
from kafka_actors.spark.source.arrow_types import spark_schema
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets
from kafka_actors.spark.source.options import ReadOptions, parse_batch, parse_stream
from kafka_actors.spark.source.query_schema import QuerySchema, ReadBy
from kafka_actors.spark.source.readers import (
    LIMITS,
    KafkaBatchReader,
    KafkaInputPartition,
    KafkaStreamReader,
    read_task,
    reader_class,
)
from kafka_actors.spark.source.schema import SourceColumns, columns_of, schema
from kafka_actors.telemetry.spans import ProcessSpans, failed, tracing

from .frames import PipelineFrame


class ProcessStages:
    """Fused stages, instantiated in this Python process. Async functions are awaited in an event loop that lasts as long as users'
    objects, because their sessions and pools belong to a loop; Spark runs one task of a Python worker at a time."""

    def __init__(self, steps: Iterable[CheckedStage], retries: int) -> None:
        self._steps = FusedSteps(steps, retries=retries)
        self._runner = asyncio.Runner() if self._steps.is_async else None

    def run(self, source: pa.RecordBatch, begun: StageRows | None) -> StageOutput:
        """Processes a batch. Raises `StageError`."""
        if self._runner is None:
            return self._steps.run(source, begun)
        return self._runner.run(carried_out_async(self._steps.calls(source, begun)))

    def close(self) -> None:
        """Closes users' objects, and the event loop."""
        if self._runner is None:
            self._steps.close()
            return
        with self._runner as runner:
            runner.run(carried_out_async(self._steps.closing()))


class FusedStages(msgspec.Struct, frozen=True, eq=False):
    """Fused stages, pickled to Python workers and never part of a Spark plan. `key` identifies them in a worker's cache;
    `behind` is the frame that they make. `failed_only`: only the failed records are its rows."""

    key: str
    steps: tuple[CheckedStage, ...]
    retries: int
    behind: PipelineFrame
    failed_only: bool = False

    def made(self) -> ProcessStages:
        """The stages, instantiated once per process, users' classes included."""
        return _cache.get(self.key, lambda: ProcessStages(self.steps, self.retries))

    @property
    def schema(self) -> QuerySchema | None:
        """The schema of a registry by which values are decoded, None without one."""
        for stage in (step.stage for step in self.steps):
            if isinstance(stage, Decode) and stage.reader is not None and stage.chosen_schema is not None:
                return QuerySchema(
                    stage.decoder,
                    stage.reader.registry,
                    stage.chosen_schema,
                    pinned=stage.reader.pinned,
                    option=stage.name,
                    pin="version=",
                )
        return None

    def reading_by(self, read_by: ReadBy) -> FusedStages:
        """The stages with values decoded by another schema, which gives the same columns."""
        steps = tuple(
            step._replace(
                stage=msgspec.structs.replace(
                    step.stage, decoder=step.stage.decoder.read_by(read_by.schema, read_by.references)
                )
            )
            if isinstance(step.stage, Decode) and step.stage.chosen_schema is not None
            else step
            for step in self.steps
        )
        return msgspec.structs.replace(self, key=f"{self.key} {read_by.schema.id}", steps=steps)

    def run(self, source: pa.RecordBatch, begun: StageRows | None = None) -> Iterator[pa.RecordBatch]:
        """Runs the stages: returns their packed rows, then the failed records if `behind` has the column `_error`. Raises
        `StageError`."""
        outcome = self._outcome(source, begun)
        failures = outcome.failures
        for rows in outcome.rows if self.behind.columns.names or not self.failed_only else ():
            packed = self._packed(rows, source, failures)
            if packed is not None and not self.failed_only:
                yield packed
        policies = {step.stage.name: step.on_error for step in self.steps}
        if not self.failed_only:
            for event in events_of(of_policy(failures, policies, "skip"), source):
                log_event(event)
        if self.behind.errors and (dead := of_policy(failures, policies, "dead_letter")):
            yield self.behind.pack_failed(dead, source)

    def _packed(
        self, rows: StageRows, source: pa.RecordBatch, failures: list[FailedRecord]
    ) -> pa.RecordBatch | None:
        """Packs rows for the JVM, None where no row is left. A row with a value that Spark's type can't hold, such as milliseconds beyond what
        microseconds in 64 bits hold, is a failure of the stage that made the column: added to `failures`, or its `StageError`."""
        try:
            return self.behind.pack(rows, source)
        except CastError:
            unfit = unfit_rows(self.behind.user_schema, rows.batch)
        for row, (column, why) in unfit.items():
            stage, _, _, policy = maker_of(self.steps, column)
            records, reason = rows.slice(row, 1).records(source.num_rows), f"on Spark, {why}"
            if policy == "fail":
                raise stage_error(stage.name, source, int(records[0]), int(records[-1]), 1, reason)
            failures += (FailedRecord(int(record), stage.name, reason) for record in records)
        fits = np.ones(rows.batch.num_rows, dtype=bool)
        fits[list(unfit)] = False
        return self.behind.pack(rows.take(fits), source) if fits.any() else None

    def _outcome(self, source: pa.RecordBatch, begun: StageRows | None) -> StageOutput:
        """Runs the stages, in a span where tracing is on and the records are known."""
        made = self.made()
        if not (self.steps and tracing()) or source["topic"][0].as_py() is None:
            return made.run(source, begun)
        with _spans.call(source, "batch") as span:
            try:
                return made.run(source, begun)
            except Exception as error:
                if span is not None:
                    failed(span, error)
                raise


def maker_of(steps: Sequence[CheckedStage], column: str) -> CheckedStage:
    """The step that made a column of the last one's output, which later ones only took over, maybe under another name."""
    for step in steps[::-1]:
        taken = _taken_over(step, column)
        if taken is None:
            return step
        column = taken
    return steps[0]


def _taken_over(step: CheckedStage, column: str) -> str | None:
    """The column of a step's input that is this one of its output, None where the step made it."""
    stage, before = step.stage, step.before
    assert before is not None  # it is known where stages run
    if isinstance(stage, Select):
        path = readable(str(stage.expressions(before)[column]))
        column = path if path in before.names else path.partition(".")[0]
        return column if column in before.names else None
    if isinstance(stage, WithColumns):
        return None if column in dict(stage.items) else column
    if isinstance(stage, DecodeKey):
        return None if column == stage.column else column
    return column if isinstance(stage, Filter) else None


_cache: WorkerCache[ProcessStages] = WorkerCache(ProcessStages.close)
_spans = ProcessSpans(None, None)


class MapInArrowStages(msgspec.Struct, frozen=True, eq=False):
    """Function of a mapInArrow: runs stages behind the source. `before` is the frame of its input."""

    before: PipelineFrame
    fusion: FusedStages

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Processes the batches of a task. Raises `StageError`."""
        from kafka_actors.spark.source.task_tracing import traced_task

        freeze_imports()
        behind = self.fusion.behind
        with traced_task():
            for batch in batches:
                good, failed = self.before.split(batch)
                for part in self.before.parts(good):
                    yield from self.fusion.run(part.source, part.rows)
                if failed is not None:
                    yield behind.pack_again(failed)


_PROCESS = uuid.uuid4().hex  # sessions of Spark Connect may be shared by processes
_lock = threading.Lock()
_free: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()
"""Numbers in names that are registered in a session and were given back, by session."""
_numbers = itertools.count()


class SourceNames:
    """Names for the data sources of one run, or of one DataFrame, in one session. No other run has them until they are
    given back, and no other session ever."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._taken: list[int] = []

    def take(self) -> str:
        """A free name: one that was given back in this session, or else a new one."""
        with _lock:
            free = _free.setdefault(self._session, [])
            number = heapq.heappop(free) if free else next(_numbers)
        self._taken.append(number)
        return f"kafka_actors_pipeline_{_PROCESS}_{number}"

    def give_back(self) -> None:
        """Frees the names, to be called when Spark looks them up no more. A second call changes nothing."""
        taken, self._taken = self._taken, []
        with _lock:
            for number in taken:
                heapq.heappush(_free.setdefault(self._session, []), number)


def enter(spark: Any) -> None:
    """Makes a session the active one of this thread, in which Spark looks up Python data sources. `createDataFrame` does that."""
    spark.createDataFrame([], "nothing INT")


def context_of(spark: Any) -> Any:
    """The SparkContext, None over Spark Connect, which has none."""
    try:
        return spark.sparkContext
    except Exception:  # each version has its own
        return None


_ALL: SourceColumns = columns_of(schema(True), True)

if TYPE_CHECKING:
    _StreamReader = KafkaStreamReader
else:
    _StreamReader = reader_class()


class SourcePlan(msgspec.Struct, frozen=True, eq=False):
    """Read of a pipeline. `options` are those of the data source `kafka_actors`; `ends`: the offsets at which a backfill's stream
    has to end; `begin`: the offsets at which a stream has to begin."""

    name: str
    fusion: FusedStages
    options: dict[str, str]
    ends: StreamOffsets | None = None
    begin: StreamOffsets | None = None

    def __repr__(self) -> str:
        return f"<SourcePlan {self.name}>"  # passwords are among the options


def initial_offsets(options: Mapping[str, str], ends: StreamOffsets | None) -> StreamOffsets:
    """Resolves the start of a new stream with these options and ends. Raises as `StreamDriver.initial`."""
    from kafka_actors.spark.source.stream_driver import StreamDriver

    driver = StreamDriver(msgspec.structs.replace(parse_stream(options, limits=LIMITS), ends=ends))
    try:
        return StreamOffsets.from_json(driver.initial())
    finally:
        driver.close()


def source_of(plan: SourcePlan) -> type[DataSource]:
    """Makes a class to register in a session, bound to the plan, so that Spark's options have none of its secrets."""

    class Bound(PipelineSource):
        bound = plan

    return Bound


class PipelineSource(DataSource):
    """Data source of a pipeline's read; see the module. Its name is the plan's."""

    bound: ClassVar[SourcePlan]

    @classmethod
    def name(cls) -> str:
        return cls.bound.name

    def schema(self) -> StructType:
        freeze_imports()
        return spark_schema(self.bound.fusion.behind.schema)

    def reader(self, schema: StructType) -> PipelineReader:
        with OneLineErrors():
            return PipelineReader(self.bound)

    def streamReader(self, schema: StructType) -> PipelineStreamReader:
        with OneLineErrors():
            return PipelineStreamReader(self.bound)


class PipelineReader(KafkaBatchReader):
    """Reads a batch: plans once; in the tasks each batch of records passes the stages before Spark gets its rows."""

    def __init__(self, plan: SourcePlan) -> None:
        super().__init__(parse_batch(plan.options), _ALL)
        self._fusion = plan.fusion

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task. Raises `StageError`, and as `read_ranges`."""
        return _read(self._fusion, self._options, partition)


class PipelineStreamReader(_StreamReader):
    """Reads micro-batches through the stages; offsets, limits and lag are those of the data source `kafka_actors`."""

    def __init__(self, plan: SourcePlan) -> None:
        options = parse_stream(plan.options, limits=LIMITS)
        super().__init__(msgspec.structs.replace(options, ends=plan.ends, begin=plan.begin), _ALL)
        self._fusion = plan.fusion

    @property
    def _query_schema(self) -> QuerySchema | None:
        return self._fusion.schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task. Raises `StageError`, and as `read_ranges`."""
        return _read(self._fusion, self._options, partition)


def _read(fusion: FusedStages, options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, KafkaInputPartition)
    if partition.read_by is not None:
        fusion = fusion.reading_by(partition.read_by)
    for batch in read_task(options, _ALL, partition):
        yield from fusion.run(batch)
