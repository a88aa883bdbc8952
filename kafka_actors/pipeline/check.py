"""Check of a whole definition, before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_actors.base.batches import SCHEMA
from kafka_actors.base.callables import unpicklable
from kafka_actors.base.topics import check_dlq_topic, check_results
from kafka_actors.errors import ConfigError

from .source import producer_config
from .stages import (
    RAY,
    SPARK,
    Columns,
    DataFrames,
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
    """Stage in its place, with the columns before and behind it, None where only Spark will know them."""

    stage: Stage
    before: Columns
    behind: Columns
    on_error: OnError


class CheckedPipeline(NamedTuple):
    """Checked definition. `key` and `sink` are not among the other steps."""

    steps: tuple[CheckedStage, ...]
    key: CheckedStage | None
    sink: CheckedStage | None

    @property
    def columns(self) -> Columns:
        """The columns behind the last step, which the sink gets."""
        return self.steps[-1].behind if self.steps else SCHEMA

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
    if engine == RAY:
        _check_ray(pipeline, checked)
    if engine == SPARK:
        _check_spark(checked)
    _check_dead_letters(pipeline, checked, engine)
    _check_producers(pipeline, checked)
    return checked


def check_travels(checked: CheckedPipeline, dumps: Callable[[Any], bytes]) -> None:
    """Checks that users' code can be pickled by the engine's `dumps`. Raises `ConfigError`, naming stage and variable."""
    steps = (*checked.steps, *([checked.sink] if checked.sink else []))
    for stage in (step.stage for step in steps):
        if isinstance(stage, (Function, WriteFunction)):
            for part, given in (("", stage.target), ("fn_constructor_kwargs: ", stage.arguments)):
                if (why := unpicklable(given, dumps)) is not None:
                    raise ConfigError(
                        stage.name,
                        f"{part}can't be sent to the workers: {why}; make it in a class's constructor, which runs there",
                    )


def _split(steps: list[CheckedStage]) -> CheckedPipeline:
    rest = list(steps)
    sink = rest.pop() if rest and rest[-1].stage.is_sink else None
    key = rest.pop() if rest and isinstance(rest[-1].stage, WithKey) else None
    return CheckedPipeline(tuple(rest), key, sink)


def _check_place(pipeline: Definition, stage: Stage) -> None:
    at = pipeline.stages.index(stage)
    following = pipeline.stages[at + 1] if at + 1 < len(pipeline.stages) else None
    if stage.is_sink and following is not None:
        raise ConfigError(stage.name, f"is a sink, and {following.name} comes behind it: a sink is the last")
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
    if checked.sink is None:
        raise ConfigError(
            "pipeline", "has no sink: end it with write_kafka(…), write_parquet(…) or write(function)"
        )


def _check_spark(checked: CheckedPipeline) -> None:
    """Raises `ConfigError` for dead letters behind a DataFrame stage, whose rows belong to no record that could be sent."""
    before: Stage | None = None
    for step in (*checked.steps, *([checked.sink] if checked.sink else [])):
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
    if pipeline.dead_letter_topic is not None or (engine != RAY and checked.sink is None):
        return
    for step in (*checked.steps, *([checked.sink] if checked.sink else [])):
        if step.on_error == "dead_letter":
            raise ConfigError(
                step.stage.name,
                "has on_error='dead_letter', but no topic for them: add .dead_letters('topic')",
            )


def _check_producers(pipeline: Definition, checked: CheckedPipeline) -> None:
    assert pipeline.source is not None
    if checked.sink is not None and isinstance(sink := checked.sink.stage, WriteKafka):
        producer_config(sink.name, pipeline.source, sink.options)
        if sink.topic is not None and "bootstrap_servers" not in sink.options:
            check_results(sink.topic, sink.name, pipeline.source.topics, pipeline.source.pattern)
    if pipeline.dead_letter_topic is not None:
        producer_config("dead_letters", pipeline.source, pipeline.dead_letter_options)
        if "bootstrap_servers" not in pipeline.dead_letter_options:  # elsewhere the name may be the same
            check_dlq_topic(
                pipeline.dead_letter_topic, "dead_letters", pipeline.source.topics, pipeline.source.pattern
            )
