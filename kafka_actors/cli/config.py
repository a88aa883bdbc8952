"""`kafka-actors config`: shows the options that a run would have, with their sources, and the reference of all options."""

from __future__ import annotations

import json
import os
from typing import Any

import click
from msgspec import Struct

from kafka_actors.base.addresses import MASKED, without_user_info
from kafka_actors.config import build
from kafka_actors.config.security import SECRETS, without_secrets
from kafka_actors.options import JobConfig

from .command import EXIT_DONE, command
from .job_options import OF_RUN, changed, job_options, job_settings, loaded, target_of, written_workers
from .load_target import LoadedTarget
from .option_sources import OptionSource, OptionValues
from .output import Output, note, slow_notice
from .reference import SECTIONS, markdown, options
from .results import FORMS, columns, form_option, show

__all__ = ["config", "rows"]

_PLAIN = (str, int, float, type(None))


class ConfigRow(Struct, frozen=True):
    """An option and its source. `source`: flag, environment, file, definition (of the job) or default; `name`: of the
    flag, variable or file; `given`: the name of the option there, if it is another one; `reference`: the reference in the
    value, if there is one."""

    option: str
    value: Any
    source: str
    name: str | None = None
    reference: str | None = None
    given: str | None = None


@click.group("config")
def config() -> None:
    """Show the options of a run, and where they come from."""


@config.command("show")
@job_options
@form_option("Columns, or a document.")
@command
def show_config(
    output: Output,
    target: str | None,
    config_file: str | None,
    pairs: tuple[str, ...],
    form: str,
    **flags: Any,
) -> int:
    """Show every option that `run` would use with the same arguments, and where it comes from.

    The definition of the job (TARGET, or `job` in the file) is loaded, if there is one, and gives the values that nothing
    else sets. Nothing connects or starts. Secrets are masked.
    """
    settings = job_settings(config_file, pairs, os.environ, **flags)
    target = target_of(target, settings)
    with slow_notice(note, f"loading {target}"):
        values = _values(settings, target)
    table = rows(settings, target, values)
    lines = columns(
        ("OPTION", "VALUE", "SOURCE"), ((row.option, _shown(row.value), _said(row)) for row in table)
    )
    show(output, form, lines, table)
    return EXIT_DONE


def _values(settings: OptionValues, target: str | None) -> dict[str, Any]:
    """Values of the options of `run`, then of those of `JobConfig`; checked together as at a start. Of a pipeline on Spark those
    that have a meaning there."""
    of_run, of_job = {name: settings.options.get(name) for name in OF_RUN}, {}
    if target is None:
        with settings.named():
            built = build(JobConfig, {k: v for k, v in settings.options.items() if k not in OF_RUN})
    elif (found := loaded(target, settings)).engine == "spark":
        return _values_on_spark(settings, found)
    else:
        job = changed(found, settings)
        built = job.config
        of_run |= {
            "job": target,
            "engine": found.engine,
            "topics": job.topics,
            "pattern": job.pattern,
            "workers": written_workers(job.workers),
            "resources_per_worker": job.resources or None,
            "name": job.name,
            "dead_letter_topic": job.dead_letter_topic,
            "until": job.until,
            "status": job.status_address,
        }
        if (retries := job.retry_topics) is not None:
            of_run["dead_letter_topic"], of_job["on_error"] = retries.dead_letter_topic, repr(retries)
    return {**of_run, **{name: getattr(built, name) for name in JobConfig.__struct_fields__}, **of_job}


def _values_on_spark(settings: OptionValues, target: LoadedTarget) -> dict[str, Any]:
    from .run_on_spark import bound_to_spark, refused_on_spark

    with settings.named():
        pipeline = bound_to_spark(target, settings).pipeline
    assert pipeline.source is not None  # the check of a pipeline requires one
    of_run = {name: settings.options.get(name) for name in OF_RUN} | {
        "job": target.name,
        "engine": target.engine,
        "topics": pipeline.source.topics,
        "pattern": pipeline.source.pattern,
    }
    built = build(JobConfig, pipeline.source.options)
    values = {**of_run, **{name: getattr(built, name) for name in JobConfig.__struct_fields__}}
    return {name: value for name, value in values.items() if name not in refused_on_spark()}


def rows(settings: OptionValues, target: str | None, values: dict[str, Any]) -> list[ConfigRow]:
    """Rows of all options in the order of their declarations; secrets are masked."""
    defaults = JobConfig()
    table = []
    for name, value in values.items():
        shown = _masked(name, value)
        source = settings.sources.get(name)
        if source is not None and not (name == "job" and target != settings.options.get("job")):
            table.append(ConfigRow(name, shown, source.kind, source.name, source.reference, source.given))
        elif name == "job" and target is not None:
            table.append(ConfigRow(name, shown, "flag", "TARGET"))
        elif target is not None and value != getattr(defaults, name, None):
            table.append(ConfigRow(name, shown, "definition", target))
        else:
            table.append(ConfigRow(name, shown, "default"))
    return table


def _masked(name: str, value: Any) -> Any:
    """Value without secrets, and without objects, whose reprs might show some."""
    if name in SECRETS:
        return None if value is None else MASKED
    if isinstance(value, dict):
        return {str(key): _masked(name, each) for key, each in without_secrets(value).items()}
    if isinstance(value, list | tuple):
        return [_masked(name, each) for each in value]
    if isinstance(value, str):
        return without_user_info(value)
    return value if isinstance(value, _PLAIN) else f"<{type(value).__name__}>"


def _shown(value: Any) -> str | None:
    """Value as it would be written in a file; None where there is nothing to write."""
    if value in ("", {}, []):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join("/".join(map(str, v)) if isinstance(v, list) else str(v) for v in value)
    if isinstance(value, dict):
        return json.dumps(value)
    return None if value is None else str(value)


def _said(row: ConfigRow) -> str:
    return str(OptionSource(row.source, row.name, row.reference, row.given)) if row.name else row.source


@config.command("options")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice([*FORMS, "markdown"]),
    default="text",
    show_default=True,
    help="Columns, a document that has the meanings too, or the page of the documentation.",
)
@command
def show_options(output: Output, form: str) -> int:
    """Show all options with their types and defaults, and Java's names and defaults."""
    if form == "markdown":
        from .run import run

        print(markdown(run), end="", file=output.console.file)
        return EXIT_DONE
    listed = [option for section in SECTIONS for option in options(section)]
    cells = ((each.name, each.type, each.default, each.java, each.java_default) for each in listed)
    show(output, form, columns(("OPTION", "TYPE", "DEFAULT", "JAVA", "JAVA-DEFAULT"), cells), listed)
    return EXIT_DONE
