"""A pipeline as a DataFrame: the source with what is fused into it, and behind it what Spark runs."""

from __future__ import annotations

import uuid
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa

from kafka_actors.batches import SCHEMA
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.checking import Checked, Step
from kafka_actors.pipeline.columns import KAFKA, KAFKA_TYPE
from kafka_actors.pipeline.stages import DataFrames, WriteParquet
from kafka_actors.spark.machines.stream import StreamOffsets

from .dataframe import Frame
from .dead_letters import DeadLetterPlan, dead_letter_plan
from .fusion import Fusion
from .kafka_column import Group, Needs, groups_of, names_kafka, needs_of, sink_needs
from .map_in_arrow import Stages, WithoutFailed
from .sink import SinkPlan, sink_of
from .source import SourcePlan, source_of
from .types import arrow_schema, spark_schema

_KEYS: WeakKeyDictionary[Pipeline, str] = WeakKeyDictionary()


def key_of(pipeline: Pipeline) -> str:
    """What the classes of a pipeline are kept under in Python workers: the same as long as the pipeline is there."""
    return _KEYS.setdefault(pipeline, uuid.uuid4().hex)


class Building:
    """Makes the DataFrame of one read of a pipeline. `options` are the data source's, `ends` a backfill's."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: Any,
        options: dict[str, str],
        *,
        streaming: bool,
        ends: StreamOffsets | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._options = options
        self._streaming = streaming
        self._ends = ends
        self._key = key_of(pipeline)
        self._checked = pipeline.check("spark")
        self._groups = groups_of(self._checked)

    # ------------------------------------------------------------ what comes out of it

    def rows(self, *, kafka: bool) -> Any:
        """The DataFrame without the sink, for the user. Raises `ConfigError`."""
        df, frame = self._built(Needs(kafka), asked=kafka, to_user=True)
        if kafka and not frame.kafka:
            raise ConfigError("kafka", f"is asked for, and a DataFrame stage dropped the column {KAFKA!r}")
        return df if kafka or not frame.kafka else df.drop(KAFKA)

    def to_write(self) -> tuple[Any, SinkPlan | None]:
        """The DataFrame and what writes it; None: Parquet, which Spark writes. Raises `ConfigError`."""
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
        if isinstance(sink.stage, WriteParquet):
            if frame.errors:
                df, frame = self._without_failed(df, frame)
            return (df if sink.stage.kafka or not frame.kafka else df.drop(KAFKA)), None
        return df, self._sink_plan(frame, sink)

    def _sink_plan(self, frame: Frame, sink: Step) -> SinkPlan:
        assert self._pipeline.source is not None
        # What the tasks need of the other stages is only which columns they left.
        behind = Step(sink.stage, None, frame.user_schema, sink.on_error)
        plan = SinkPlan(
            f"kafka_actors_sink_{uuid.uuid4().hex}",
            f"{self._key} sink",
            self._pipeline.source,
            Checked((behind,), self._checked.key, sink),
            self._pipeline.retries,
            frame,
            self._dead_letters(),
        )
        self._spark.dataSource.register(sink_of(plan))
        return plan

    # ------------------------------------------------------------ from group to group

    def _built(self, end: Needs, *, asked: bool, to_user: bool) -> tuple[Any, Frame]:
        needs = needs_of(self._groups, end, asked=asked)
        df, frame = self._source(self._groups[0], needs[0])
        for group, need in zip(self._groups[1:], needs[1:], strict=True):
            if group.place == "mapInArrow":
                df, frame = self._mapped(group, need, df, frame)
                continue
            if frame.errors and to_user:
                raise ConfigError(
                    group.steps[0].stage.name,
                    "is a DataFrame stage, and failed records would be rows of its DataFrame: take the DataFrame before "
                    "it and go on from there, or give the stages before it on_error='skip'",
                )
            if frame.errors:
                df, frame = self._without_failed(df, frame)
            df = self._transformed(group.steps[0], df)
            frame = _frame_of(group.steps[0], df)
        return df, frame

    def _source(self, group: Group, need: Needs) -> tuple[Any, Frame]:
        columns = group.steps[-1].behind if group.steps else SCHEMA
        fusion = self._fusion(group.steps, Frame(columns, need.kafka, need.value, _makes_errors(group)))
        name = f"kafka_actors_pipeline_{uuid.uuid4().hex}"
        plan = SourcePlan(name, fusion, self._options, self._ends)
        made = source_of(plan)
        self._spark.dataSource.register(made)
        reader = self._spark.readStream if self._streaming else self._spark.read
        return reader.format(made.name()).load(), fusion.behind

    def _mapped(self, group: Group, need: Needs, df: Any, frame: Frame) -> tuple[Any, Frame]:
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
        errors = frame.errors or _makes_errors(group)
        kafka = frame.kafka and need.kafka
        made = Frame(columns, kafka, kafka and need.value, errors)
        stages = Stages(frame, self._fusion(tuple(steps), made))
        return df.mapInArrow(stages, spark_schema(made.schema)), made

    def _fusion(self, steps: tuple[Step, ...], behind: Frame) -> Fusion:
        behind.schema  # noqa: B018  # types that Spark has not are named now
        key = " ".join([self._key, *(step.stage.name for step in steps)])
        return Fusion(key, steps, self._pipeline.retries, behind)

    def _without_failed(self, df: Any, frame: Frame) -> tuple[Any, Frame]:
        made = msgspec.structs.replace(frame, errors=False)
        dead = self._dead_letters()
        assert dead is not None
        step = WithoutFailed(frame, dead, made.schema)
        return df.mapInArrow(step, spark_schema(made.schema)), made

    def _dead_letters(self) -> DeadLetterPlan | None:
        return dead_letter_plan(f"{self._key} dead letters", self._pipeline)

    def _transformed(self, step: Step, df: Any) -> Any:
        stage = step.stage
        assert isinstance(stage, DataFrames)
        if stage.sql is not None:
            return self._spark.sql(stage.sql, this=df)
        assert stage.transform is not None
        made = stage.transform(df)
        if not hasattr(made, "mapInArrow"):
            raise ConfigError(stage.name, f"returned {made!r}: it must return a DataFrame")
        return made


def _makes_errors(group: Group) -> bool:
    return any(step.on_error == "dead_letter" for step in group.steps)


def _frame_of(step: Step, df: Any) -> Frame:
    """What a DataFrame stage left. Raises `ConfigError` where `_kafka` is not what it was."""
    schema = arrow_schema(df.schema)
    at = schema.get_field_index(KAFKA)
    if at < 0:
        return Frame(schema)
    if schema.field(at).type != KAFKA_TYPE:
        raise ConfigError(step.stage.name, f"changed the column {KAFKA!r}: leave it as it is, or drop it")
    return Frame(pa.schema([field for field in schema if field.name != KAFKA]), kafka=True)
