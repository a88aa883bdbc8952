"""Groups of stages that run in one place, the hidden column between them, and the way of failed records round DataFrame stages.

A DataFrame stage is a group of its own. The frames between groups carry the hidden column `_kafka` through the JVM, with or
without the record's value (`needs_of`). Failed records must not be rows of a DataFrame stage: they bypass it on their way
to the sink (`with_failed`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import functions

from kafka_actors.errors import ConfigError, DataLossError
from kafka_actors.pipeline.engines import CheckedPipeline, CheckedSink, CheckedStage, Place, placed
from kafka_actors.pipeline.rows import KAFKA
from kafka_actors.pipeline.schema_stages import SchemaStage
from kafka_actors.pipeline.stages import (
    DataFrames,
    Filter,
    Function,
    Select,
    Stage,
    WithColumns,
    WithKey,
    WriteFunction,
    WriteParquet,
)
from kafka_actors.spark.source.arrow_types import ERROR, ERROR_FIELD, spark_schema
from kafka_actors.spark.source.checkpoint import checkpoint_of
from kafka_actors.spark.source.machines.offset_ranges import SpecificOffsets
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets
from kafka_actors.spark.source.options import parse_stream
from kafka_actors.spark.source.readers import LIMITS
from kafka_actors.types import EARLIEST, LATEST

from .frames import PipelineFrame
from .pipeline_source import initial_offsets

logger = logging.getLogger(__name__)


class StageGroup(NamedTuple):
    """Stages that run in one place together; a DataFrame stage is a group of its own."""

    place: Place
    steps: tuple[CheckedStage, ...]


class ColumnNeeds(NamedTuple):
    """Hidden columns that a frame needs: `_kafka`, and the record's value in it."""

    kafka: bool = False
    value: bool = False


def groups_of(checked: CheckedPipeline) -> list[StageGroup]:
    """The groups of a pipeline. The first one is the source's, and may be empty."""
    steps = placed(checked, "spark")
    found = []
    for place, same in groupby(steps, key=lambda pair: pair[1]):
        together = tuple(step for step, _ in same)
        found += (
            [StageGroup(place, (step,)) for step in together]
            if place == "DataFrame"
            else [StageGroup(place, together)]
        )
    return found if found and found[0].place == "source" else [StageGroup("source", ()), *found]


_NAME = re.compile(rf"(?<!\w){KAFKA}(?!\w)")
"""Pattern for `_kafka` as a whole name, not as part of one such as `from_kafka`."""


def names_kafka(stage: Stage) -> bool:
    """Whether a stage uses `_kafka`, by its arguments or by the text of its expressions."""
    if isinstance(stage, (Function, WriteFunction, WriteParquet)):
        return stage.kafka
    if isinstance(stage, DataFrames):
        return stage.kafka or _named(stage.sql or "")
    if isinstance(stage, Filter):
        return _named(stage.expression)
    if isinstance(stage, (Select, WithColumns)):
        return any(_named(expression) for _, expression in stage.items)
    return isinstance(stage, WithKey) and _named(stage.key)


def _named(text: Any) -> bool:
    """Whether the text of a query, a path or an expression names `_kafka`."""
    return _NAME.search(str(text)) is not None


def needs_of(groups: list[StageGroup], end: ColumnNeeds, *, explicit: bool) -> list[ColumnNeeds]:
    """The hidden columns of the frame behind each group; `end` are those that the sinks need, `explicit`: the
    user named them.

    Groups get `_kafka` also where nothing names it, to say in errors which records failed, unless a DataFrame stage comes before
    them, behind which rows belong to no record.
    """
    found: list[ColumnNeeds] = []
    need = end
    for group in reversed(groups):
        found.append(need)
        explicit = explicit or any(names_kafka(step.stage) for step in group.steps)
        if group.place == "DataFrame":
            need = ColumnNeeds(explicit, False)
        else:
            dead = any(step.on_error == "dead_letter" for step in group.steps)
            need = ColumnNeeds(True, need.value or dead)
    return list(reversed(found))


def sink_needs(sinks: Sequence[CheckedSink]) -> tuple[ColumnNeeds, bool]:
    """The hidden columns that the sinks need, and whether the user named `_kafka`. Files get it only where they ask for it."""
    steps = [step for sink in sinks for step in (sink.step, sink.key) if step is not None]
    explicit = any(names_kafka(step.stage) for step in steps)
    written = [sink.step for sink in sinks if not isinstance(sink.step.stage, WriteParquet)]
    dead = any(step.on_error == "dead_letter" for step in written)
    return ColumnNeeds(explicit or bool(written), dead), explicit


_GROUP_OPTIONS = ("commitoffsets", "kafka.group.id")


def steps_with_dead_letters(steps: tuple[CheckedStage, ...]) -> tuple[CheckedStage, ...]:
    """The steps up to the last one with dead letters; empty without one."""
    at_dead_letters = [at for at, step in enumerate(steps) if step.on_error == "dead_letter"]
    return steps[: at_dead_letters[-1] + 1] if at_dead_letters else ()


def steps_to_repeat(steps: tuple[CheckedStage, ...]) -> tuple[tuple[CheckedStage, ...], pa.Schema]:
    """The steps of a group that find a stream's failed records in a source of their own, and the columns that leave the group, whose values
    Spark's types may not hold. Behind a user's function, which makes all columns anew, no such value is a dead letter: there are no columns
    then, and only the steps up to the last one with dead letters."""
    dead = steps_with_dead_letters(steps)
    if any(isinstance(step.stage, Function) for step in steps[len(dead) :]):
        return dead, pa.schema([])
    return steps, steps[-1].behind


def has_failed_before_dataframe(groups: list[StageGroup]) -> bool:
    """Whether a stage with dead letters comes before a DataFrame stage."""
    before = list(takewhile(lambda group: group.place != "DataFrame", groups))
    return len(before) < len(groups) and any(steps_with_dead_letters(group.steps) for group in before)


def check_repeatable(checked: CheckedPipeline) -> None:
    """Raises `ConfigError` for dead letters of a stream at, or behind, a user's function before a DataFrame stage; and a decoder that asks a
    registry and doesn't fail the stream.

    There a stream processes records twice, once for the rows and once for the dead letters, and the same ones have to
    fail both times. A user's function need not be deterministic, and a registry may have a schema the second time that it lacked, so that the
    record would be neither a row nor a dead letter.
    """
    why = ""
    for step in takewhile(lambda step: not isinstance(step.stage, DataFrames), checked.steps):
        stage = step.stage
        if isinstance(stage, Function):
            why = f"{stage.name} may not fail for the same ones again: use 'fail' or 'skip' for it"
        if isinstance(stage, SchemaStage) and step.on_error != "fail" and not stage.decoder.fails_again:
            why = (
                f"the registry may lack a schema that {stage.name} needs the first time only: say on_new_schema='fail' or "
                "on_error='fail' for it"
            )
        if step.on_error == "dead_letter" and why:
            raise ConfigError(
                stage.name,
                "has on_error='dead_letter' before a DataFrame stage of a stream, where records are processed twice, "
                f"and {why}, or run it in another pipeline that writes to a topic",
            )


def check_format(options: Mapping[str, str]) -> None:
    """Raises `ConfigError` where a stream's two sources would store their offsets in one directory."""
    if parse_stream(options, limits=LIMITS).state_location is not None:
        raise ConfigError(
            "offsetFormat",
            "is for one source, and with dead letters before a DataFrame stage the stream has two: leave it and "
            "stateLocation out",
        )


def begin_of_both(
    options: Mapping[str, str], ends: StreamOffsets | None, spark: Any, checkpoint: str
) -> StreamOffsets | None:
    """The start of both sources of a new stream, resolved once, because retention may delete records between two look-ups of the
    earliest offsets. None where the options name offsets, and where the checkpoint has some, which win.

    Raises as `StreamDriver.initial`; over Spark Connect, from where the checkpoint is unknown, not for a start that can't be.
    """
    if _names_offsets(options):
        return None
    found = checkpoint_of(spark, checkpoint)
    if found is not None and found.newest_offsets(spark._jvm) is not None:
        return None
    try:
        return initial_offsets(options, ends)
    except (ConfigError, DataLossError) as error:
        if found is not None:
            raise
        logger.warning(
            "the checkpoint can't be seen over Spark Connect: a query that is new can't start (%s)", error
        )
        return None


def _names_offsets(options: Mapping[str, str]) -> bool:
    """Whether the start is an offset for each partition, and not a word, a time, or the group's offset."""
    start = parse_stream(options, limits=LIMITS).start
    return isinstance(start, SpecificOffsets) and not {EARLIEST, LATEST} & set(start.by_partition.values())


def options_of_failed(options: Mapping[str, str], begin: StreamOffsets | None) -> dict[str, str]:
    """The options of the source of a stream's failed records, which commits nothing and begins where the other source does: at `begin`, at
    the offsets that the options name, or where the checkpoint says."""
    named = begin is None and _names_offsets(options)
    kept = {
        name: value
        for name, value in options.items()
        if name.lower() not in _GROUP_OPTIONS and (named or not name.lower().startswith("starting"))
    }
    return kept if named or begin is not None else {**kept, "startingOffsets": "earliest"}


def with_failed(df: Any, frame: PipelineFrame, failed: Any) -> tuple[Any, PipelineFrame]:
    """The union of the rows with the failed records that bypassed the DataFrame stages, a DataFrame of the column `_error`.
    Raises `ConfigError` where a stage has made a column of that name."""
    frame_with_errors = msgspec.structs.replace(frame, errors=True)
    frame_with_errors.user_schema  # noqa: B018  # raises for a stage's own column of this name
    error = spark_schema(pa.schema([ERROR_FIELD]))[ERROR].dataType
    rows = df.select("*", functions.lit(None).cast(error).alias(ERROR))
    nulls = [functions.lit(None).cast(field.dataType).alias(field.name) for field in df.schema.fields]
    return rows.union(failed.select(*nulls, ERROR)), frame_with_errors
