"""Engines: how they are found by name, the check of a definition for one before anything starts, and which stages run where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kafka_actors.base.batches import SCHEMA
from kafka_actors.base.callables import unpicklable
from kafka_actors.base.paths import directory_of
from kafka_actors.base.topics import check_dlq_topic, check_results
from kafka_actors.errors import ConfigError, UsageError

from .schema_stages import DecodeKey, SchemaStage
from .source import producer_config
from .stages import (
    RAY,
    SPARK,
    Columns,
    DataFrames,
    DecodeJson,
    Function,
    OnError,
    Stage,
    WithKey,
    WriteFunction,
    WriteKafka,
    WriteParquet,
)

if TYPE_CHECKING:
    from .definition import Definition


class CheckedStage(NamedTuple):
    """Stage in its place, with the columns before and behind it, None where only Spark or a registry will know them."""

    stage: Stage
    before: Columns
    behind: Columns
    on_error: OnError


class CheckedSink(NamedTuple):
    """Sink, which gets the columns before its step, and the `with_key` before it."""

    step: CheckedStage
    key: CheckedStage | None = None

    @property
    def name(self) -> str:
        return self.step.stage.name


RUN_OPTIONS = ("ordering", "concurrency")
"""Options of a job that a stage may say for the whole run."""


class CheckedPipeline(NamedTuple):
    """Checked definition. The sinks, all of which get the rows behind the last step, are not among the steps."""

    steps: tuple[CheckedStage, ...]
    sinks: tuple[CheckedSink, ...]

    @property
    def columns(self) -> Columns:
        """The columns behind the last step, which the sinks get."""
        return self.steps[-1].behind if self.steps else SCHEMA

    @property
    def with_sinks(self) -> tuple[CheckedStage, ...]:
        """The steps, and those of the sinks."""
        return (*self.steps, *(sink.step for sink in self.sinks))

    @property
    def run_options(self) -> dict[str, tuple[Any, str]]:
        """Options of a run on Ray that stages say, each with the first stage that says it. Raises `ConfigError` where two differ."""
        found: dict[str, tuple[Any, str]] = {}
        for stage in (step.stage for step in self.steps if isinstance(step.stage, Function)):
            for option in RUN_OPTIONS:
                if (value := getattr(stage, option)) is None:
                    continue
                first, name = found.setdefault(option, (value, stage.name))
                if value != first:
                    raise ConfigError(
                        stage.name,
                        f"{option} is {value!r}, and {name} says {first!r}: a run has one; say it once",
                    )
        return found

    @property
    def num_gpus(self) -> float:
        """The sum over all stages, which run in one worker."""
        return float(sum(s.stage.num_gpus for s in self.steps if isinstance(s.stage, Function)))


def check(pipeline: Definition, engine: str | None) -> CheckedPipeline:
    """Checks a definition for an engine, or for any: see `Pipeline.check`."""
    if pipeline.source is None:
        raise ConfigError("pipeline", "has no source: begin it with Pipeline.read_kafka(…)")
    columns: Columns = SCHEMA
    steps = []
    for stage in pipeline.stages:
        _check_place(pipeline, stage)
        if engine is not None:
            _check_engine(stage, engine)
        behind = stage.output(columns)
        steps.append(CheckedStage(stage, columns, behind, pipeline.policy_of(stage)))
        columns = behind
    checked = _split(steps)
    _ = checked.run_options  # raises where stages differ
    if engine == RAY:
        _check_ray(pipeline, checked)
    if engine == SPARK:
        _check_spark(checked)
    _check_dead_letters(pipeline, checked, engine)
    _check_producers(pipeline, checked)
    _check_directories(checked)
    return checked


_MADE_ANEW = b"_make_skeleton_class"
"""In a pickle of cloudpickle: a class that is not imported where it arrives but made anew. Its attributes are set afterwards, when the fields
of a Struct are fixed."""


def check_travels(checked: CheckedPipeline, dumps: Callable[[Any], bytes]) -> None:
    """Checks that users' code can be pickled by the engine's `dumps`. Raises `ConfigError`, naming stage and variable."""
    for stage in (step.stage for step in checked.with_sinks):
        if isinstance(stage, DecodeJson) and stage.row is not None and _MADE_ANEW in dumps(stage.row):
            raise ConfigError(
                stage.name,
                f"{stage.row.__name__} is a msgspec Struct that workers can't import, and one that is sent to them loses its "
                "fields: put it into a module that they have, or give the columns as text, 'id BIGINT, …'",
            )
        if isinstance(stage, (Function, WriteFunction)):
            for part, value in (("", stage.target), ("fn_constructor_kwargs: ", stage.arguments)):
                if (why := unpicklable(value, dumps)) is not None:
                    raise ConfigError(
                        stage.name,
                        f"{part}can't be sent to the workers: {why}; make it in a class's constructor, which runs there",
                    )


def _split(steps: list[CheckedStage]) -> CheckedPipeline:
    rest: list[CheckedStage] = []
    sinks: list[CheckedSink] = []
    key: CheckedStage | None = None
    for step in steps:
        if isinstance(step.stage, WithKey):
            key = step  # its sink comes next
        elif step.stage.is_sink:
            sinks.append(CheckedSink(step, key))
            key = None
        else:
            rest.append(step)
    return CheckedPipeline(tuple(rest), tuple(sinks))


def _check_place(pipeline: Definition, stage: Stage) -> None:
    at = pipeline.stages.index(stage)
    following = pipeline.stages[at + 1] if at + 1 < len(pipeline.stages) else None
    if stage.is_sink and not (following is None or following.is_sink or isinstance(following, WithKey)):
        raise ConfigError(
            stage.name,
            f"is a sink, and {following.name} comes behind it: all sinks come last and get the same rows; put {following.name} "
            "before the first one, or in a pipeline of its own",
        )
    if isinstance(stage, WithKey):
        if not isinstance(following, WriteKafka):
            raise ConfigError(stage.name, "is for write_kafka: put it just before it")
        if following.format == "columns":
            raise ConfigError(
                stage.name, f"is not for {following.name} with format='columns': there the column 'key' is it"
            )


def _check_engine(stage: Stage, engine: str) -> None:
    if engine not in stage.engines:
        assert isinstance(stage, DataFrames)
        raise ConfigError(
            stage.name,
            f"is a DataFrame stage, which runs on Spark: start it with .on_spark(spark), or say it as filter, "
            f"with_columns or map_batches, which run on {engine.capitalize()} too",
        )


def _check_ray(pipeline: Definition, checked: CheckedPipeline) -> None:
    assert pipeline.source is not None
    if pipeline.source.group_id is None:
        raise ConfigError("group_id", "is required on Ray: read_kafka(…, group_id=…)")
    if not checked.sinks:
        raise ConfigError(
            "pipeline", "has no sink: end it with write_kafka(…), write_parquet(…) or write(function)"
        )
    for stage in (sink.step.stage for sink in checked.sinks):
        if isinstance(stage, WriteKafka) and stage.delivery == "exactly_once":
            raise ConfigError(
                stage.name,
                "delivery is 'exactly_once', which is for Spark's tasks: on Ray delivery is that of the job",
            )


def _check_spark(checked: CheckedPipeline) -> None:
    """Raises `ConfigError` for dead letters behind a DataFrame stage, whose rows belong to no record that could be sent, and for keys' schemas
    that could be others when the query is started again."""
    before: Stage | None = None
    for step in checked.with_sinks:
        if isinstance(step.stage, DecodeKey) and step.stage.is_open:
            raise ConfigError(
                step.stage.name,
                "needs version=, a number: a query that is started again keeps the schema of values only",
            )
        if isinstance(step.stage, Function) and step.stage.ordering not in (None, "partition"):
            raise ConfigError(
                step.stage.name,
                f"ordering is {step.stage.ordering!r}, which is for Ray: on Spark one task reads a partition, in its order; say it in on_ray(…)",
            )
        if isinstance(step.stage, DataFrames):
            before = step.stage
        elif (
            before is not None and step.on_error == "dead_letter" and not isinstance(step.stage, WriteParquet)
        ):
            raise ConfigError(
                step.stage.name,
                f"has on_error='dead_letter' behind the DataFrame stage {before.name}, whose rows are no records: say "
                "on_error='fail' or 'skip' for it, or put it before",
            )


def _check_dead_letters(pipeline: Definition, checked: CheckedPipeline, engine: str | None) -> None:
    if pipeline.dead_letter_topic is not None or (engine != RAY and not checked.sinks):
        return
    for step in checked.with_sinks:
        if step.on_error == "dead_letter":
            raise ConfigError(
                step.stage.name,
                "has on_error='dead_letter', but no topic for them: add .dead_letters('topic')",
            )


def _check_producers(pipeline: Definition, checked: CheckedPipeline) -> None:
    assert pipeline.source is not None
    for stage in (sink.step.stage for sink in checked.sinks):
        if isinstance(stage, WriteKafka):
            producer_config(stage.name, pipeline.source, stage.options)
            if stage.topic is not None and "bootstrap_servers" not in stage.options:
                check_results(stage.topic, stage.name, pipeline.source.topics, pipeline.source.pattern)
    if pipeline.dead_letter_topic is not None:
        producer_config("dead_letters", pipeline.source, pipeline.dead_letter_options)
        if "bootstrap_servers" not in pipeline.dead_letter_options:  # elsewhere the name may be the same
            check_dlq_topic(
                pipeline.dead_letter_topic, "dead_letters", pipeline.source.topics, pipeline.source.pattern
            )


def _check_directories(checked: CheckedPipeline) -> None:
    """Raises `ConfigError` for two sinks of files in one directory, where their files would have the same names."""
    writers: dict[str, str] = {}
    for stage in (sink.step.stage for sink in checked.sinks):
        if isinstance(stage, WriteParquet):
            other = writers.setdefault(directory_of(stage.path), stage.name)
            if other != stage.name:
                raise ConfigError(
                    stage.name,
                    f"path is {stage.path!r}, as {other} has it: each needs a directory of its own",
                )


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

_ORDERS = {
    "partition": "one batch of one partition after another",
    "key": "batches in the order of each key, {} at once",
    "unordered": "batches in any order, {} at once",
}
_TEXTS: dict[Place, str] = {
    "worker": "in each worker",
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


def explain(pipeline: Definition, engine: str, run: Mapping[str, Any] | None = None) -> str:
    """The plan of a pipeline on an engine, as text of several lines. `run`: the options of a run on Ray, where more than the pipeline says
    them. Raises `ConfigError` as `check`."""
    if engine not in (RAY, SPARK):
        raise ConfigError("engine", f"is {engine!r}: accepts 'ray' or 'spark'")
    checked = check(pipeline, engine)
    assert pipeline.source is not None
    group = f", group {pipeline.source.group_id}" if pipeline.source.group_id else ""
    lines = [f"On {engine.capitalize()}: {pipeline.source.what}{group}", f"      {_columns(SCHEMA)}"]
    before: Place | None = None
    for number, (step, place) in enumerate(placed(checked, engine), 1):
        if place != before:
            lines.append(f"  {_TEXTS[place]}{_order(pipeline, checked, run) if engine == RAY else ''}:")
            before = place
        lines += _step(number, step, engine)
    if checked.sinks:
        flushed = "all flushed" if len(checked.sinks) > 1 else "flushed"
        sinks = "sinks, each row to all of them" if len(checked.sinks) > 1 else "sink"
        where = (
            f"in each worker, {flushed} before offsets are committed"
            if engine == RAY
            else f"in the tasks of the {sinks}"
        )
        lines.append(f"  {where}:")
    for number, sink in enumerate(checked.sinks, len(checked.steps) + 1):
        key = "" if sink.key is None else f"{sink.key.stage.name} "
        lines.append(f"  {number:>3} {key}{sink.name}{_policy(sink.step)}{_chosen(sink.step.stage)}")
    if pipeline.dead_letter_topic:
        lines.append(f"  dead letters go to {pipeline.dead_letter_topic}")
    return "\n".join(lines)


def _order(pipeline: Definition, checked: CheckedPipeline, run: Mapping[str, Any] | None) -> str:
    """Order in which batches go through the stages on Ray, in words."""
    assert pipeline.source is not None
    said = {option: value for option, (value, _) in checked.run_options.items()}
    known = {**pipeline.source.options, **said, **(run or {})}
    ordering = known.get("ordering", "partition")
    overlap = (
        "; batches of different partitions overlap" if pipeline.is_async and ordering == "partition" else ""
    )
    return f", {_ORDERS[ordering].format(known.get('concurrency', 1))}{overlap}"


def _chosen(stage: Stage) -> str:
    chosen = getattr(stage, "chosen", "")
    if not chosen and getattr(stage, "writer", None) is not None:
        chosen = "a schema of the registry"
    return f", by {chosen}" if chosen else ""


def _step(number: int, step: CheckedStage, engine: str) -> list[str]:
    gpus = getattr(step.stage, "num_gpus", 0)
    more = ", async" if getattr(step.stage, "is_async", False) else ""
    for option in RUN_OPTIONS if engine == RAY else ():
        value = getattr(step.stage, option, None)
        more += "" if value is None else f", {option} {value}"
    more += f", num_gpus {gpus:g} in each worker" if gpus else ""
    more += _chosen(step.stage)
    columns = (
        "→ columns from the registry"
        if step.behind is None and isinstance(step.stage, SchemaStage)
        else _columns(step.behind)
    )
    return [f"  {number:>3} {step.stage.name}{_policy(step)}{more}", f"      {columns}"]


def _policy(step: CheckedStage) -> str:
    return "" if step.on_error == "fail" else f"  on_error {step.on_error}"


def _columns(columns: Columns) -> str:
    if columns is None:
        return "→ columns that are known at the start"
    return "→ " + ", ".join(f"{field.name} {field.type}" for field in columns)
