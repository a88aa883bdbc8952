"""Engines: how they are found by name, and which stages run where on each."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal

from kafka_actors.base.batches import SCHEMA
from kafka_actors.errors import ConfigError, UsageError

from .check import CheckedPipeline, CheckedStage, check
from .stages import RAY, SPARK, Columns, DataFrames, Function

if TYPE_CHECKING:
    from .definition import Definition

GROUP = "kafka_actors.engines"


def engine(name: str) -> Any:
    """The engine of this name: an entry point of an installed package, called with a pipeline and the engine's own arguments.

    Raises `UsageError` for an engine that no installed package registers, or that can't be imported.
    """
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        there = (
            ", ".join(sorted(found))
            or "none: install kafka-actors anew, its metadata are those of an older version"
        )
        raise UsageError(f"there is no engine {name!r}; registered are {there}")
    try:
        return found[name].load()
    except ImportError as error:
        raise UsageError(
            f"the engine {name!r} can't be imported ({error}): pip install 'kafka-actors[{name}]'"
        ) from error


Place = Literal["worker", "source", "mapInArrow", "DataFrame"]

_TEXTS: dict[Place, str] = {
    "worker": "in each worker, one batch of one partition after another",
    "source": "fused into the data source's Python worker, before rows enter the JVM",
    "mapInArrow": "as mapInArrow, behind the JVM",
    "DataFrame": "by Spark",
}


def placed(checked: CheckedPipeline, engine: str) -> list[tuple[CheckedStage, Place]]:
    """The place of each step. On Spark the Arrow stages before the first DataFrame stage are fused into the source, up to
    the first one that needs a GPU."""
    found: list[tuple[CheckedStage, Place]] = []
    fused = True
    for step in checked.steps:
        if engine == RAY:
            found.append((step, "worker"))
        elif isinstance(step.stage, DataFrames):
            fused = False
            found.append((step, "DataFrame"))
        else:
            fused = fused and not (isinstance(step.stage, Function) and step.stage.num_gpus > 0)
            found.append((step, "source" if fused else "mapInArrow"))
    return found


def explain(pipeline: Definition, engine: str) -> str:
    """The plan of a pipeline on an engine, as text of several lines. Raises `ConfigError` as `check`."""
    if engine not in (RAY, SPARK):
        raise ConfigError("engine", f"is {engine!r}: accepts 'ray' or 'spark'")
    checked = check(pipeline, engine)
    assert pipeline.source is not None
    group = f", group {pipeline.source.group_id}" if pipeline.source.group_id else ""
    lines = [f"On {engine.capitalize()}: {pipeline.source.what}{group}", f"      {_columns(SCHEMA)}"]
    before: Place | None = None
    for number, (step, place) in enumerate(placed(checked, engine), 1):
        if place != before:
            lines.append(f"  {_TEXTS[place]}:")
            before = place
        lines += _step(number, step)
    if checked.sink is not None:
        number = len(checked.steps) + 1
        key = [] if checked.key is None else [checked.key.stage.name]
        where = (
            "in each worker, flushed before offsets are committed"
            if engine == RAY
            else "in the tasks of the sink"
        )
        lines.append(f"  {where}:")
        lines.append(f"  {number:>3} {' '.join([*key, checked.sink.stage.name])}{_policy(checked.sink)}")
    if pipeline.dead_letter_topic:
        lines.append(f"  dead letters go to {pipeline.dead_letter_topic}")
    return "\n".join(lines)


def _step(number: int, step: CheckedStage) -> list[str]:
    gpus = getattr(step.stage, "num_gpus", 0)
    more = f", num_gpus {gpus:g} in each worker" if gpus else ""
    return [f"  {number:>3} {step.stage.name}{_policy(step)}{more}", f"      {_columns(step.behind)}"]


def _policy(step: CheckedStage) -> str:
    return "" if step.on_error == "fail" else f"  on_error {step.on_error}"


def _columns(columns: Columns) -> str:
    if columns is None:
        return "→ columns that Spark knows at the start"
    return "→ " + ", ".join(f"{field.name} {field.type}" for field in columns)
