"""The Arrow stages that run together in one Python worker of Spark: in the data source, or in a mapInArrow behind it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from kafka_actors.events import log_event
from kafka_actors.pipeline.arrays import CastError
from kafka_actors.pipeline.check import CheckedStage
from kafka_actors.pipeline.failure_events import events_of, of_policy
from kafka_actors.pipeline.fused import FusedSteps, StageOutput
from kafka_actors.pipeline.rows import StageRows
from kafka_actors.pipeline.stage_guard import stage_error
from kafka_actors.spark.worker_cache import WorkerCache
from kafka_actors.telemetry.spans import ProcessSpans, failed, tracing

from .frames import PipelineFrame


class FusedStages(msgspec.Struct, frozen=True, eq=False):
    """It travels to Python workers, never into a Spark plan. `key` tells those of a process apart; `behind` is the
    DataFrame that the stages make. `failed_only`: its rows are the failed records."""

    key: str
    steps: tuple[CheckedStage, ...]
    retries: int
    behind: PipelineFrame
    failed_only: bool = False

    def made(self) -> FusedSteps:
        """The stages, made once per process: the users' classes with them."""
        return _made.get(self.key, lambda: FusedSteps(self.steps, retries=self.retries))

    def run(self, source: pa.RecordBatch, begun: StageRows | None = None) -> Iterator[pa.RecordBatch]:
        """The rows that the stages make of records, and behind them the failed records where `behind` has them. Raises
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
        """For the JVM, whose types are fewer: a value that none of them holds is an error of the stage that made it."""
        try:
            return self.behind.pack(rows, source)
        except CastError as error:
            records = rows.records(source.num_rows)
            reason = f"on Spark, {error}"
            raise stage_error(self.behind.stage, source, records[0], records[-1], 1, reason) from error

    def _outcome(self, source: pa.RecordBatch, begun: StageRows | None) -> StageOutput:
        """In a span, where anybody traces and the rows still know their records."""
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


_made: WorkerCache[FusedSteps] = WorkerCache(FusedSteps.close)
_spans = ProcessSpans(None, None)
