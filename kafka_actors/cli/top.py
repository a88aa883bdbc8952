"""`kafka-actors top`: the live view of a job that somebody else has started."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import msgspec

from kafka_actors.errors import DisconnectedError, KafkaTimeoutError

from .errors import EXIT_DONE
from .job_progress import JobProgress, JobReading, reading_of
from .options import command, needs
from .output import Output
from .page_client import PageClient, is_url
from .slow_notice import late
from .views import View, view_for

if TYPE_CHECKING:
    from kafka_actors.ray import RunningJob
    from kafka_actors.status_page.document import Entry

__all__ = ["top"]

EVERY_S = 1.0
PATIENCE_S = 15.0
"""A job that was there is waited for so long: its coordinator may be about to be replaced."""
ENDED = frozenset({"stopped", "failed"})

Look = Callable[[], tuple[JobReading, "list[Entry]"]]
"""The job now, and what happened to it lately."""


@click.command()
@click.argument("target", metavar="[JOB|URL]", required=False)
@command
def top(output: Output, target: str | None) -> int:
    """Show a job that runs, live, until Ctrl-C or its end. Nothing of it is changed.

    JOB is the name of a job in the Ray cluster that RAY_ADDRESS names, or that was started on this machine; without it, the only one
    there. A job that is not detached is shown by its status page. URL is that of any job's status page, such as
    http://localhost:8000, and needs no Ray.
    """
    try:
        with view_for(output) as view, late(view.note, f"waiting for {target or 'the Ray cluster'}") as there:
            if target is not None and is_url(target):
                look = of_page(PageClient(target))
            else:
                needs(
                    "ray", "ray", "jobs run on Ray, which is not installed (a status page's URL needs it not)"
                )
                look = of_named(target)
            state = follow(look, view, there)
    except (KeyboardInterrupt, SystemExit):  # Ray makes a SystemExit of SIGTERM
        return EXIT_DONE
    output.print(f"the job has {'stopped' if state == 'stopped' else 'failed'}")
    return EXIT_DONE


def follow(
    look: Look,
    view: View,
    there: Callable[[], object] = lambda: None,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Shows the job until its end, and returns the state that it ended in; calls `there` when it has answered.

    Raises what `look` raises if the job was not there to begin with, and `DisconnectedError` when it has not been for `PATIENCE_S`; one
    that was stopping by then has stopped.
    """
    told = -1
    answered_at: float | None = None
    state = ""
    while True:
        try:
            reading, timeline = look()
        except (DisconnectedError, KafkaTimeoutError) as error:
            if answered_at is None:
                raise
            if clock() - answered_at > PATIENCE_S:
                if state == "stopping":
                    return "stopped"
                said = (
                    f"{error}; the job was {state} when it was last seen: it has ended, or can't be reached"
                )
                raise DisconnectedError(said) from None
        else:
            answered_at = clock()
            there()
            view.show(reading)
            told = _tell(view, timeline, told)
            state = reading.state
            if state in ENDED:
                return state
        sleep(EVERY_S)


def _tell(view: View, timeline: list[Entry], told: int) -> int:
    """What is new; what happened before the first look is none."""
    last = max((entry.number for entry in timeline), default=0)
    for entry in timeline if told >= 0 else ():
        if entry.number > told:
            view.note(f"{entry.kind}: {entry.text}")
    return last


def of_page(client: PageClient) -> Look:
    """By the status page."""

    def look() -> tuple[JobReading, list[Entry]]:
        document = client.document()
        return reading_of(document), document.timeline

    return look


def of_named(name: str | None) -> Look:
    """By the Ray cluster, which knows the jobs that have a name. Raises `UsageError` where that shows none."""
    from kafka_actors.ray.start import job_to_watch

    found = job_to_watch(name)
    return of_page(PageClient(found)) if isinstance(found, str) else of_job(found)


def of_job(running: RunningJob) -> Look:
    """By the job's actor."""
    progress = JobProgress()

    def look() -> tuple[JobReading, list[Entry]]:
        status = running.status()
        reading = progress.observe(status, time.monotonic())
        now_s = time.time()  # wall clock: the job says by it when it began
        age_s = max(0.0, now_s - status.started_s)
        return msgspec.structs.replace(reading, elapsed_s=age_s), status.timeline

    return look
