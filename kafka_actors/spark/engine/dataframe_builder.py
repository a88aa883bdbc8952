"""A pipeline as a DataFrame: the source with the stages fused into it, and behind it the stages that Spark runs."""

from __future__ import annotations

import hashlib
import re
import uuid
from string import Formatter
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa

from kafka_actors.base.batches import SCHEMA
from kafka_actors.base.paths import absolute_path
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.engines import CheckedSink, CheckedStage
from kafka_actors.pipeline.rows import KAFKA, KAFKA_TYPE, check_names
from kafka_actors.pipeline.source import STAGE
from kafka_actors.pipeline.stages import DataFrames, WriteParquet
from kafka_actors.spark.source.arrow_types import ERROR, arrow_schema, spark_schema
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets

from .dead_letters import DeadLetterPlan, dead_letter_plan
from .frames import PipelineFrame
from .pipeline_sink import SinkPlan, sink_of
from .pipeline_source import FusedStages, MapInArrowStages, SourceNames, SourcePlan, source_of
from .stage_groups import (
    ColumnNeeds,
    StageGroup,
    begin_of_both,
    check_format,
    check_repeatable,
    groups_of,
    has_failed_before_dataframe,
    names_kafka,
    needs_of,
    options_of_failed,
    sink_needs,
    steps_to_repeat,
    steps_with_dead_letters,
    with_failed,
)
from .transactional_sink import checked_splits

_THIS = re.compile(r"(\{this(?:\[[^\]{}]*\])?\})")


def template(query: str) -> str:
    """The query of a `.sql(…)` stage in the form of `spark.sql(query, this=df)`, in which every brace is doubled except those
    of {this} and {this[column]}.

    In a stage braces are literal, as in `rlike '[0-9]{3}'`. A query in which they are doubled already is not changed.
    """
    if _is_template(query):
        return query
    parts = _THIS.split(query)
    parts[::2] = (part.replace("{", "{{").replace("}", "}}") for part in parts[::2])
    return "".join(parts)


def _is_template(query: str) -> bool:
    try:
        names = [name for _, name, _, _ in Formatter().parse(query) if name is not None]
    except ValueError:  # a brace alone
        return False
    return all(name == "this" or name.startswith("this[") for name in names)


_KEYS: WeakKeyDictionary[Pipeline, str] = WeakKeyDictionary()


def key_of(pipeline: Pipeline) -> str:
    """The key of a pipeline's objects in the caches of Python workers: constant for the lifetime of the pipeline."""
    return _KEYS.setdefault(pipeline, uuid.uuid4().hex)


class DataFrameBuilder:
    """Makes the DataFrame of one read of a pipeline. `options` are the data source's, `begin` and `ends` a backfill's,
    `names` are for the registration of data sources.

    Failed records must not be rows of a DataFrame stage, which may drop or repeat its rows: they bypass it to the sink, in
    a union. A batch persists the rows before that stage, so that each record is processed once, whatever Spark does with
    the rows. A stream can't persist them: there the stages up to the last one with dead letters run a second time, in
    a source of their own.
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
        self.persisted: Any = None
        """DataFrame to persist while a batch runs; None without one."""

    def release(self) -> None:
        """Releases names and DataFrame, where the run did not start."""
        self._names.give_back()
        if self.persisted is not None:
            self.persisted.unpersist()

    # ------------------------------------------------------------ what comes out of it

    def rows(self, *, kafka: bool) -> Any:
        """The DataFrame without the sink, for the user. Raises `ConfigError`."""
        df, frame = self._built(ColumnNeeds(kafka), explicit=kafka, to_user=True)
        if kafka and not frame.kafka:
            raise ConfigError("kafka", f"is true, and a DataFrame stage dropped the column {KAFKA!r}")
        return df if kafka or not frame.kafka else df.drop(KAFKA)

    def to_write(self, checkpoint: str | None = None) -> tuple[Any, str]:
        """The DataFrame, and the format that writes it to all sinks; errors name the query's `checkpoint`. Raises `ConfigError`, also for a
        plan from which a sink can't deliver exactly once."""
        sinks = self._checked.sinks
        if not sinks:
            raise ConfigError(
                "pipeline",
                "has no sink: end it with write_kafka(…), write_parquet(…) or write(function), or take .dataframe()",
            )
        need, explicit = sink_needs(sinks)
        df, frame = self._built(need, explicit=explicit, to_user=False, checkpoint=checkpoint)
        for step in (step for sink in sinks for step in (sink.key, sink.step) if step is not None):
            step.stage.output(frame.user_schema)
            if names_kafka(step.stage) and not frame.kafka:
                raise ConfigError(
                    step.stage.name,
                    f"asks for {KAFKA!r}, and a DataFrame stage before it dropped that column",
                )
        if self._failed is not None:
            df, frame = with_failed(df, frame, self._failed)
        if frame.kafka and not need.kafka:
            df, frame = df.drop(KAFKA), msgspec.structs.replace(frame, kafka=False)
        splits = checked_splits(df, sinks, self._options, streaming=self._streaming)
        return df, self._to_sinks(frame, sinks, splits, checkpoint)

    def _to_sinks(
        self,
        frame: PipelineFrame,
        sinks: tuple[CheckedSink, ...],
        splits: str = "",
        checkpoint: str | None = None,
    ) -> str:
        assert self._pipeline.source is not None  # the pipeline's check requires one
        columns = frame.user_schema
        written, files = [], []
        for step, key in sinks:
            if isinstance(step.stage, WriteParquet):
                files.append(msgspec.structs.replace(step.stage, path=absolute_path(step.stage.path)))
            else:
                step.stage.output(columns)  # behind a DataFrame stage they are known only now
                written.append(CheckedSink(step._replace(before=columns, behind=columns), key))
        plan = SinkPlan(
            self._names.take(),
            uuid.uuid4().hex,
            self._cache_key("sinks", str(columns)),
            self._pipeline.source,
            tuple(written),
            tuple(files),
            self._pipeline.retries,
            frame,
            self._dead_letters(),
            splits,
            checkpoint,
        )
        self._spark.dataSource.register(sink_of(plan))
        return plan.name

    # ------------------------------------------------------------ from group to group

    def _built(
        self, end: ColumnNeeds, *, explicit: bool, to_user: bool, checkpoint: str | None = None
    ) -> tuple[Any, PipelineFrame]:
        needs = needs_of(self._groups, end, explicit=explicit)
        apart = self._streaming and not to_user and has_failed_before_dataframe(self._groups)
        if apart:
            assert checkpoint is not None  # a stream that is written has one
            check_repeatable(self._checked)
            check_format(self._options)
            self._begin = self._begin or begin_of_both(self._options, self._ends, self._spark, checkpoint)
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
                self.persisted = df.persist()
                self._failed = df.where(f"{ERROR} is not null").select(ERROR)
                df = df.where(f"{ERROR} is null").drop(ERROR)
            df = self._transformed(step, df)
            frame = _frame_of(step, df)
        return df, frame

    def _source(self, group: StageGroup, need: ColumnNeeds, *, errors: bool) -> tuple[Any, PipelineFrame]:
        columns = group.steps[-1].behind if group.steps else SCHEMA
        behind = PipelineFrame(
            columns,
            need.kafka,
            need.value,
            errors and bool(steps_with_dead_letters(group.steps)),
            _stage_of(group.steps),
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
        """Adds stages as mapInArrow. The columns of the DataFrame stages before them, unknown at the check, are known here."""
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
        errors = frame.errors or bool(steps_with_dead_letters(group.steps))
        kafka = frame.kafka and need.kafka
        made = PipelineFrame(columns, kafka, kafka and need.value, errors, _stage_of(group.steps))
        stages = MapInArrowStages(frame, self._fusion(tuple(steps), made))
        return df.mapInArrow(stages, spark_schema(made.schema)), made

    def _fusion(
        self, steps: tuple[CheckedStage, ...], behind: PipelineFrame, *, failed_only: bool = False
    ) -> FusedStages:
        behind.schema  # noqa: B018  # raises for types that Spark doesn't have
        key = self._cache_key(*(f"{step.stage.name} {step.before} {step.behind}" for step in steps))
        return FusedStages(key, steps, self._pipeline.retries, behind, failed_only)

    def _cache_key(self, *parts: str) -> str:
        """The key of stages or sinks in the caches of Python workers. Behind a DataFrame stage the same ones may have other
        columns the next time, which are among the `parts`."""
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return f"{self._key} {digest}"

    def _dead_letters(self) -> DeadLetterPlan | None:
        return dead_letter_plan(f"{self._key} dead letters", self._pipeline)

    def _transformed(self, step: CheckedStage, df: Any) -> Any:
        stage = step.stage
        assert isinstance(stage, DataFrames)
        if stage.sql is not None:
            return self._spark.sql(template(stage.sql), this=df)
        assert stage.transform is not None  # a stage has one of the two
        made = stage.transform(df)
        if not hasattr(made, "mapInArrow"):
            raise ConfigError(stage.name, f"returned {made!r}: it must return a DataFrame")
        return made

    def _failed_source(self) -> Any:
        """The failed records of a stream: a second source reads the same records, and runs the stages that `steps_to_repeat` says. It commits
        nothing."""
        steps, columns = steps_to_repeat(self._groups[0].steps)
        behind = PipelineFrame(columns, errors=True, stage=_stage_of(steps))
        fusion = self._fusion(steps, behind, failed_only=True)
        return self._read(fusion, options_of_failed(self._options, self._begin))


def _stage_of(steps: tuple[CheckedStage, ...]) -> str:
    return steps[-1].stage.name if steps else STAGE


def _frame_of(step: CheckedStage, df: Any) -> PipelineFrame:
    """The frame behind a DataFrame stage. Raises `ConfigError` for a duplicate column, and where `_kafka` was changed."""
    schema = arrow_schema(df.schema)
    name = step.stage.name
    columns = pa.schema([field for field in schema if field.name != KAFKA])
    check_names(name, columns)
    kafka = [field.type for field in schema if field.name == KAFKA]
    if any(kind != KAFKA_TYPE for kind in kafka) or len(kafka) > 1:
        raise ConfigError(name, f"changed the column {KAFKA!r}: leave it as it is, or drop it")
    return PipelineFrame(columns, kafka=bool(kafka), stage=name)
