"""`OnSpark`: a pipeline bound to a Spark session, before it starts, while it runs, and after."""

from __future__ import annotations

import re
import time
import uuid
from html import escape
from types import TracebackType
from typing import Any, Literal, Self

from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.live import Live, display_for
from kafka_actors.pipeline.progress import Meter, Reading, html
from kafka_actors.pipeline.stages import WriteParquet
from kafka_actors.spark.machines.stream import StreamOffsets
from kafka_actors.spark.options import parse_batch, parse_stream
from kafka_actors.spark.stream import LIMITS
from kafka_actors.spark.stream_driver import StreamDriver

from .arguments import check_ordered, more_options, position_options, source_options, trigger_of
from .building import Building
from .parquet import ParquetPlan, parquet_of
from .progress import Reckoning
from .running import BatchRun, Run, SparkStatus, StreamRun, enter
from .sink import SinkPlan
from .types import arrow_schema


class OnSpark:
    """Runs a pipeline in a Spark session: the stages before the first DataFrame stage in the data source's own Python
    worker, before rows enter the JVM; the sink in Spark's tasks.

        run = orders.on_spark(spark, checkpoint="…", trigger="availableNow").start()
        run.status(); run.wait(); run.stop()

    With `checkpoint` it is a streaming query, which goes on where the last one of that checkpoint ended. `trigger`:
    "availableNow" (what is there now, then it ends), "once", or the time between micro-batches, such as
    "10 seconds"; None: as soon as there is something. Without a checkpoint it is one batch.

    `start` (by default "earliest") and, of a batch, `end` (by default "latest"): a word, offsets
    `{topic: {partition: offset}}`, or a datetime. A stream also starts from "latest", or from "committed": the
    offsets of the pipeline's group. `options` are those of the data source `kafka_actors`, by their names there:
    `maxOffsetsPerTrigger=100_000`, `commitOffsets=True`.

    Kafka sinks get records at least once, each partition in order; `ordered=False` allows options that split
    partitions over tasks. Parquet files of a stream have each record once. `output_mode` is Spark's: "complete" for
    aggregations without a watermark.

    `ends` are a backfill's: its stream reads exactly up to there (see `Pipeline.backfill`).

    As a context manager it stops at the end of the block. `progress`: a live line on stderr, or in a notebook's cell;
    None shows it where there is a terminal or a notebook.
    """

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
        ends: StreamOffsets | None = None,
        **options: Any,
    ) -> None:
        checked = pipeline.check("spark")
        source = pipeline.source
        assert source is not None
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
        if checked.sink is not None:
            check_ordered(checked.sink.stage, options, ordered)
        self.pipeline = pipeline
        self._spark = spark
        self._checkpoint = checkpoint
        self._trigger = trigger_of(trigger)
        self._output_mode = output_mode
        self._positions = position_options(start, end)
        self._ends = ends
        self._more = options
        self._running: Run | None = None
        self._meter = Meter()
        self._live = Live(self._read, display_for(progress))

    def _options(self) -> dict[str, str]:
        """Those of the data source."""
        source = self.pipeline.source
        assert source is not None
        given = {"startingOffsets": "earliest", **self._positions, **self._more}
        return {**source_options(source), **more_options(source, given)}

    def _building(self, streaming: bool) -> Building:
        options = self._options()
        _ = parse_stream(options, limits=LIMITS) if streaming else parse_batch(options)
        return Building(self.pipeline, self._spark, options, streaming=streaming, ends=self._ends)

    # ------------------------------------------------------------ as a DataFrame

    def dataframe(self, *, streaming: bool | None = None, kafka: bool = False) -> Any:
        """The rows as a DataFrame, the sink left out; None: a stream where there is a checkpoint. `kafka`: with the
        column `_kafka`.

        Where a stage has on_error="dead_letter" there is a column `_error`: failed records are rows in which only it
        (and `_kafka`) is not null. A stage may run more than once for a record: it must have no side effect.

        Raises `ConfigError` before anything starts, naming the stage or option.
        """
        wanted = self._checkpoint is not None if streaming is None else streaming
        return self._building(wanted).rows(kafka=kafka)

    # ------------------------------------------------------------ a run

    def start(self) -> Self:
        """Starts and returns. Raises `ConfigError`, and what Spark finds wrong with the query."""
        if self._running is not None:
            raise UsageError("it was started already: make another one with on_spark(…)")
        streaming = self._checkpoint is not None
        building = self._building(streaming)
        enter(self._spark)
        df, sink = building.to_write()
        self._running = self._streamed(df, sink) if streaming else self._batch(df, sink)
        self._live.start()
        return self

    def _streamed(self, df: Any, sink: SinkPlan | None) -> StreamRun:
        writer = df.writeStream.outputMode(self._output_mode).trigger(**self._trigger)
        writer = writer.option("checkpointLocation", self._checkpoint)
        writer = writer.format(self._parquet_stream(df) if sink is None else sink.name)
        return StreamRun(writer.start(), Reckoning(self._selects), self._commit)

    def _parquet_stream(self, df: Any) -> str:
        """The name of the data source that writes the files of micro-batches."""
        if self._output_mode != "append":
            raise ConfigError("output_mode", f"is {self._output_mode!r}: files are only added to")
        stage = self._parquet
        columns = arrow_schema(df.schema)
        plan = ParquetPlan(
            f"kafka_actors_files_{uuid.uuid4().hex}", stage.name, stage.path, stage.compression, columns
        )
        self._spark.dataSource.register(parquet_of(plan))
        return plan.name

    def _batch(self, df: Any, sink: SinkPlan | None) -> BatchRun:
        writer = df.write.mode("append")
        if sink is None:
            stage = self._parquet
            writer = writer.option("compression", codec_of(stage))
            return BatchRun(self._spark, lambda: writer.parquet(stage.path))
        return BatchRun(self._spark, writer.format(sink.name).save)

    @property
    def _parquet(self) -> WriteParquet:
        stage = self.pipeline.stages[-1]
        assert isinstance(stage, WriteParquet)
        return stage

    def _selects(self, topic: str) -> bool:
        source = self.pipeline.source
        assert source is not None
        return topic in source.topics if source.topics else bool(re.fullmatch(source.pattern or "", topic))

    def _commit(self, end: dict[str, Any]) -> None:
        """With commitOffsets: the last batch too, which the query itself would commit at its next start."""
        options = parse_stream(self._options(), limits=LIMITS)
        if options.commit_offsets:
            driver = StreamDriver(options)
            try:
                driver.finished(end)
            finally:
                driver.close()

    def run(self) -> None:
        """Starts, waits for the end, and leaves nothing behind. Raises as `start` and `wait`."""
        with self.start():
            self.wait()

    def wait(self, timeout: float | None = None) -> None:
        """Until it has ended: a stream with "availableNow" or "once" and a batch do by themselves. Raises `JobFailed`,
        whose cause is a `StageError` or a `SinkError` where the pipeline failed, and `KafkaTimeoutError` after
        `timeout` seconds."""
        with self._live.until_over():
            self._run.wait(timeout)

    def stop(self) -> None:
        """Ends it. A micro-batch in hand is given up, and done again at the next start. Safe to call twice."""
        if self._running is not None:
            self._live.end()
            self._running.stop()
            self._live.last()

    def status(self) -> SparkStatus:
        """State, records, lag, batch."""
        return self._run.status()

    def explain(self) -> str:
        """What runs where."""
        return self.pipeline.explain("spark")

    @property
    def _run(self) -> Run:
        if self._running is None:
            raise UsageError("it is not started: call start() or run()")
        return self._running

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _read(self) -> Reading:
        status = self.status()
        _, rate = self._meter.observe(status.records or 0, time.monotonic())
        return Reading(
            title=self.pipeline.title,
            state=status.state,
            elapsed_s=status.elapsed_s,
            records=status.records,
            records_per_s=rate,
            lag=status.lag,
            batch=status.batch,
            tasks=status.tasks,
        )

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html(self._read()) if self._running is not None else f"<pre>{escape(self.explain())}</pre>"

    def __repr__(self) -> str:
        state = "not started" if self._running is None else self._running.status().state
        return f"<OnSpark {self.pipeline!r}, {state}>"


def codec_of(stage: WriteParquet) -> str:
    """Spark's name: its "lz4" is an old framing that other readers don't know."""
    return "lz4_raw" if stage.compression == "lz4" else stage.compression
