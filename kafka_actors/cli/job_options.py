"""Options of `run` and `config show`: their declarations, flags with the same texts, and the job that results from them."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from msgspec import Struct

from kafka_actors.base.addresses import parse_listening
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.options import JobConfig, Positive

from .load_target import LoadedTarget, load_target
from .option_sources import (
    PREFIX,
    OptionValues,
    from_environment,
    from_file,
    from_flags,
    layered,
    read_config_file,
)

if TYPE_CHECKING:
    from kafka_actors.job import Autoscale
    from kafka_actors.ray import Job

__all__ = [
    "ARGUMENTS",
    "OF_RUN",
    "DeclaredOption",
    "RunConfig",
    "changed",
    "job_options",
    "job_settings",
    "loaded",
    "meanings",
    "other_variables",
    "read_workers",
    "required",
    "source_changes",
    "target_of",
    "written_workers",
]

F = TypeVar("F", bound=Callable[..., Any])


class RunConfig(JobConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a job, and those of a run that the command line, the environment and a file may set besides."""

    job: str | None = None
    """The job or pipeline to run: `path/to/file.py:name` or `module:name`. In a file, the path begins at the file's directory."""
    engine: Literal["ray", "spark"] | None = None
    """Engine that runs a `Pipeline`: `ray`, unless it is `spark`. A `Job`, an `OnRay` and an `OnSpark` have theirs."""
    topics: list[str] | None = None
    """The topics to read, in place of those that the job's definition has."""
    pattern: str | None = None
    """A regular expression that whole names of topics match, in place of `topics`."""
    workers: Positive | str | None = None
    """Number of workers, or a range such as `1..16`: as many as the records need."""
    resources_per_worker: dict[str, Any] | None = None
    """Resources that each worker asks Ray for, in Ray's names: `{num_cpus = 1, num_gpus = 0.5}`; as a flag or variable in JSON,
    `{"num_cpus": 1}`. What is not named stays as in the job's definition."""
    name: str | None = None
    """The job's name: keeps its identity in the group over restarts."""
    dead_letter_topic: str | None = None
    """The topic of dead letters, for `on_error = "dead_letter"`."""
    until: Literal["latest"] | None = None
    """`latest`: stop at the end offsets that the topics have at the start."""
    checkpoint: str | None = None
    """On Spark, the directory from which a streaming query goes on. Without it a `Pipeline` needs `until = "latest"`: it is one batch."""
    trigger: str | None = None
    """On Spark, `availableNow`, `once`, or the time between micro-batches, such as `10 seconds`; by default there is one as soon as
    there are records."""
    spark_options: dict[str, Any] | None = None
    """On Spark, options of the data source under their names there: `{maxOffsetsPerTrigger = 100000}`; as a flag or variable in
    JSON."""
    status: str | None = None
    """`[HOST]:PORT` of the job's status page, with JSON, metrics and health beside it; to this machine only, unless a host
    is given. Port 0 is a free one."""
    otlp: str | None = None
    """The OpenTelemetry collector that gets metrics, traces and logs, such as `http://localhost:4318`. `OTEL_*` variables
    say all else."""
    prometheus: str | None = None
    """`[HOST]:PORT` where Prometheus may scrape the job's metrics; on this machine only, unless a host is given."""


OF_RUN = tuple(name for name in RunConfig.__struct_fields__ if name not in JobConfig.__struct_fields__)
"""Options of a run that are not options of `JobConfig`."""

ARGUMENTS = ("topics", "pattern", "resources_per_worker", "name", "dead_letter_topic", "until")
"""Options that are arguments of `Job` under the same names."""

_OF_SPARK = ("checkpoint", "trigger", "spark_options")

_OF_TESTS = "KAFKA_ACTORS_CACHE"
"""Variable that says where `kafka_actors.testing` keeps Kafka's releases."""


class DeclaredOption(click.Option):
    """Flag that sets the option of `kind` with the same name. `more` is appended to its help.

    The text is looked up when it is shown: finding it reads the source of the declarations.
    """

    def __init__(
        self, param_decls: Sequence[str], *, kind: type[Struct], more: str = "", **attributes: Any
    ) -> None:
        super().__init__(param_decls, **attributes)
        self._kind = kind
        self._more = more

    @property
    def meaning(self) -> str:
        """Text of the declaration, with its Markdown."""
        assert self.name is not None  # every option of click's has one
        texts = (meanings(kind) for kind in self._kind.__mro__ if kind.__module__.startswith("kafka_actors."))
        return next(found[self.name] for found in texts if self.name in found) + self._more

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Row of the flag in `--help`."""
        self.help = self.meaning.replace("`", "")
        return super().get_help_record(ctx)


@functools.cache
def meanings(kind: type) -> dict[str, str]:
    """Texts below the declarations of a class, by the declared names; Python itself doesn't keep them."""
    tree = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    body = next(
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    found = {}
    for declared, text in itertools.pairwise(body):
        if isinstance(declared, ast.AnnAssign) and isinstance(declared.target, ast.Name):
            match text:
                case ast.Expr(value=ast.Constant(value=str(said))):
                    found[declared.target.id] = " ".join(said.split())
    return found


_declared = functools.partial(click.option, cls=DeclaredOption, kind=RunConfig)


def job_options(function: F) -> F:
    """Adds the flags of a command that takes a job. They have no `envvar`, because -X has to win over the environment, which
    can also set options without a flag."""
    for option in reversed(
        (
            click.argument("target", required=False),
            click.option(
                "-c",
                "--config-file",
                metavar="FILE",
                envvar="KAFKA_ACTORS_CONFIG_FILE",
                help="Options in a TOML file, or in Kafka's .properties.",
            ),
            _declared("-e", "--engine", type=click.Choice(["ray", "spark"])),
            _declared("-w", "--workers", metavar="N|MIN..MAX"),
            _declared("-b", "--bootstrap-servers", metavar="HOST:PORT,…"),
            _declared("-g", "--group-id", metavar="GROUP"),
            _declared("--until", type=click.Choice(["latest"])),
            _declared("--checkpoint", metavar="DIRECTORY"),
            _declared("--trigger", metavar="TIME|availableNow"),
            _declared("--status", metavar="[HOST]:PORT"),
            _declared("--otlp", metavar="URL"),
            _declared("--prometheus", metavar="[HOST]:PORT"),
            click.option(
                "-X",
                "--config",
                "pairs",
                metavar="NAME=VALUE",
                multiple=True,
                help="Any other option of a job, such as session_timeout_ms=30000 or session.timeout.ms=30000.",
            ),
        )
    ):
        function = option(function)
    return function


def job_settings(
    config_file: str | None, pairs: tuple[str, ...], environment: Mapping[str, str], **flags: Any
) -> OptionValues:
    """Options of a run: flags win over the environment, and that over the file.

    Raises `UsageError` for a file that can't be read, `ConfigError` with the option and where its value came from.
    """
    settings = _layered(config_file, pairs, environment, **flags)
    if (workers := settings.options.get("workers")) is not None:
        with settings.named():
            settings.options["workers"] = written_workers(read_workers(workers))
    for name in ("status", "prometheus"):
        if (address := settings.options.get(name)) is not None:
            with settings.named():
                parse_listening(name, address)
    return settings


def _layered(
    config_file: str | None, pairs: tuple[str, ...], environment: Mapping[str, str], **flags: Any
) -> OptionValues:
    line = from_flags(RunConfig, pairs, **flags)
    around = from_environment(RunConfig, environment, other_variables())
    if config_file is None:
        return layered(RunConfig, line, around)
    in_file = read_config_file("--config-file", config_file, RunConfig.__struct_fields__)
    if "job" in in_file:
        in_file["job"] = _beside(config_file, in_file["job"])
    return layered(RunConfig, line, around, from_file(RunConfig, in_file, config_file, strict=True))


def _beside(file: str, target: Any) -> Any:
    """Target with its path relative to the directory of the file that names it."""
    if not isinstance(target, str) or not target.rpartition(":")[0].endswith(".py"):
        return target
    return os.path.join(os.path.dirname(file), target)


def target_of(target: str | None, settings: OptionValues) -> str | None:
    """Target of the command line, or else of the option `job`; None where neither names one."""
    return target if target is not None else settings.options.get("job")


def loaded(target: str, settings: OptionValues) -> LoadedTarget:
    """Job or pipeline that `target` names, and its engine. Raises as `load_target`."""
    with settings.named():
        return load_target(target, settings.options.get("engine"))


def source_changes(settings: OptionValues) -> dict[str, Any]:
    """Given options of `JobConfig`, which a pipeline's source takes too."""
    return {name: value for name, value in settings.options.items() if name not in OF_RUN}


def changed(target: LoadedTarget, settings: OptionValues) -> Job:
    """Job on Ray that was loaded, or that runs the pipeline that was, with these options. Raises as `Job.changed` and
    `Pipeline.on_ray`, and `ConfigError` for options of Spark."""
    from kafka_actors.pipeline import Pipeline
    from kafka_actors.ray import Job

    options = source_changes(settings)
    with settings.named():
        for name in _OF_SPARK:
            if name in settings.options:
                raise ConfigError(
                    name, f"is for Spark, and {target.name} runs on Ray: say --engine spark for a Pipeline"
                )
        arguments = {name: settings.options[name] for name in ARGUMENTS if name in settings.options}
        if (workers := settings.options.get("workers")) is not None:
            arguments["workers"] = read_workers(workers)
        if "status" in settings.options:
            arguments["status_address"] = settings.options["status"]
        if isinstance(target.found, Job):
            return target.found.changed(options, **arguments)
        found: Any = target.found
        if isinstance(found, Pipeline):
            where = {name: arguments.pop(name) for name in ("topics", "pattern") if name in arguments}
            bound = found.reading(options, **where).on_ray(progress=False, **arguments)
        else:
            bound = found.changed(options, **arguments)
        bound.check_travels()
        return bound.job


def required(target: str | None) -> str:
    """Returns the target; raises `UsageError` where there is none."""
    if target is None:
        raise UsageError('name the job or pipeline: TARGET, or job = "file.py:name" in the file of -c')
    return target


def other_variables() -> set[str]:
    """Variables with our prefix that are not options: those of the flags of all commands."""
    root = click.get_current_context().find_root().command
    return {_OF_TESTS, *(name for name in _variables(root) if name.startswith(PREFIX))}


def _variables(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        yield from [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or ()
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _variables(each)


def read_workers(workers: int | str) -> int | Autoscale:
    """Workers from a text such as `8` or `1..16`. Raises `ConfigError`."""
    from kafka_actors.job.autoscale import parsed_workers

    return parsed_workers(str(workers))


def written_workers(workers: int | Autoscale) -> int | str:
    """Workers as a number, or as a text such as `1..16`."""
    return workers if isinstance(workers, int) else str(workers)
