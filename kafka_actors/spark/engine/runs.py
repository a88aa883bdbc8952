"""Runs on Spark: a streaming query or a batch in a thread, how far it is by the progress that Spark reports, and the error of a
task that failed, parsed from Spark's report.
"""

from __future__ import annotations

import ast
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import msgspec

from kafka_actors.errors import (
    ConfigError,
    JobFailed,
    KafkaActorsError,
    KafkaTimeoutError,
    SinkError,
    StageError,
)
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets
from kafka_actors.types import TopicPartition

from .pipeline_source import SourceNames, context_of, enter


class OffsetCounts(NamedTuple):
    """Offsets read since the start, offsets left to read, and the number of the last finished batch."""

    records: int
    lag: int | None
    batch: int | None


class QueryProgress:
    """Counts offsets in the progress that Spark reports, because rows behind the stages are not records. `selects` recognises
    the pipeline's topics, as Spark doesn't say which source of a query is which. `begun` returns the start of the query; it
    is called where the first progress has none (`offsetFormat=spark`)."""

    def __init__(
        self,
        selects: Callable[[str], object],
        begun: Callable[[], Mapping[TopicPartition, int]] = dict,
    ) -> None:
        self._selects = selects
        self._begun = begun
        self._first: dict[TopicPartition, int] = {}
        self.end: dict[str, Any] | None = None
        """End of the last finished batch, in the source's format."""
        self.counts = OffsetCounts(0, None, None)

    def observe(self, progress: Mapping[str, Any]) -> None:
        """Takes a progress report; one that was taken before changes nothing."""
        batch = progress["batchId"]
        if self.counts.batch is not None and batch < self.counts.batch:
            return
        for source in progress["sources"]:
            end = _offsets(source["endOffset"])
            if (
                end is not None
                and end.by_partition
                and all(self._selects(tp.topic) for tp in end.by_partition)
            ):
                self._observe(batch, source, end)
                return

    def _observe(self, batch: int, source: Mapping[str, Any], end: StreamOffsets) -> None:
        start = _offsets(source["startOffset"])
        begun = start.by_partition if start is not None else self._start_of(end)
        # A partition that is added later begins at 0, even if its first batch was missed.
        new = dict.fromkeys(end.by_partition, 0) if self._first else {**end.by_partition, **begun}
        for tp in end.by_partition:
            self._first.setdefault(tp, new[tp])
        self.end = _reported(source["endOffset"])
        records = sum(offset - self._first[tp] for tp, offset in end.by_partition.items())
        self.counts = OffsetCounts(records, _lag(_offsets(source["latestOffset"]), end), batch)

    def _start_of(self, first: StreamOffsets) -> Mapping[TopicPartition, int]:
        return self._begun() if first.start is None else first.start


def _offsets(text: str | None) -> StreamOffsets | None:
    """The offsets in a progress report; None without any, and for another source's."""
    try:
        found = _reported(text or "null")
        return StreamOffsets.from_json(found) if isinstance(found, dict) else None
    except (ValueError, SyntaxError, ConfigError):
        return None


def _reported(text: str) -> Any:
    """Decodes offsets of a progress report: JSON, or from PySpark before 4.2 the `str` of a dict."""
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text)


def _lag(latest: StreamOffsets | None, reached: StreamOffsets) -> int | None:
    if latest is None:
        return None
    ends = latest.by_partition
    return sum(max(0, end - reached.by_partition.get(tp, 0)) for tp, end in ends.items())


STEP_S = 0.5
"""Seconds of one wait for Spark; between waits Ctrl-C is handled."""


class SparkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a run. `records`: offsets read since the start; `lag`: offsets left to read, None where unknown; `batch`: the
    number of the last finished micro-batch. A batch run has only `tasks`, finished and all."""

    state: str
    elapsed_s: float
    records: int | None = None
    lag: int | None = None
    batch: int | None = None
    tasks: tuple[int, int] | None = None


class SparkRun(Protocol):
    """Run that was started."""

    def wait(self, *, timeout: float | None) -> None:
        """Waits for the end. Raises `JobFailed`, `KafkaTimeoutError`."""
        ...

    def stop(self) -> None: ...

    def status(self) -> SparkStatus: ...


class StreamRun:
    """Run of a streaming query. `finish` is called once with the end of the last finished batch, after the query ended without
    error; `names` are given back at the end, also after an error."""

    def __init__(
        self,
        query: Any,
        query_progress: QueryProgress,
        finish: Callable[[dict[str, Any]], None],
        names: SourceNames,
    ) -> None:
        self.query = query
        self._names = names
        self._finish = finish
        self._began = time.monotonic()
        self._ended: float | None = None
        self._stopped = False
        self._finished = False
        self._progress = query_progress
        self._lock = threading.Lock()
        # Where the system gives no thread, the query runs all the same: `status` takes reports, too.
        with suppress(RuntimeError):
            threading.Thread(target=self._observe_first, name="kafka-actors-progress", daemon=True).start()

    def _observe_first(self) -> None:
        """Takes the first progress report, from which offsets are counted: Spark keeps the last 100 only, and the first call of
        `status` may come later."""
        with suppress(Exception):  # the session may end before the query's first batch
            while self._observed_counts().batch is None and self.query.isActive:
                time.sleep(STEP_S)

    def wait(self, *, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        error = None
        while error is None:
            left = STEP_S if deadline is None else min(STEP_S, deadline - time.monotonic())
            try:
                if self.query.awaitTermination(max(left, 0.001)):
                    return self._end()
            except Exception as raised:
                error = raised
            if error is None and deadline is not None and time.monotonic() >= deadline:
                raise KafkaTimeoutError(f"the run goes on after {timeout:g} s")
        self._ended = self._ended or time.monotonic()
        self._names.give_back()
        raise failed(error)

    def stop(self) -> None:
        """Stops the query. A micro-batch that is running is cancelled, and runs again at the next start."""
        active = self.query.isActive
        self._stopped = self._stopped or active
        self.query.stop()
        if self.query.exception() is None:
            self._end()
        self._names.give_back()

    def _end(self) -> None:
        self._ended = self._ended or time.monotonic()
        self._names.give_back()
        if not self._finished:
            self._finished = True
            self._observed_counts()
            if self._progress.end is not None:
                self._finish(self._progress.end)

    def _observed_counts(self) -> OffsetCounts:
        with self._lock:
            for progress in self.query.recentProgress:
                self._progress.observe(progress)
            return self._progress.counts

    def status(self) -> SparkStatus:
        counts = self._observed_counts()
        return SparkStatus(
            state=self._state(),
            elapsed_s=(self._ended or time.monotonic()) - self._began,
            records=counts.records,
            lag=counts.lag,
            batch=counts.batch,
        )

    def _state(self) -> str:
        if self.query.isActive:
            return "running"
        if self.query.exception() is not None:
            return "failed"
        return "stopped" if self._stopped else "finished"


class BatchRun:
    """Run of a batch, written in a thread: its jobs have a tag, by which they are cancelled. `persisted` is a DataFrame that is
    computed before the write and unpersisted after it; `names` are given back at the end."""

    def __init__(self, spark: Any, write: Callable[[], None], persisted: Any, names: SourceNames) -> None:
        self._spark = spark
        self._write = write
        self._persisted = persisted
        self._names = names
        self._context = context_of(spark)
        self._tag = f"kafka-actors-{uuid.uuid4().hex}"
        self._began = time.monotonic()
        self._ended: float | None = None
        self._error: BaseException | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="kafka-actors-batch", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            enter(self._spark)
            self._spark.addTag(self._tag)
            if self._context is not None:
                self._context.setJobGroup(self._tag, "a pipeline of kafka-actors")
            if self._persisted is not None:
                # Before the write, in which two tasks might compute the same partition at the same time, with different results.
                self._persisted.write.format("noop").mode("overwrite").save()
            self._write()
        except BaseException as error:  # `wait` raises it
            self._error = error
        finally:
            self._ended = time.monotonic()
            self._names.give_back()
            if self._persisted is not None:
                with suppress(Exception):  # the session may have ended
                    self._persisted.unpersist()

    def wait(self, *, timeout: float | None) -> None:
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise KafkaTimeoutError(f"the run goes on after {timeout:g} s")
        if self._error is not None and not self._stopped:
            raise failed(self._error)

    def stop(self) -> None:
        """Cancels the jobs, and waits for the end. Records that were written to Kafka stay."""
        if self._thread.is_alive():
            self._stopped = True
        while self._thread.is_alive():  # a job may start just after the others were cancelled
            self._spark.interruptTag(self._tag)
            self._thread.join(STEP_S)

    def status(self) -> SparkStatus:
        return SparkStatus(
            state=self._state(),
            elapsed_s=(self._ended or time.monotonic()) - self._began,
            tasks=self._tasks(),
        )

    def _state(self) -> str:
        if self._thread.is_alive():
            return "running"
        if self._stopped:
            return "stopped"
        return "finished" if self._error is None else "failed"

    def _tasks(self) -> tuple[int, int] | None:
        """Finished tasks and all, of the stages that have begun: stages that Spark skips, because their rows exist, never begin."""
        if self._context is None:
            return None
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._tag)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        known = [stage for stage in stages if stage is not None and _begun(stage)]
        return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


def _begun(stage: Any) -> bool:
    return bool(stage.numCompletedTasks + stage.numActiveTasks + stage.numFailedTasks)


_OURS = re.compile(r"^(?:\[?[\w.]*\] ?)?kafka_actors\.errors\.(\w+): (.+)$", re.MULTILINE)
_RAISED = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\w\S*.*)((?:\nraised (?:by|when) .*)*)"
)
_STAGE = re.compile(
    r"stage (?P<stage>.+?) failed on "
    r"(?:(?P<topic>[^ ]+)-(?P<partition>\d+) offsets? (?P<first>\d+)(?:-(?P<last>\d+))?|rows of no one record) "
    r"after (?P<attempts>\d+) attempts?(?:: (?P<message>.*))?"
)
_SINK = re.compile(r"(?P<sink>.+?): (?P<message>.*); the offsets of its records are not committed")


def failed(error: BaseException) -> JobFailed:
    """Converts an error of Spark's to a `JobFailed`. Its cause is the `StageError` or `SinkError` that a task raised, whose own
    cause is Spark's error with the task's traceback; for any other error the cause is Spark's error."""
    found = _OURS.findall(str(error))
    if not found:
        return JobFailed(error, f"the run failed: {_line_of(str(error))}")
    name, line = found[-1]
    cause = _cause(name, line)
    if cause is None:
        return JobFailed(error, f"the run failed: {name}: {line}")
    cause.__cause__ = error
    return JobFailed(cause, f"the run failed: {line}")


def _line_of(report: str) -> str:
    """The line of an error that a Python worker raised, with its notes; without one, the first line of the report."""
    raised = _RAISED.findall(report)
    if not raised:
        return report.strip().partition("\n")[0]
    error, notes = raised[-1]
    return f"{error} ({', '.join(notes.strip().splitlines())})" if notes else str(error)


def _cause(name: str, line: str) -> KafkaActorsError | None:
    if name == "StageError" and (match := _STAGE.fullmatch(line)):
        partition, first = int(match["partition"] or -1), int(match["first"] or -1)
        last, attempts = int(match["last"] or first), int(match["attempts"])
        return StageError(
            match["stage"], match["topic"] or "", partition, first, last, attempts, match["message"] or ""
        )
    if name == "SinkError" and (match := _SINK.fullmatch(line)):
        return SinkError(match["sink"], match["message"])
    return None
