"""Propagation of the hidden column: which frames carry `_kafka` through the JVM, with or without the record's value."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any, NamedTuple

from kafka_actors.pipeline.check import CheckedPipeline, CheckedStage
from kafka_actors.pipeline.engines import Place, placed
from kafka_actors.pipeline.rows import KAFKA
from kafka_actors.pipeline.stages import (
    DataFrames,
    Filter,
    Function,
    Select,
    Stage,
    WithColumns,
    WithKey,
    WriteFunction,
    WriteKafka,
    WriteParquet,
)


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
        return any(_named(given) for _, given in stage.items)
    return isinstance(stage, WithKey) and _named(stage.key)


def _named(given: Any) -> bool:
    """Whether the text of a query, a path or an expression names `_kafka`."""
    return _NAME.search(str(given)) is not None


def needs_of(groups: list[StageGroup], end: ColumnNeeds, *, asked: bool) -> list[ColumnNeeds]:
    """The hidden columns of the frame behind each group; `end` are those that the sink needs, `asked`: the user named them.

    Groups get `_kafka` without being asked, to say in errors which records failed, unless a DataFrame stage comes before
    them, behind which rows belong to no record.
    """
    found: list[ColumnNeeds] = []
    need, explicit = end, asked
    for group in reversed(groups):
        found.append(need)
        explicit = explicit or any(names_kafka(step.stage) for step in group.steps)
        if group.place == "DataFrame":
            need = ColumnNeeds(explicit, False)
        else:
            dead = any(step.on_error == "dead_letter" for step in group.steps)
            need = ColumnNeeds(True, need.value or dead)
    return list(reversed(found))


def sink_needs(sink: CheckedStage | None, key: CheckedStage | None) -> tuple[ColumnNeeds, bool]:
    """The hidden columns that the sink needs, and whether the user named `_kafka`."""
    if sink is None:
        return ColumnNeeds(), False
    stages: list[Any] = [sink.stage, *([key.stage] if key is not None else [])]
    asked = any(names_kafka(stage) for stage in stages)
    if isinstance(sink.stage, WriteParquet):
        return ColumnNeeds(asked, False), asked
    assert isinstance(sink.stage, (WriteKafka, WriteFunction))  # the other sinks
    return ColumnNeeds(True, sink.on_error == "dead_letter"), asked
