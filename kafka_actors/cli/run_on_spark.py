"""`kafka-actors run` with a pipeline on Spark: a streaming query, or one batch, that is shown, and stopped on a signal."""

from __future__ import annotations

import logging
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec
from rich.live import Live
from rich.text import Text

from kafka_actors.errors import ConfigError, JobFailed, KafkaTimeoutError

from .command import EXIT_DONE
from .job_options import source_changes
from .job_views import INTERVAL_S, count
from .load_target import LoadedTarget
from .option_sources import OptionValues
from .output import Output, put_line, slow_notice
from .run import TICK_S, StopSignals, WatchEnd

if TYPE_CHECKING:
    from kafka_actors.pipeline.bound_pipeline import RunProgress
    from kafka_actors.spark import OnSpark

__all__ = [
    "ProgressView",
    "bound_to_spark",
    "closing_line",
    "fields",
    "refused_on_spark",
    "run_on_spark",
    "watch",
]

logger = logging.getLogger(__name__)

_OF_RAY = ("workers", "resources_per_worker", "name", "dead_letter_topic", "status", "prometheus")
"""Options of a run that have no meaning on Spark."""
_OF_STAGES = ("group_id", "on_error", "retries")
"""Options that have none in the data source: the first is used for commits, the others are refused by the pipeline itself."""
_SETS_SPARK = (
    "PYSPARK_PYTHON",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_REMOTE",
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "MASTER",
)
"""Variables that say where Spark runs, and with which Python."""


def run_on_spark(target: LoadedTarget, settings: OptionValues, output: Output) -> int:
    """Runs a pipeline on Spark until it has ended or a signal came, in the session of an `OnSpark`, or in one of its own."""
    from kafka_actors.pipeline import Pipeline

    with settings.named():
        bound = bound_to_spark(target, settings)
    view, session = ProgressView(output), None
    try:
        if isinstance(target.found, Pipeline):
            with slow_notice(view.note, "starting Spark"):
                session = _session(bound.pipeline.title)
            bound = bound.changed({}, spark=session)
        with view, settings.named():
            end = watch(bound, view)
            last = bound.progress()
        output.print(closing_line(end, last))
        return EXIT_DONE
    finally:
        if session is not None:
            session.stop()


def refused_on_spark() -> frozenset[str]:
    """Options of a run or a job that a pipeline on Spark has no use for."""
    from kafka_actors.spark.engine.arguments import NOT_ON_SPARK

    return NOT_ON_SPARK.difference(_OF_STAGES).union(_OF_RAY)


def bound_to_spark(target: LoadedTarget, settings: OptionValues) -> OnSpark:
    """Pipeline on Spark with these options; a `Pipeline` gets no session yet. Raises `ConfigError`."""
    from kafka_actors.pipeline import Pipeline

    found: Any = target.found
    from_settings = settings.options
    for name in from_settings:
        if name in refused_on_spark():
            raise ConfigError(name, f"is for a job on Ray, and {target.name} runs on Spark")
    options = source_changes(settings)
    where = {name: from_settings[name] for name in ("topics", "pattern") if name in from_settings}
    arguments = {name: from_settings[name] for name in ("checkpoint", "trigger") if name in from_settings}
    is_stream = "checkpoint" in from_settings or (not isinstance(found, Pipeline) and found.is_stream)
    if from_settings.get("until") == "latest" and is_stream:
        arguments.setdefault("trigger", "availableNow")
        if arguments["trigger"] not in ("availableNow", "once"):
            raise ConfigError(
                "trigger", f"is {from_settings['trigger']!r}, which goes on, and until is 'latest'"
            )
    spark_options = from_settings.get("spark_options") or {}
    if not isinstance(found, Pipeline):
        bound: OnSpark = found.changed(options, **where, spark_options=spark_options, **arguments)
        return bound
    if not is_stream and from_settings.get("until") is None:
        raise ConfigError(
            "checkpoint",
            "is missing: the directory from which the query goes on; or say --until latest for one batch",
        )
    return found.reading(options, **where).on_spark(None, progress=False, **arguments, **spark_options)


def _session(title: str) -> Any:
    """Session of the Spark that its own variables and files name, else of a local one with this Python."""
    from pyspark.sql import SparkSession

    if not any(name in os.environ for name in _SETS_SPARK):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    return SparkSession.builder.appName(title).getOrCreate()


class SparkRunning(Protocol):
    """The part of an `OnSpark` that `watch` uses."""

    def start(self) -> Any: ...
    def wait(self, *, timeout: float | None) -> None: ...
    def stop(self) -> None: ...
    def progress(self) -> RunProgress: ...


def watch(bound: SparkRunning, view: ProgressView) -> WatchEnd:
    """Starts a run and shows it until it has ended or a signal came, which stops it. Raises `JobFailed`, unless that came of the
    signal: Ctrl-C reaches Spark's Python workers, too."""
    with StopSignals() as signals:
        bound.start()
        try:
            while signals.first is None:
                view.show(bound.progress())
                try:
                    bound.wait(timeout=TICK_S)
                    return WatchEnd.FINISHED
                except KafkaTimeoutError:
                    continue
                except JobFailed:
                    if signals.first is None:
                        raise
            view.note(f"{signals.first.name}: stopping; once more ends at once")
            return WatchEnd.STOPPED
        finally:
            bound.stop()


def closing_line(end: WatchEnd, last: RunProgress) -> str:
    """Last line of a run. Of one batch Spark reports no records."""
    what = "done" if end is WatchEnd.FINISHED else "stopped"
    if last.records is None:
        return f"{what}: in {last.elapsed_s:.1f} s"
    rate = last.records / max(last.elapsed_s, 1e-9)
    return f"{what}: {count(last.records, 'record')} in {last.elapsed_s:.1f} s ({rate:,.0f}/s)"


def fields(progress: RunProgress) -> dict[str, Any]:
    """Progress as the fields of a record in a JSON log, without those that Spark does not report."""
    found = {
        **msgspec.structs.asdict(progress),
        "elapsed_s": round(progress.elapsed_s, 3),
        "records_per_s": None if progress.records is None else round(progress.records_per_s, 1),
    }
    return {name: value for name, value in found.items() if value not in (None, [])}


class ProgressView:
    """Shows progress: redrawn on a terminal, a line every few seconds elsewhere, or records of a JSON log."""

    def __init__(self, output: Output, every_s: float = INTERVAL_S) -> None:
        logger.setLevel(logging.INFO)  # the command was asked to show progress, whatever the level of the log
        self._output = output
        self._every_s = every_s
        self._shown: tuple[float, object] | None = None
        self._live: Live | None = None
        if output.live:
            self._live = Live(
                console=output.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
            self._output.above(self._output.console)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._output.above(None)
            self._live.stop()

    def show(self, progress: RunProgress) -> None:
        """Shows progress where it is due: every few seconds, and when a state or a batch is another one."""
        from kafka_actors.pipeline.bound_pipeline import line

        if self._live is not None:
            self._live.update(Text(line(progress)), refresh=True)
            return
        shape = progress.state, progress.batch
        if self._shown is not None:
            since, before = progress.elapsed_s - self._shown[0], self._shown[1]
            if since < self._every_s and shape == before:
                return
        self._shown = progress.elapsed_s, shape
        if self._output.log_format == "json":
            logger.info("progress", extra=fields(progress))
        else:
            self.note(line(progress))

    def note(self, text: str) -> None:
        """Shows a line about something that happened."""
        if self._output.log_format == "json":
            logger.info(text)
        elif self._live is not None:
            self._output.print(text)
        else:
            put_line(self._output.console.file, text)
