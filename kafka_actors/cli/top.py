"""`kafka-actors top`: the live view of a job that was started elsewhere, from its job actor or its status page."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import click

from kafka_actors.base import decoders
from kafka_actors.base.addresses import without_user_info
from kafka_actors.errors import DisconnectedError, KafkaTimeoutError, UsageError
from kafka_actors.job.status import JobStatus

from .command import EXIT_DONE, command, needs
from .job_views import View, view_for
from .output import Output, slow_notice

if TYPE_CHECKING:
    from kafka_actors.job.machines.timeline import TimelineEntry

__all__ = ["PageClient", "follow", "is_url", "top"]

INTERVAL_S = 1.0
PATIENCE_S = 15.0
"""Seconds to wait for a job that has answered before: its job actor may be busy, or its page be restarted."""
ENDED = frozenset({"stopped", "failed"})
ANSWER_S = 5.0
MOST_BYTES = 256 * 1024 * 1024
REMEDY = "a job has a status page with --status or status_address, for as long as it runs"

_ADDRESS = re.compile(r"([^\s/:]*|\[[0-9A-Fa-f:.]+\]):[0-9]+/?")


@click.command()
@click.argument("target", metavar="[JOB|URL]", required=False)
@command
def top(output: Output, target: str | None) -> int:
    """Show a running job, live, until Ctrl-C or its end. The job is not changed.

    JOB is the name of a job in the Ray cluster that RAY_ADDRESS names, or that was started on this machine; without it, the only one
    there. A job that is not detached is shown by its status page. URL is that of any job's status page, such as
    http://localhost:8000, and needs no Ray.
    """
    try:
        with (
            view_for(output) as view,
            slow_notice(view.note, f"waiting for {target or 'the Ray cluster'}") as there,
        ):
            if target is not None and is_url(target):
                status = PageClient(target).status
            else:
                needs(
                    "ray",
                    "ray",
                    "jobs run on Ray, which is not installed (the URL of a status page works without it)",
                )
                status = status_of_named(target)
            state = follow(status, view, there)
    except (KeyboardInterrupt, SystemExit):  # Ray raises SystemExit on SIGTERM
        return EXIT_DONE
    output.print(f"the job has {'stopped' if state == 'stopped' else 'failed'}")
    return EXIT_DONE


def follow(
    status: Callable[[], JobStatus],
    view: View,
    there: Callable[[], object] = lambda: None,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Shows the job until its end, and returns the state that it ended in. `there` is called whenever it has answered.

    Raises what `status` raises at the first call, and `DisconnectedError` when the job has not answered for `PATIENCE_S`
    seconds; a job that was stopping by then counts as stopped.
    """
    shown = -1
    answered_at: float | None = None
    state = ""
    while True:
        try:
            job = status()
        except (DisconnectedError, KafkaTimeoutError) as error:
            if answered_at is None:
                raise
            if clock() - answered_at > PATIENCE_S:
                if state == "stopping":
                    return "stopped"
                raise DisconnectedError(
                    f"{error}; the job was {state} when it was last seen: it has ended, or can't be reached"
                ) from None
        else:
            answered_at = clock()
            there()
            view.show(job, max(0.0, job.at_s - job.started_s))
            shown = _show_new(view, job.timeline, shown)
            state = job.state
            if state in ENDED:
                return state
        sleep(INTERVAL_S)


def _show_new(view: View, timeline: list[TimelineEntry], shown: int) -> int:
    """Shows the entries above the number `shown`, and returns the highest one; entries from before the first look (-1) are
    not shown."""
    last = max((entry.number for entry in timeline), default=0)
    for entry in timeline if shown >= 0 else ():
        if entry.number > shown:
            view.note(f"{entry.kind}: {entry.text}")
    return last


def status_of_named(name: str | None) -> Callable[[], JobStatus]:
    """Finds a job by its name in the Ray cluster, and returns a function that asks for its status. Raises `UsageError`
    where there is no such job, or it can't be seen from here."""
    from kafka_actors.ray.start import job_to_watch

    found = job_to_watch(name)
    return PageClient(found).status if isinstance(found, str) else found.status


# ------------------------------------------------------------ the status page as the source


def is_url(text: str) -> bool:
    """Whether a text is an address (`http://host:8000`, `host:8000` or `:8000`), not the name of a job."""
    return "://" in text or _ADDRESS.fullmatch(text) is not None


class PageClient:
    """Client of a status page, by its address. Raises `UsageError` for a text that can't be an address."""

    def __init__(self, address: str) -> None:
        complete = (
            address
            if "://" in address
            else f"http://{'localhost' if address.startswith(':') else ''}{address}"
        )
        host = complete.partition("://")[2].partition("/")[0]
        if not complete.startswith(("http://", "https://")) or "@" in host:
            shown = without_user_info(address)
            raise UsageError(f"{shown!r} is not the address of a status page: give http://host:port")
        self._url = urljoin(complete if complete.endswith("/") else complete + "/", "status.json")
        # Without the proxies of the environment, which are for addresses outside of the cluster.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def status(self) -> JobStatus:
        """Status of the job now. Raises `DisconnectedError` where nothing answers, `KafkaTimeoutError` where no answer came
        in time, and `UsageError` where the answer isn't a job's status."""
        try:
            with self._opener.open(self._url, timeout=ANSWER_S) as answer:
                body = answer.read(MOST_BYTES)
        except urllib.error.HTTPError as error:
            if error.code == 503:  # the job is about to start, or the page has too many clients
                raise KafkaTimeoutError(
                    f"{self._url}: {error.read(200).decode(errors='replace').strip()}"
                ) from None
            raise UsageError(f"{self._url} is not the status page of a job: {error}") from None
        except TimeoutError:
            raise KafkaTimeoutError(f"{self._url}: no answer within {ANSWER_S:g} s") from None
        except urllib.error.URLError as error:
            raise DisconnectedError(f"{self._url}: {error.reason}; {REMEDY}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise DisconnectedError(f"{self._url}: {error or type(error).__name__}") from None
        try:
            return decoders.json(JobStatus).decode(body)
        except decoders.UNREADABLE as error:
            raise UsageError(f"{self._url} is not the status page of a job: {error}") from None
