"""Arrow stages that run together in one Python worker of Spark: in the data source, or in a mapInArrow behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa

from kafka_actors.events import log_event
from kafka_actors.pipeline.casts import CastError
from kafka_actors.pipeline.check import CheckedStage
from kafka_actors.pipeline.fused import FusedSteps, StageOutput, events_of, of_policy, stage_error
from kafka_actors.pipeline.rows import StageRows
from kafka_actors.spark.python_worker import WorkerCache, freeze_imports
from kafka_actors.telemetry.spans import ProcessSpans, failed, tracing

from .frames import PipelineFrame


class FusedStages(msgspec.Struct, frozen=True, eq=False):
    """Fused stages, pickled to Python workers and never part of a Spark plan. `key` identifies them in a worker's cache;
    `behind` is the frame that they make. `failed_only`: only the failed records are its rows."""

    key: str
    steps: tuple[CheckedStage, ...]
    retries: int
    behind: PipelineFrame
    failed_only: bool = False

    def made(self) -> FusedSteps:
        """The stages, instantiated once per process, users' classes included."""
        return _cache.get(self.key, lambda: FusedSteps(self.steps, retries=self.retries))

    def run(self, source: pa.RecordBatch, begun: StageRows | None = None) -> Iterator[pa.RecordBatch]:
        """Runs the stages: returns their packed rows, then the failed records if `behind` has the column `_error`. Raises
        `StageError`."""
        outcome = self._outcome(source, begun)
        for rows in () if self.failed_only else outcome.rows:
            yield self._packed(rows, source)
        policies = {step.stage.name: step.on_error for step in self.steps}
        if not self.failed_only:
            for event in events_of(of_policy(outcome.failures, policies, "skip"), source):
                log_event(event)
        if self.behind.errors and (dead := of_policy(outcome.failures, policies, "dead_letter")):
            yield self.behind.pack_failed(dead, source)

    def _packed(self, rows: StageRows, source: pa.RecordBatch) -> pa.RecordBatch:
        """Packs rows for the JVM. A value that no type of Spark's holds raises the `StageError` of the stage that made it."""
        try:
            return self.behind.pack(rows, source)
        except CastError as error:
            records = rows.records(source.num_rows)
            reason = f"on Spark, {error}"
            raise stage_error(self.behind.stage, source, records[0], records[-1], 1, reason) from error

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


_cache: WorkerCache[FusedSteps] = WorkerCache(FusedSteps.close)
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
