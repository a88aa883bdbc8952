"""Watching a running job until it ends or is told to: progress to a view, signals to `stop()`."""

from __future__ import annotations

import enum
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from kafka_actors.errors import KafkaTimeoutError

from .job_progress import JobProgress, JobReading
from .views import View

if TYPE_CHECKING:
    from kafka_actors.job import JobStatus
    from kafka_actors.ray import RunningJob

__all__ = ["StopSignals", "WatchEnd", "watch"]

TICK_S = 0.25
SHOW_CURSOR = "\x1b[?25h"


class WatchEnd(enum.Enum):
    """Why watching ended without an error."""

    FINISHED = "finished"
    STOPPED = "stopped"


class StopSignals:
    """SIGTERM and SIGINT: the first is noted, the second ends the process at once.

    Entered after `ray.init`, which installs a handler of its own that exits with the signal's number.
    """

    HEEDED = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._heard) for number in self.HEEDED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.first is not None:
            if sys.stdout.isatty():  # a live view hides the cursor
                sys.stdout.write(SHOW_CURSOR)
                sys.stdout.flush()
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.first = signal.Signals(number)


class _Ending:
    """Waits for the job's end on a thread of its own: the main thread has the signals and the view."""

    def __init__(self, running: RunningJob) -> None:
        self._running = running
        self._ended = threading.Event()
        self._error: BaseException | None = None
        threading.Thread(target=self._wait, name="kafka-actors-ending", daemon=True).start()

    def _wait(self) -> None:
        try:
            while True:
                try:
                    return self._running.wait(timeout=1.0)
                except KafkaTimeoutError:
                    continue
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def within(self, seconds: float) -> bool:
        """Whether the job has ended by then. Raises what it ended with."""
        if not self._ended.wait(seconds):
            return False
        if self._error is not None:
            raise self._error
        return True


def watch(
    running: RunningJob,
    view: View,
    *,
    stop: Callable[[], object],
    each: Callable[[JobStatus], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[WatchEnd, JobReading]:
    """Shows the job until it has ended or a signal came; returns which, and the last reading.

    `stop` is called on the first signal and `each` with every status. Raises `JobFailed`.
    """
    progress, told = JobProgress(), 0
    ending = _Ending(running)
    with StopSignals() as signals:
        while True:
            status = running.status()
            reading = progress.observe(status, clock())
            view.show(reading)
            for change in status.scaling.changes:
                if change.number > told:
                    told = change.number
                    view.note(f"workers {change.before} → {change.after}: {change.reason}")
            if each is not None:
                each(status)
            if signals.first is None and ending.within(TICK_S):
                return WatchEnd.FINISHED, progress.observe(running.status(), clock())
            if signals.first is not None:
                view.note(f"{signals.first.name}: stopping; once more ends at once")
                stop()
                return WatchEnd.STOPPED, progress.observe(running.status(), clock())
