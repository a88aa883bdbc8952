"""`RunningJob`, the handle of a running job, `JobControl`, the Protocol of what it controls, and the lookup of a job by its name."""

from __future__ import annotations

import ipaddress
import math
import time
from types import TracebackType
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from kafka_actors.base.timeouts import checked_amount, timeouts_by_name, wait_of
from kafka_actors.errors import JobFailed, KafkaTimeoutError, UsageError
from kafka_actors.job.autoscale import Autoscale, checked_workers
from kafka_actors.job.status import JobStatus

from .sigterm import StopOnSigterm

__all__ = ["DriverPage", "JobControl", "RunningJob", "name_among", "page_from"]

PIECE_S = 0.2


class JobControl(Protocol):
    """Control of a supervisor, wherever it runs. All calls block; `timeout` is in seconds. None has `stop` take what the supervisor says."""

    def status(self) -> JobStatus: ...
    def scale(self, workers: int | Autoscale) -> None: ...
    def pause(self, paused: bool) -> None: ...
    def wait(self, timeout: float | None) -> bool: ...
    def stop(self, timeout: float | None, leave: bool) -> bool: ...
    def detach(self) -> None: ...


@timeouts_by_name
class RunningJob:
    """A running job. As a context manager it stops the job at the end of the block."""

    def __init__(self, control: JobControl, *, stop_at_exit: bool = True) -> None:
        self._control = control
        self._stop_at_exit = stop_at_exit
        self._raised = False

    def status(self) -> JobStatus:
        """Workers, their partitions, positions, lag and restarts."""
        return self._control.status()

    def scale(self, workers: int | Autoscale) -> None:
        """Sets the number of workers, or the policy that decides it. The last call counts: after `scale(8)` there are
        8 workers until `scale(job.workers)` lets the job's own policy decide again.

        Only the partitions that must move do, drained first; the group doesn't notice. Returns at once; `status()`
        shows the progress. If the Ray cluster has no room for that many within `start_timeout_s`, the log and
        `status().scaling` say what is missing, and the job goes on with the workers it has."""
        self._control.scale(checked_workers(workers))

    def pause(self) -> None:
        """No new call of the user's function until `resume()`; the job keeps its partitions."""
        self._control.pause(True)

    def resume(self) -> None:
        """Ends a `pause()`."""
        self._control.pause(False)

    def wait(self, *, timeout: float | None = None) -> None:
        """Waits until the job has ended.

        SIGTERM, in the main thread, stops the job and ends the wait; a second one ends the process at once.
        Raises `JobFailed`, whose `__cause__` says why, and `KafkaTimeoutError` after `timeout` seconds.
        """
        limit_s = wait_of(timeout)
        with StopOnSigterm() as signals:
            try:
                ended = (
                    self._control.wait(limit_s)
                    if not signals.possible
                    else self._wait_or_stop(signals, limit_s)
                )
            except JobFailed:
                self._raised = True
                raise
        if not ended:
            raise KafkaTimeoutError(f"the job still runs after {timeout:g} s")

    def _wait_or_stop(self, signals: StopOnSigterm, timeout: float | None) -> bool:
        """Waits in slices, so that a signal's handler gets to run."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not signals.received:
            if self._control.wait(max(0.0, min(PIECE_S, until - time.monotonic()))):
                return True
            # Of a signal that came meanwhile no later wait would know.
            if time.monotonic() >= until and not signals.received:
                return False
        self.stop()
        return True

    def stop(self, *, timeout: float | None = None, leave: bool = True) -> bool:
        """Drains within `drain_timeout_ms`, commits, leaves the group (unless `leave=False`, for rolling
        deploys) and ends all actors; returns within `timeout` seconds, by default `drain_timeout_ms` and 6 s more, and
        30 s at least. Safe to call twice.

        Returns whether the brokers have confirmed the commits of all that was processed, False too where a detached job is gone
        and nobody can say. If not, `status().unconfirmed`
        names the partitions whose last records come again at the next start."""
        return self._control.stop(None if timeout is None else checked_amount("timeout", timeout), leave)

    def __enter__(self) -> RunningJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._stop_at_exit:
            self._control.detach()
            return
        self.stop()
        if error is None and not self._raised:
            self._control.wait(0)

    def __repr__(self) -> str:
        return f"<RunningJob {self._control!r}>"


class DriverPage(NamedTuple):
    """Status page of a job that runs in its driver. `url`: None before the job has started, empty without a page. `node`: the
    IP address of the driver's machine."""

    url: str | None = None
    node: str = ""


def name_among(name: str | None, names: list[str]) -> str:
    """Returns the name if it is among `names`, or the only one of them. Raises `UsageError` with what to pass instead."""
    if name is None and len(names) == 1:
        return names[0]
    if name is not None and name in names:
        return name
    there = f"those with a name are {', '.join(names)}" if names else "no job here has a name"
    if name is not None:
        what = f"no job named {name!r} runs in this Ray cluster: {there}"
    else:
        what = f"which job of this Ray cluster? {there}"
    raise UsageError(
        f"{what}; any job with a status page can be given by the URL of that, as http://localhost:8000"
    )


def page_from(page: DriverPage, name: str, own_ip: str) -> str:
    """Returns the URL of a job's status page, for the machine with the IP address `own_ip`. Raises `UsageError` if it has
    none, or none that this machine can reach."""
    job = f"the job {name!r} runs in its driver"
    if page.url is None:
        raise UsageError(f"{job} and is just starting: try again when it has")
    if not page.url:
        raise UsageError(
            f"{job}, where only a status page lets others look at it, and it has none: start it with --status :8000, "
            "in a program with status_address=':8000', or as a detached job"
        )
    if page.node != own_ip and ipaddress.ip_address(urlsplit(page.url).hostname or "").is_loopback:
        raise UsageError(
            f"{job} on {page.node}, and its status page, {page.url}, is for that machine alone: look there, or start "
            "it with --status 0.0.0.0:8000"
        )
    return page.url
