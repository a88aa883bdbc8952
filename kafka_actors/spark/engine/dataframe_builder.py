"""A pipeline as a DataFrame: the source with what is fused into it, and behind it what Spark runs."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa

from kafka_actors.base.batches import SCHEMA
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.check import CheckedPipeline, CheckedStage
from kafka_actors.pipeline.columns import KAFKA, KAFKA_TYPE, check_names
from kafka_actors.pipeline.source import STAGE
from kafka_actors.pipeline.stages import DataFrames, WriteParquet
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets

from .arrow_types import arrow_schema, spark_schema
from .dead_letters import DeadLetterPlan, dead_letter_plan
from .failed_records import (
    begin_of_both,
    check_format,
    check_repeatable,
    failing,
    goes_past,
    options_of_failed,
    with_failed,
)
from .frames import ERROR, PipelineFrame
from .fusion import FusedStages
from .kafka_column import ColumnNeeds, StageGroup, groups_of, names_kafka, needs_of, sink_needs
from .map_in_arrow import MapInArrowStages
from .parquet_sink import ParquetPlan, parquet_of, whole_path
from .pipeline_sink import SinkPlan, sink_of
from .pipeline_source import SourcePlan, source_of
from .source_names import SourceNames
from .sql_template import template

_KEYS: WeakKeyDictionary[Pipeline, str] = WeakKeyDictionary()


def key_of(pipeline: Pipeline) -> str:
    """What the classes of a pipeline are kept under in Python workers: the same as long as the pipeline is there."""
    return _KEYS.setdefault(pipeline, uuid.uuid4().hex)


class DataFrameBuilder:
    """Makes the DataFrame of one read of a pipeline. `options` are the data source's, `begin` and `ends` a backfill's,
    `names` those that data sources may be registered under.

    Failed records are no rows for a DataFrame stage, which may drop or repeat what it gets: they go past it to the
    sink, in a union. A batch keeps the rows before that stage, so that each record is worked on once, whatever Spark
    does with them. What a stream has can't be kept: there the stages up to the last one with dead letters run in a
    source of their own, too.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spark: Any,
        options: dict[str, str],
        names: SourceNames,
        *,
        streaming: bool,
        begin: StreamOffsets | None = None,
        ends: StreamOffsets | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._options = options
        self._names = names
        self._streaming = streaming
        self._ends = ends
        self._key = key_of(pipeline)
        self._checked = pipeline.check("spark")
        self._groups = groups_of(self._checked)
        self._begin = begin
        self._failed: Any = None
        self.kept: Any = None
        """The DataFrame to be kept for the time of a batch; None if there is none."""

    def give_up(self) -> None:
        """Where it didn't come to a run."""
        self._names.give_back()
        if self.kept is not None:
            self.kept.unpersist()

    # ------------------------------------------------------------ what comes out of it

    def rows(self, *, kafka: bool) -> Any:
        """The DataFrame without the sink, for the user. Raises `ConfigError`."""
        df, frame = self._built(ColumnNeeds(kafka), asked=kafka, to_user=True)
        if kafka and not frame.kafka:
            raise ConfigError("kafka", f"is asked for, and a DataFrame stage dropped the column {KAFKA!r}")
        return df if kafka or not frame.kafka else df.drop(KAFKA)

    def to_write(self) -> tuple[Any, str]:
        """The DataFrame, and the format that writes it. Raises `ConfigError`."""
        sink, key = self._checked.sink, self._checked.key
        if sink is None:
            raise ConfigError(
                "pipeline",
                "has no sink: end it with write_kafka(…), write_parquet(…) or write(function), or take .dataframe()",
            )
        need, asked = sink_needs(sink, key)
        df, frame = self._built(need, asked=asked, to_user=False)
        for step in (key, sink):
            if step is not None:
                step.stage.output(frame.user_schema)
                if names_kafka(step.stage) and not frame.kafka:
                    raise ConfigError(
                        step.stage.name,
                        f"asks for {KAFKA!r}, and a DataFrame stage before it dropped that column",
                    )
        if self._failed is not None:
            df, frame = with_failed(df, frame, self._failed)
        if isinstance(sink.stage, WriteParquet):
            return self._to_files(df, frame, sink.stage)
        return df, self._to_sink(frame, sink)

    def _to_files(self, df: Any, frame: PipelineFrame, stage: WriteParquet) -> tuple[Any, str]:
        if frame.kafka and not stage.kafka:
            df, frame = df.drop(KAFKA), msgspec.structs.replace(frame, kafka=False)
        plan = ParquetPlan(
            self._names.take(),
            uuid.uuid4().hex,
            stage.name,
            whole_path(stage.path),
            stage.compression,
            frame,
            self._dead_letters(),
        )
        self._spark.dataSource.register(parquet_of(plan))
        return df, plan.name

    def _to_sink(self, frame: PipelineFrame, sink: CheckedStage) -> str:
        assert self._pipeline.source is not None  # the pipeline's check asks for one
        # What the tasks need of the other stages is only which columns they left.
        behind = CheckedStage(sink.stage, None, frame.user_schema, sink.on_error)
        plan = SinkPlan(
            self._names.take(),
            f"{self._key} sink",
            self._pipeline.source,
            CheckedPipeline((behind,), self._checked.key, sink),
            self._pipeline.retries,
            frame,
            self._dead_letters(),
        )
        self._spark.dataSource.register(sink_of(plan))
        return plan.name

    # ------------------------------------------------------------ from group to group

    def _built(self, end: ColumnNeeds, *, asked: bool, to_user: bool) -> tuple[Any, PipelineFrame]:
        needs = needs_of(self._groups, end, asked=asked)
        apart = self._streaming and not to_user and goes_past(self._groups)
        if apart:
            check_repeatable(self._checked)
            check_format(self._options)
            self._begin = self._begin or begin_of_both(self._options, self._ends)
        df, frame = self._source(self._groups[0], needs[0], errors=not apart)
        if apart:
            self._failed = self._failed_source()
        for group, need in zip(self._groups[1:], needs[1:], strict=True):
            if group.place == "mapInArrow":
                df, frame = self._mapped(group, need, df, frame)
                continue
            step = group.steps[0]
            if frame.errors and to_user:
                raise ConfigError(
                    step.stage.name,
                    "is a DataFrame stage, and failed records would be rows of its DataFrame: take the DataFrame before "
                    "it and go on from there, or give the stages before it on_error='skip'",
                )
            if frame.errors:
                self.kept = df.persist()
                self._failed = df.where(f"{ERROR} is not null").select(ERROR)
                df = df.where(f"{ERROR} is null").drop(ERROR)
            df = self._transformed(step, df)
            frame = _frame_of(step, df)
        return df, frame

    def _source(self, group: StageGroup, need: ColumnNeeds, *, errors: bool) -> tuple[Any, PipelineFrame]:
        columns = group.steps[-1].behind if group.steps else SCHEMA
        behind = PipelineFrame(
            columns, need.kafka, need.value, errors and bool(failing(group.steps)), _stage_of(group.steps)
        )
        return self._read(self._fusion(group.steps, behind), self._options), behind

    def _read(self, fusion: FusedStages, options: dict[str, str]) -> Any:
        made = source_of(SourcePlan(self._names.take(), fusion, options, self._ends, self._begin))
        self._spark.dataSource.register(made)
        reader = self._spark.readStream if self._streaming else self._spark.read
        return reader.format(made.name()).load()

    def _mapped(
        self, group: StageGroup, need: ColumnNeeds, df: Any, frame: PipelineFrame
    ) -> tuple[Any, PipelineFrame]:
        """What was not known at the check is known here: the columns that Spark's stages made."""
        steps = []
        columns = frame.user_schema
        for step in group.steps:
            if names_kafka(step.stage) and not frame.kafka:
                raise ConfigError(
                    step.stage.name,
                    f"asks for {KAFKA!r}, and a DataFrame stage before it dropped that column",
                )
            behind = step.stage.output(columns)
            steps.append(step._replace(before=columns, behind=behind))
            columns = behind
        errors = frame.errors or bool(failing(group.steps))
        kafka = frame.kafka and need.kafka
        made = PipelineFrame(columns, kafka, kafka and need.value, errors, _stage_of(group.steps))
        stages = MapInArrowStages(frame, self._fusion(tuple(steps), made))
        return df.mapInArrow(stages, spark_schema(made.schema)), made

    def _fusion(
        self, steps: tuple[CheckedStage, ...], behind: PipelineFrame, *, failed_only: bool = False
    ) -> FusedStages:
        behind.schema  # noqa: B018  # types that Spark has not are named now
        # Behind a DataFrame stage the same stages may have other columns the next time.
        parts = [f"{step.stage.name} {step.before} {step.behind}" for step in steps]
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return FusedStages(f"{self._key} {key}", steps, self._pipeline.retries, behind, failed_only)

    def _dead_letters(self) -> DeadLetterPlan | None:
        return dead_letter_plan(f"{self._key} dead letters", self._pipeline)

    def _transformed(self, step: CheckedStage, df: Any) -> Any:
        stage = step.stage
        assert isinstance(stage, DataFrames)
        if stage.sql is not None:
            return self._spark.sql(template(stage.sql), this=df)
        assert stage.transform is not None  # it has one of the two
        made = stage.transform(df)
        if not hasattr(made, "mapInArrow"):
            raise ConfigError(stage.name, f"returned {made!r}: it must return a DataFrame")
        return made

    def _failed_source(self) -> Any:
        """Reads what the rows are made of once more, as far as the last stage with dead letters, and gives the failed
        records. It commits nothing."""
        steps = failing(self._groups[0].steps)
        fusion = self._fusion(steps, PipelineFrame(pa.schema([]), errors=True), failed_only=True)
        return self._read(fusion, options_of_failed(self._options, self._begin))


def _stage_of(steps: tuple[CheckedStage, ...]) -> str:
    return steps[-1].stage.name if steps else STAGE


def _frame_of(step: CheckedStage, df: Any) -> PipelineFrame:
    """What a DataFrame stage left. Raises `ConfigError` for a name twice, and where `_kafka` is not what it was."""
    schema = arrow_schema(df.schema)
    name = step.stage.name
    columns = pa.schema([field for field in schema if field.name != KAFKA])
    check_names(name, columns)
    kafka = [field.type for field in schema if field.name == KAFKA]
    if any(kind != KAFKA_TYPE for kind in kafka) or len(kafka) > 1:
        raise ConfigError(name, f"changed the column {KAFKA!r}: leave it as it is, or drop it")
    return PipelineFrame(columns, kafka=bool(kafka), stage=name)
