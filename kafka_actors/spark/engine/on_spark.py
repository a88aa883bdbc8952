"""`OnSpark`: a pipeline bound to a Spark session, before it starts, while it runs, and after."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self

from pyspark import cloudpickle

from kafka_actors.errors import ConfigError, kind_of
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.bound_pipeline import BoundPipeline, RateMeter, RunProgress
from kafka_actors.pipeline.engines import check_travels
from kafka_actors.pipeline.source import ReadKafka
from kafka_actors.pipeline.stages import WriteParquet
from kafka_actors.spark.source.checkpoint import as_before
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets
from kafka_actors.spark.source.offset_format import OffsetFormat
from kafka_actors.spark.source.options import parse_batch, parse_stream
from kafka_actors.spark.source.readers import LIMITS
from kafka_actors.spark.source.stream_driver import StreamDriver
from kafka_actors.types import TopicPartition

from .arguments import (
    check_ordered,
    joined_options,
    more_options,
    position_options,
    source_options,
    start_options,
    state_option,
    trigger_of,
)
from .dataframe_builder import DataFrameBuilder
from .pipeline_source import SourceNames, context_of, enter, initial_offsets
from .runs import BatchRun, QueryProgress, SparkRun, SparkStatus, StreamRun


class OnSpark(BoundPipeline[SparkRun]):
    """Runs a pipeline in a Spark session: stages before the first DataFrame stage run in the data source's own Python
    worker, before rows enter the JVM; the sinks run in Spark's tasks, all of them in one write.

        run = orders.on_spark(spark, checkpoint="…", trigger="availableNow").start()
        run.status(); run.wait(); run.stop()

    With `checkpoint` it is a streaming query, which goes on where the last one of that checkpoint ended. `trigger`:
    "availableNow" (all records that exist now, then it ends), "once", or the time between micro-batches, such as
    "10 seconds"; None: as soon as there are records. Without a checkpoint it is one batch.

    `start` (by default the pipeline's `auto_offset_reset`, or "earliest") and, for a batch, `end` (by default "latest") are
    such a word, offsets `{topic: {partition: offset}}`, or a datetime. A stream may also start from
    "latest", or from "committed": the offsets of the pipeline's group. `options` are those of the data source
    `kafka_actors`, under their names there: `maxOffsetsPerTrigger=100_000`, `commitOffsets=True`.

    Kafka sinks get records at least once, or exactly once where they say `delivery="exactly_once"`, each partition in order;
    `ordered=False` allows options that split partitions over tasks. Parquet files of a stream have each record once. `output_mode` is Spark's: "complete" for
    aggregations without a watermark.

    `begin` and `ends` are a backfill's: its stream reads exactly from there to there (see `Pipeline.backfill`).

    As a context manager it stops at the end of the block. `progress`: a live line on stderr, or in a notebook's cell;
    None shows it where there is a terminal or a notebook.
    """

    engine = "spark"

    def __init__(
        self,
        pipeline: Pipeline,
        spark: Any,
        *,
        checkpoint: str | None = None,
        trigger: str | None = None,
        start: Any = None,
        end: Any = None,
        ordered: bool = True,
        output_mode: Literal["append", "complete"] = "append",
        progress: bool | None = None,
        begin: StreamOffsets | None = None,
        ends: StreamOffsets | None = None,
        **options: Any,
    ) -> None:
        pipeline = as_before(pipeline, spark, checkpoint).ready()
        checked = pipeline.check("spark")
        assert pipeline.source is not None  # the check requires one
        if checkpoint is None and trigger is not None:
            raise ConfigError("trigger", "is a stream's, which needs checkpoint=, a directory to go on from")
        if checkpoint is not None and end is not None:
            raise ConfigError(
                "end", "is a batch's: leave checkpoint out, or end the stream with trigger='availableNow'"
            )
        if checkpoint is None and ends is not None:
            raise ConfigError("ends", "are a stream's, which needs checkpoint=, a directory to go on from")
        if output_mode not in ("append", "complete"):
            raise ConfigError(
                "output_mode",
                f"is {output_mode!r}: accepts 'append' and 'complete'; Spark allows 'update' to no Python sink",
            )
        for sink in checked.sinks:
            check_ordered(sink.step.stage, options, ordered)
        super().__init__(pipeline, progress)
        self._meter = RateMeter()
        self._source: ReadKafka = pipeline.source
        self._spark = spark
        self._checkpoint = checkpoint
        self._trigger = trigger_of(trigger)
        self._output_mode = output_mode
        self._positions = position_options(start, end)
        self._begin = begin
        self._ends = ends
        self._more = options
        self._arguments = {
            "checkpoint": checkpoint,
            "trigger": trigger,
            "start": start,
            "end": end,
            "ordered": ordered,
            "output_mode": output_mode,
            "begin": begin,
            "ends": ends,
        }

    @property
    def is_stream(self) -> bool:
        """Whether it is a streaming query, and not one batch."""
        return self._checkpoint is not None

    def changed(
        self,
        options: Mapping[str, Any],
        *,
        topics: Iterable[str] | None = None,
        pattern: str | None = None,
        spark: Any = None,
        spark_options: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> OnSpark:
        """A copy that has not started, with other values for what is given. `options` are those of the source, underscored, and
        hold for sink and dead letters where these use its connection; `spark` is another session, `spark_options` are the
        data source's.

        Raises `ConfigError` as making it does.
        """
        return OnSpark(
            self.pipeline.reading(options, topics=topics, pattern=pattern),
            self._spark if spark is None else spark,
            progress=False,
            **{**self._arguments, **arguments, **self._more, **(spark_options or {})},
        )

    def _options(self, streaming: bool) -> dict[str, str]:
        """The options of the data source."""
        joined = joined_options(self._positions, self._more)
        joined = {**start_options(self._source, joined, streaming=streaming), **joined}
        options = {**source_options(self._source), **more_options(self._source, joined)}
        if streaming and self._checkpoint is not None:
            options |= state_option(self._spark, self._checkpoint, options, self.pipeline.stages)
        return options

    def _builder(self, streaming: bool, names: SourceNames) -> DataFrameBuilder:
        if not hasattr(self._spark, "createDataFrame"):
            raise ConfigError("spark", f"is {kind_of(self._spark)}: accepts a SparkSession")
        check_travels(self.pipeline.check("spark"), cloudpickle.dumps)
        options = self._options(streaming)
        _ = parse_stream(options, limits=LIMITS) if streaming else parse_batch(options)
        return DataFrameBuilder(
            self.pipeline,
            self._spark,
            options,
            names,
            streaming=streaming,
            begin=self._begin,
            ends=self._ends,
        )

    # ------------------------------------------------------------ as a DataFrame

    def dataframe(self, *, streaming: bool | None = None, kafka: bool = False) -> Any:
        """The rows as a DataFrame, the sinks left out; None: a stream where there is a checkpoint. `kafka`: with the
        column `_kafka`.

        Where a stage has on_error="dead_letter" there is a column `_error`: failed records are rows in which only it
        (and `_kafka`) is not null. A stage may run more than once for a record: it must have no side effect.

        Raises `ConfigError` before anything starts, naming the stage or option.
        """
        wanted = self._checkpoint is not None if streaming is None else streaming
        names = SourceNames(self._spark)
        builder = self._builder(wanted, names)
        try:
            return builder.rows(kafka=kafka)
        finally:
            if context_of(self._spark) is not None:
                names.give_back()  # Spark has looked them up; Spark Connect does so at each action

    # ------------------------------------------------------------ a run

    def initial_offsets(self) -> StreamOffsets:
        """The start of a new query of this stream, resolved now. Raises as `StreamDriver.initial`."""
        return initial_offsets(self._options(streaming=True), self._ends)

    def start(self) -> Self:
        """Starts the run and returns. Raises `ConfigError`, and Spark's errors of the query's analysis."""
        self._check_new()
        streaming = self._checkpoint is not None
        names = SourceNames(self._spark)
        builder = self._builder(streaming, names)
        try:
            self._running = self._started(builder, names)
        except BaseException:
            builder.release()
            raise
        self._live.start()
        return self

    def _started(self, builder: DataFrameBuilder, names: SourceNames) -> SparkRun:
        enter(self._spark)
        if self._checkpoint is not None and self._output_mode != "append" and self._to_files:
            raise ConfigError("output_mode", f"is {self._output_mode!r}: files are only added to")
        df, name = builder.to_write(self._checkpoint)
        if self._checkpoint is None:
            return BatchRun(self._spark, df.write.mode("append").format(name).save, builder.persisted, names)
        writer = df.writeStream.outputMode(self._output_mode).trigger(**self._trigger)
        query = writer.option("checkpointLocation", self._checkpoint).format(name).start()
        return StreamRun(query, QueryProgress(self._selects, self._begun), self._commit, names)

    @property
    def _to_files(self) -> bool:
        return any(isinstance(stage, WriteParquet) for stage in self.pipeline.stages)

    def _selects(self, topic: str) -> bool:
        return self._source.selects(topic)

    def _begun(self) -> dict[TopicPartition, int]:
        """The start of the query, if it is stored beside its checkpoint."""
        options = parse_stream(self._options(streaming=True), limits=LIMITS)
        first = OffsetFormat(options).first(options.selection.selects)
        return {} if first is None else first.by_partition

    def _commit(self, end: dict[str, Any]) -> None:
        """Commits the end of the last batch for the group, with commitOffsets: the query itself would do so at its next start."""
        options = parse_stream(self._options(streaming=True), limits=LIMITS)
        if options.commit_offsets:
            driver = StreamDriver(options)
            try:
                driver.finished(end)
            finally:
                driver.close()

    def stop(self) -> None:
        """Stops the run. A micro-batch that is running is cancelled, and runs again at the next start. A second call changes
        nothing."""
        if self._running is not None:
            self._live.end()
            self._running.stop()
            self._live.last()

    def status(self) -> SparkStatus:
        """The state, records, lag and batch."""
        return self._run.status()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def progress(self) -> RunProgress:
        """The run's progress now."""
        status = self.status()
        rate = self._meter.observe(status.records or 0, time.monotonic())
        return RunProgress(
            title=self.pipeline.title,
            state=status.state,
            elapsed_s=status.elapsed_s,
            records=status.records,
            records_per_s=rate,
            lag=status.lag,
            batch=status.batch,
            tasks=status.tasks,
        )

    def __repr__(self) -> str:
        state = "not started" if self._running is None else self._running.status().state
        return f"<OnSpark {self.pipeline!r}, {state}>"
