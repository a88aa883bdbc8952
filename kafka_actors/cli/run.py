"""`kafka-actors run`: a job from the shell, with a view of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from kafka_actors.errors import ConfigError

from .errors import EXIT_DONE
from .load import load_job
from .options import command, needs
from .output import Output
from .progress import Reading
from .render import count
from .views import view_for
from .watch import End, watch

if TYPE_CHECKING:
    from kafka_actors.actors import Job, RunningJob

__all__ = ["run"]


@click.command()
@click.argument("target")
@click.option(
    "-w", "--workers", type=click.IntRange(min=1), envvar="KAFKA_ACTORS_WORKERS", help="How many workers."
)
@click.option(
    "-b",
    "--bootstrap-servers",
    metavar="HOST:PORT,…",
    envvar="KAFKA_ACTORS_BOOTSTRAP_SERVERS",
    help="Brokers to find the cluster by.",
)
@click.option("-g", "--group-id", metavar="GROUP", envvar="KAFKA_ACTORS_GROUP_ID", help="The consumer group.")
@click.option(
    "--until",
    type=click.Choice(["latest"]),
    envvar="KAFKA_ACTORS_UNTIL",
    help="Stop at the end offsets that the topics have at the start.",
)
@click.option(
    "-X",
    "--config",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Any other option of a job, such as session_timeout_ms=30000 or session.timeout.ms=30000.",
)
@command
def run(
    output: Output,
    target: str,
    workers: int | None,
    bootstrap_servers: str | None,
    group_id: str | None,
    until: Literal["latest"] | None,
    settings: tuple[str, ...],
) -> int:
    """Run the job that TARGET names: path/to/file.py:name or module:name.

    It is a kafka_actors.Job, or a function without arguments that returns one. SIGTERM and Ctrl-C finish and
    commit what is in hand and leave the group; a second one ends at once.
    """
    needs("ray", "ray", "a job runs on Ray, which is not installed")
    options = parse_settings(settings, bootstrap_servers=bootstrap_servers, group_id=group_id)
    job = load_job(target).changed(options, workers=workers, until=until)
    running = start(job)
    if running is None:
        output.print("stopped before it had started")
        return EXIT_DONE
    if job.detached:
        output.print(f"job {job.name!r} runs detached: Job.attach({job.name!r}) finds it")
        return EXIT_DONE
    try:
        with view_for(output) as view:
            end, reading = watch(running, view, stop=running.stop)
    finally:
        running.stop()
    output.print(closing_line(end, reading))
    return EXIT_DONE


def parse_settings(settings: tuple[str, ...], **flags: str | None) -> dict[str, Any]:
    """`NAME=VALUE` pairs as options, beside those that have a flag of their own. Raises `ConfigError`."""
    options: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip().replace(".", "_")
        if not equals or not name:
            raise ConfigError("-X", f"is {setting!r}: give NAME=VALUE")
        if name in options and options[name] != value:
            raise ConfigError(name, "is given twice with different values")
        options[name] = value
    return options


def start(job: Job) -> RunningJob | None:
    """Starts a job; None where a signal came before it had started.

    Until `watch` takes over, SIGTERM raises `SystemExit` (Ray's handler) and Ctrl-C `KeyboardInterrupt`.
    """
    try:
        return job.start()
    except (SystemExit, KeyboardInterrupt):
        return None


def closing_line(end: End, reading: Reading) -> str:
    """What a run ends with."""
    seconds = max(reading.elapsed_s, 1e-9)
    what = "done" if end is End.FINISHED else "stopped"
    return (
        f"{what}: {count(reading.records, 'record')} in {seconds:.1f} s ({reading.records / seconds:,.0f}/s), "
        f"{count(reading.restarts, 'restart')}"
    )
