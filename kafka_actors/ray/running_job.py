"""`RunningJob`, the handle of a running job, and `JobControl`, the Protocol of what it controls."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from kafka_actors.base.timeouts import checked_amount, timeouts_by_name, wait_of
from kafka_actors.errors import JobFailed, KafkaTimeoutError
from kafka_actors.job.autoscale import Autoscale, checked_workers
from kafka_actors.job.status import JobStatus

from .sigterm import StopOnSigterm

__all__ = ["JobControl", "RunningJob"]


class JobControl(Protocol):
    """Control of a supervisor, wherever it runs. All calls block; `timeout` is in seconds."""

    def status(self) -> JobStatus: ...
    def scale(self, workers: int | Autoscale) -> None: ...
    def pause(self, paused: bool) -> None: ...
    def wait(self, timeout: float | None) -> bool: ...
    def stop(self, timeout: float, leave: bool) -> bool: ...
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
        left = timeout
        while True:
            if signals.received:
                self.stop()
                return True
            piece = 0.2 if left is None else min(0.2, left)
            if self._control.wait(piece):
                return True
            if left is not None:
                left -= piece
                if left <= 0:
                    return False

    def stop(self, *, timeout: float = 30.0, leave: bool = True) -> bool:
        """Drains within `drain_timeout_ms`, commits, leaves the group (unless `leave=False`, for rolling
        deploys) and ends all actors; returns within `timeout` seconds. Safe to call twice.

        Returns whether the brokers have confirmed the commits of all that was processed, False too where a detached job is gone
        and nobody can say. If not, `status().unconfirmed`
        names the partitions whose last records come again at the next start."""
        return self._control.stop(checked_amount("timeout", timeout), leave)

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
