"""`kafka-actors run`: a job from the shell, with a view of it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from kafka_actors.errors import ConfigError

from .errors import EXIT_DONE, EXIT_FAILED
from .job_options import changed, job_options, job_settings, required, target_of
from .job_progress import JobProgress, JobReading
from .job_tables import count
from .options import command, needs
from .output import Output
from .slow_notice import late
from .telemetry import ask_for
from .views import View, view_for
from .watch_job import WatchEnd, watch

if TYPE_CHECKING:
    from kafka_actors.job import JobStatus
    from kafka_actors.ray import Job, RunningJob

__all__ = ["run"]

NAMED = 3
"""So many partitions are named, more are counted."""


@click.command()
@job_options
@command
def run(
    output: Output, target: str | None, config_file: str | None, pairs: tuple[str, ...], **flags: Any
) -> int:
    """Run the job that TARGET names: path/to/file.py:name or module:name.

    It is a kafka_actors.Job, or a function without arguments that returns one. SIGTERM and Ctrl-C finish and
    commit what is in hand and leave the group; a second one ends at once.

    Options come from the command line, else from KAFKA_ACTORS_<OPTION>, else from the file of -c, else from the job's
    definition; `config show` says which. A file may name the job as well: job = "file.py:name".
    """
    needs("ray", "ray", "a job runs on Ray, which is not installed")
    settings = job_settings(config_file, pairs, os.environ, **flags)
    ask_for(otlp=settings.options.get("otlp"), prometheus=settings.options.get("prometheus"))
    target = required(target_of(target, settings))
    with view_for(output) as view:
        with late(view.note, f"loading {target}"):
            job = changed(target, settings)
        with settings.named():
            running = start(job, view)
        if running is None:
            output.print("stopped before it had started")
            return EXIT_DONE
        if job.status_address is not None:
            output.print(page_line(running.status(), elsewhere=job.detached))
        if job.detached:
            output.print(f"job {job.name!r} runs detached: Job.attach({job.name!r}) finds it")
            return EXIT_DONE
        try:
            end, reading = watch(running, view, stop=running.stop)
        finally:
            with late(view.note, "waiting for the job to stop"):
                confirmed = running.stop()
    output.print(closing_line(end, reading))
    if not confirmed:
        output.error(unconfirmed_line(running.status().unconfirmed))
    return EXIT_DONE if confirmed else EXIT_FAILED


def start(job: Job, view: View) -> RunningJob | None:
    """Starts a job, and shows meanwhile what it waits for; None where a signal came before it had started.

    Until `watch` takes over, SIGTERM raises `SystemExit` (Ray's handler) and Ctrl-C `KeyboardInterrupt`.
    """
    progress = JobProgress()
    try:
        with late(view.note, "starting the job on Ray") as in_ray:

            def each(status: JobStatus) -> None:
                in_ray()
                view.show(progress.observe(status, time.monotonic()))

            return job.start(each=each)
    except (SystemExit, KeyboardInterrupt):
        return None
    except ConfigError as error:
        if error.option != "status_address":
            raise
        raise ConfigError("status", error.message) from None  # as it is called here


def page_line(status: JobStatus, *, elsewhere: bool) -> str:
    """Where the status page is. A detached job's may be on another machine, and bound to that."""
    return f"status page: {status.page}" + (f" on {status.page_node}" if elsewhere else "")


def unconfirmed_line(partitions: list[tuple[str, int]]) -> str:
    """What is said where no broker has confirmed the last commits; `partitions` is empty where nobody knows of which."""
    if not partitions:
        return "nobody has said that the last commits are confirmed: the last records may come again"
    named = ", ".join(f"{topic}-{number}" for topic, number in partitions[:NAMED])
    more = f" and {len(partitions) - NAMED} more" if len(partitions) > NAMED else ""
    return f"no broker has confirmed the last commits of {named}{more}: their last records come again"


def closing_line(end: WatchEnd, reading: JobReading) -> str:
    """What a run ends with."""
    seconds = max(reading.elapsed_s, 1e-9)
    what = "done" if end is WatchEnd.FINISHED else "stopped"
    return (
        f"{what}: {count(reading.records, 'record')} in {seconds:.1f} s ({reading.records / seconds:,.0f}/s), "
        f"{count(reading.restarts, 'restart')}"
    )
