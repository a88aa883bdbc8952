"""What later stages need of earlier ones: whether `_kafka` crosses the JVM, and the record's value in it."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any, NamedTuple

from kafka_actors.pipeline.check import CheckedPipeline, CheckedStage
from kafka_actors.pipeline.columns import KAFKA
from kafka_actors.pipeline.explain import Place, placed
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
    """Stages that run together; a DataFrame stage stands alone."""

    place: Place
    steps: tuple[CheckedStage, ...]


class ColumnNeeds(NamedTuple):
    """Of the DataFrame before a group, or before the end."""

    kafka: bool = False
    value: bool = False


def groups_of(checked: CheckedPipeline) -> list[StageGroup]:
    """The first one is the source's, and may be without stages."""
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
"""Not a part of another name: `from_kafka` is a column of the user's."""


def names_kafka(stage: Stage) -> bool:
    """Whether the user asks for `_kafka` in it. An expression's text tells, before its columns are known."""
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
    """In a query, a path or an expression."""
    return _NAME.search(str(given)) is not None


def needs_of(groups: list[StageGroup], end: ColumnNeeds, *, asked: bool) -> list[ColumnNeeds]:
    """What each group's stages have to leave behind; `end` is what the end needs, `asked` whether the user said so.

    Stages and sinks that call the user's code, or send, want to say where they fail: they get `_kafka` without being
    asked, as long as there is no DataFrame stage before them, behind which rows are no records.
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
    """What the sink needs, and whether the user said so."""
    if sink is None:
        return ColumnNeeds(), False
    stages: list[Any] = [sink.stage, *([key.stage] if key is not None else [])]
    asked = any(names_kafka(stage) for stage in stages)
    if isinstance(sink.stage, WriteParquet):
        return ColumnNeeds(asked, False), asked
    assert isinstance(sink.stage, (WriteKafka, WriteFunction))  # the other sinks
    return ColumnNeeds(True, sink.on_error == "dead_letter"), asked
