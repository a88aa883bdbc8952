"""`kafka-actors run`: starts a job or pipeline from the shell, shows it, and stops it on a signal."""

from __future__ import annotations

import enum
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import click

from kafka_actors.base.addresses import parse_listening
from kafka_actors.errors import ConfigError, KafkaTimeoutError

from .command import EXIT_DONE, EXIT_FAILED, command
from .job_options import changed, job_options, job_settings, loaded, required, target_of
from .job_views import View, count, view_for
from .output import Output, slow_notice

if TYPE_CHECKING:
    from kafka_actors.job import JobStatus
    from kafka_actors.ray import Job, RunningJob

__all__ = ["TICK_S", "StopSignals", "WatchEnd", "run", "set_telemetry", "start", "watch"]

NAMED = 3
"""Number of partitions that a message names; more are counted."""
TICK_S = 0.25
SHOW_CURSOR = "\x1b[?25h"


@click.command()
@job_options
@command
def run(
    output: Output, target: str | None, config_file: str | None, pairs: tuple[str, ...], **flags: Any
) -> int:
    """Run the job or pipeline that TARGET names: path/to/file.py:name or module:name.

    It is a kafka_actors.Job, a Pipeline, an OnRay, an OnSpark, or a function without arguments that returns one.
    On Ray, SIGTERM and Ctrl-C finish and commit what is in hand and leave the group; on Spark they stop the query, which goes
    on from its checkpoint at the next start. A second one ends at once.

    Options come from the command line, else from KAFKA_ACTORS_<OPTION>, else from the file of -c, else from the job's
    definition; `config show` says which. A file may name the job as well: job = "file.py:name".
    """
    settings = job_settings(config_file, pairs, os.environ, **flags)
    set_telemetry(otlp=settings.options.get("otlp"), prometheus=settings.options.get("prometheus"))
    target = required(target_of(target, settings))
    view = view_for(output)
    with slow_notice(view.note, f"loading {target}"):
        found = loaded(target, settings)
        if found.engine == "ray":
            job = changed(found, settings)
    if found.engine == "spark":
        from .run_on_spark import run_on_spark

        return run_on_spark(found, settings, output)
    with view:
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
            end, status, seconds = watch(running, view, stop=running.stop)
        finally:
            with slow_notice(view.note, "waiting for the job to stop"):
                confirmed = running.stop()
    output.print(closing_line(end, status, seconds))
    if not confirmed:
        output.error(unconfirmed_line(running.status().unconfirmed))
    return EXIT_DONE if confirmed else EXIT_FAILED


def start(job: Job, view: View) -> RunningJob | None:
    """Starts a job, and shows meanwhile what it waits for. Returns None where a signal came before it had started.

    Until `watch` takes over, SIGTERM raises `SystemExit` (Ray's handler) and Ctrl-C `KeyboardInterrupt`.
    """
    began = time.monotonic()
    try:
        with slow_notice(view.note, "starting the job on Ray") as in_ray:

            def each(status: JobStatus) -> None:
                in_ray()
                view.show(status, time.monotonic() - began)

            return job.start(each=each)
    except (SystemExit, KeyboardInterrupt):
        return None
    except ConfigError as error:
        if error.option != "status_address":
            raise
        raise ConfigError("status", error.message) from None  # its name on the command line


def page_line(status: JobStatus, *, elsewhere: bool) -> str:
    """Line that says where the status page is: also on which machine, where that may be another one (`elsewhere`)."""
    return f"status page: {status.page}" + (f" on {status.page_node}" if elsewhere else "")


def unconfirmed_line(partitions: list[tuple[str, int]]) -> str:
    """Error of a run whose last commits no broker has confirmed; `partitions` is empty where they are not known."""
    if not partitions:
        return "it is not known whether the last commits were confirmed: the last records may come again"
    named = ", ".join(f"{topic}-{number}" for topic, number in partitions[:NAMED])
    more = f" and {len(partitions) - NAMED} more" if len(partitions) > NAMED else ""
    return f"no broker has confirmed the last commits of {named}{more}: their last records come again"


def closing_line(end: WatchEnd, status: JobStatus, seconds: float) -> str:
    """Last line of a run that took so many seconds."""
    seconds = max(seconds, 1e-9)
    what = "done" if end is WatchEnd.FINISHED else "stopped"
    return (
        f"{what}: {count(status.records, 'record')} in {seconds:.1f} s ({status.records / seconds:,.0f}/s), "
        f"{count(status.totals.restarts, 'restart')}"
    )


# ------------------------------------------------------------ telemetry


def set_telemetry(*, otlp: str | None, prometheus: str | None) -> None:
    """Sets the `OTEL_*` variables of this process: a collector's URL, and the `[HOST]:PORT` where Prometheus may scrape."""
    if otlp is not None:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = otlp
    if prometheus is not None:
        host, port = parse_listening("prometheus", prometheus)
        os.environ["OTEL_EXPORTER_PROMETHEUS_HOST"] = host
        os.environ["OTEL_EXPORTER_PROMETHEUS_PORT"] = str(port)
        _add_prometheus()


def _add_prometheus() -> None:
    """Adds Prometheus to the exporters that are named, or to OTLP where an endpoint is."""
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    default = "otlp" if any(os.environ.get(name) for name in endpoints) else ""
    named = [part.strip() for part in os.environ.get("OTEL_METRICS_EXPORTER", default).split(",")]
    wanted = [*(part for part in named if part not in ("", "none", "prometheus")), "prometheus"]
    os.environ["OTEL_METRICS_EXPORTER"] = ",".join(wanted)


# ------------------------------------------------------------ watching a job


class WatchEnd(enum.Enum):
    """Reason why watching ended without an error."""

    FINISHED = "finished"
    STOPPED = "stopped"


class StopSignals:
    """Handler of SIGTERM and SIGINT: notes the first signal, and ends the process at once on the second.

    Entered after `ray.init`, which installs a handler of its own that exits with the signal's number.
    """

    HANDLED = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._on_signal) for number in self.HANDLED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.first is not None:
            if sys.stdout.isatty():  # a live view hides the cursor
                sys.stdout.write(SHOW_CURSOR)
                sys.stdout.flush()
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.first = signal.Signals(number)


class _Ending:
    """Waits for the end of a job on a thread of its own; the main thread has the signals and the view."""

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
        """Whether the job ends within so many seconds. Raises the error with which it ended."""
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
) -> tuple[WatchEnd, JobStatus, float]:
    """Shows the job until it has ended or a signal came; returns which, the last status, and the seconds that it took.

    `stop` is called on the first signal and `each` with every status. Raises `JobFailed`.
    """
    began, shown = clock(), 0
    ending = _Ending(running)
    with StopSignals() as signals:
        while True:
            status = running.status()
            view.show(status, clock() - began)
            for change in status.scaling.changes:
                if change.number > shown:
                    shown = change.number
                    view.note(f"workers {change.before} → {change.after}: {change.reason}")
            if each is not None:
                each(status)
            if signals.first is None and ending.within(TICK_S):
                return WatchEnd.FINISHED, running.status(), clock() - began
            if signals.first is not None:
                view.note(f"{signals.first.name}: stopping; once more ends at once")
                stop()
                return WatchEnd.STOPPED, running.status(), clock() - began
