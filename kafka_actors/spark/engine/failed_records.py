"""Failed records where there is a DataFrame stage: how they get past it, to the sink."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import functions

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.check import CheckedPipeline, CheckedStage
from kafka_actors.pipeline.stages import DataFrames, Function
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets
from kafka_actors.spark.source.offset_json import GivenOffsets
from kafka_actors.spark.source.options import parse_stream
from kafka_actors.spark.source.stream_reader import LIMITS
from kafka_actors.types import EARLIEST, LATEST

from .arrow_types import spark_schema
from .frames import ERROR, ERROR_FIELD, PipelineFrame
from .kafka_column import StageGroup
from .pipeline_source import initial_offsets

_OF_GROUP = ("commitoffsets", "kafka.group.id")


def failing(steps: tuple[CheckedStage, ...]) -> tuple[CheckedStage, ...]:
    """The steps up to the last one with dead letters; none where there is no such step."""
    with_letters = [at for at, step in enumerate(steps) if step.on_error == "dead_letter"]
    return steps[: with_letters[-1] + 1] if with_letters else ()


def goes_past(groups: list[StageGroup]) -> bool:
    """Whether there are failed records before a DataFrame stage."""
    before = list(takewhile(lambda group: group.place != "DataFrame", groups))
    return len(before) < len(groups) and any(failing(group.steps) for group in before)


def check_repeatable(checked: CheckedPipeline) -> None:
    """Of a stream, where records are worked on twice: once for the rows and once for the dead letters. Those that fail
    have to be the same both times, or some would be neither.

    Raises `ConfigError` for dead letters of, or behind, a function of the user's: nobody knows what that depends on.
    """
    function: str | None = None
    for step in takewhile(lambda step: not isinstance(step.stage, DataFrames), checked.steps):
        if isinstance(step.stage, Function):
            function = step.stage.name
        if step.on_error == "dead_letter" and function is not None:
            raise ConfigError(
                step.stage.name,
                "has on_error='dead_letter' before a DataFrame stage of a stream, where records are worked on twice, "
                f"and {function} may not fail for the same ones again: say 'fail' or 'skip' for it, or let another pipeline "
                "do it that writes to a topic",
            )


def check_format(options: Mapping[str, str]) -> None:
    """Raises `ConfigError` where a stream's two sources would keep their offsets in one place."""
    if parse_stream(options, limits=LIMITS).state_location is not None:
        raise ConfigError(
            "offsetFormat",
            "is for one source, and with dead letters before a DataFrame stage the stream has two: leave it and "
            "stateLocation out",
        )


def begin_of_both(options: Mapping[str, str], ends: StreamOffsets | None) -> StreamOffsets | None:
    """Where both sources of a new stream begin, asked once: retention may pass between two looks for the earliest
    offsets. None where offsets are given, which are the same whoever asks.

    Raises as `StreamDriver.initial`.
    """
    start = parse_stream(options, limits=LIMITS).start
    if isinstance(start, GivenOffsets) and not {EARLIEST, LATEST} & set(start.by_partition.values()):
        return None
    return initial_offsets(options, ends)


def options_of_failed(options: Mapping[str, str], begin: StreamOffsets | None) -> dict[str, str]:
    """Those of the source that gives a stream's failed records: it commits nothing, and begins where the other does."""
    said = "starting" if begin is not None else ()
    return {
        name: value
        for name, value in options.items()
        if name.lower() not in _OF_GROUP and not name.lower().startswith(said)
    }


def with_failed(df: Any, frame: PipelineFrame, failed: Any) -> tuple[Any, PipelineFrame]:
    """The rows, and the failed records that went past the DataFrame stages (a DataFrame with the column `_error`
    alone). Raises `ConfigError` where a stage has made such a column, too."""
    made = msgspec.structs.replace(frame, errors=True)
    made.user_schema  # noqa: B018  # a column that a stage has made of this name is named at once
    error = spark_schema(pa.schema([ERROR_FIELD]))[ERROR].dataType
    rows = df.select("*", functions.lit(None).cast(error).alias(ERROR))
    nulls = [functions.lit(None).cast(field.dataType).alias(field.name) for field in df.schema.fields]
    return rows.union(failed.select(*nulls, ERROR)), made
