"""`kafka-actors job`: lists the jobs of a Ray cluster that have a name, and controls those that are detached."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from kafka_actors.errors import DisconnectedError, KafkaActorsError, KafkaTimeoutError, UsageError

from .command import EXIT_DONE, EXIT_FAILED, FloatRange, command, needs
from .job_options import read_workers
from .output import Output, note, slow_notice
from .results import columns, form_option, show
from .run import unconfirmed_line

if TYPE_CHECKING:
    from kafka_actors.job import JobStatus
    from kafka_actors.ray import RunningJob

__all__ = ["JobRow", "job", "row_of"]

TITLES = ("NAME", "STATE", "GROUP", "WORKERS", "LAG", "WHERE")
NO_ANSWER = "no answer"


class JobRow(Struct, frozen=True):
    """A job in the list. `where`: detached, or the URL of the status page of a job that runs in its driver, "driver" where it has
    none, empty where nobody answers. Of those nothing else is known here."""

    name: str
    where: str
    state: str | None = None
    group_id: str | None = None
    workers: int | None = None
    lag: int | None = None


@click.group()
def job() -> None:
    """Jobs in the Ray cluster that RAY_ADDRESS names, or that runs on this machine: list, scale, pause, resume, stop."""


@job.command("list")
@form_option("Columns, or a document.")
@command
def list_jobs(output: Output, form: str) -> int:
    """List the jobs that have a name."""
    _needs_ray()
    from kafka_actors.ray.start import named_jobs

    with slow_notice(note, "waiting for the Ray cluster"):
        found = [row_of(name, there) for name, there in named_jobs()]
    cells = ((row.name, row.state, row.group_id, row.workers, row.lag, row.where) for row in found)
    show(output, form, columns(TITLES, cells), found)
    return EXIT_DONE


def row_of(name: str, there: RunningJob | str | None) -> JobRow:
    """Row of a detached job, or of one that runs in its driver, by the URL of its status page; None where it doesn't answer."""
    if there is None:
        return JobRow(name, "", NO_ANSWER)
    if isinstance(there, str):
        return JobRow(name, there or "driver")
    try:
        status: JobStatus = there.status()
    except (DisconnectedError, KafkaTimeoutError):
        return JobRow(name, "detached", NO_ANSWER)
    except UsageError:  # its driver has just begun to start it, or has left it behind
        return JobRow(name, "detached", "starting")
    return JobRow(name, "detached", status.state, status.group_id, len(status.workers), status.totals.lag)


@job.command()
@click.argument("name")
@click.argument("workers", metavar="N|MIN..MAX")
@command
def scale(output: Output, name: str, workers: str) -> int:
    """Set the number of workers of a detached job, or a range: then there are as many as the records need."""
    wanted = read_workers(workers)
    attached(name).scale(wanted)
    output.print(f"the job {name} is to have {workers} workers")
    return EXIT_DONE


@job.command()
@click.argument("name")
@command
def pause(output: Output, name: str) -> int:
    """Pause a detached job: no new call of its function; it keeps its partitions."""
    attached(name).pause()
    output.print(f"the job {name} is paused")
    return EXIT_DONE


@job.command()
@click.argument("name")
@command
def resume(output: Output, name: str) -> int:
    """Resume a job that was paused."""
    attached(name).resume()
    output.print(f"the job {name} goes on")
    return EXIT_DONE


@job.command()
@click.argument("name")
@click.option(
    "--timeout",
    type=FloatRange(min=0),
    help="Seconds until its actors are ended, whatever they do; by default drain_timeout_ms and 6 s more, 30 at least.",
)
@command
def stop(output: Output, name: str, timeout: float | None) -> int:
    """Stop a detached job: finish the calls in progress, commit, leave the group."""
    found = attached(name)
    confirmed = found.stop(timeout=timeout)
    output.print(f"the job {name} has stopped")
    if not confirmed:
        partitions: list[tuple[str, int]] = []
        with suppress(KafkaActorsError):  # of a job that gave no answer nothing is known
            partitions = found.status().unconfirmed
        output.error(unconfirmed_line(partitions))
    return EXIT_DONE if confirmed else EXIT_FAILED


def attached(name: str) -> RunningJob:
    """Detached job of this name. Raises `UsageError` where there is none, or no Ray."""
    _needs_ray()
    from kafka_actors.ray import Job

    with slow_notice(note, "waiting for the Ray cluster"):
        return Job.attach(name)


def _needs_ray() -> None:
    needs("ray", "ray", "jobs run on Ray, which is not installed")
