"""A run on Spark: a streaming query, or a batch in a thread of its own."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from kafka_actors.errors import KafkaTimeoutError

from .query_progress import OffsetCounts, QueryProgress
from .source_names import SourceNames
from .task_errors import failed

STEP_S = 0.5
"""So long Spark is waited for at a time, so that Ctrl-C is heard."""


class SparkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`records`: offsets read since the start, `lag`: those that are left, as far as is known; `batch`: the number of
    the last finished micro-batch. Of a batch run Spark tells only its tasks."""

    state: str
    elapsed_s: float
    records: int | None = None
    lag: int | None = None
    batch: int | None = None
    tasks: tuple[int, int] | None = None


class SparkRun(Protocol):
    """What was started."""

    def wait(self, *, timeout: float | None) -> None:
        """Raises `JobFailed`, `KafkaTimeoutError`."""
        ...

    def stop(self) -> None: ...

    def status(self) -> SparkStatus: ...


class StreamRun:
    """A streaming query. `finish` is called once with the end of the last finished batch, after the query ended well;
    its `names` are given back then, and where it failed."""

    def __init__(
        self,
        query: Any,
        reckoning: QueryProgress,
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
        self._reckoning = reckoning
        self._looking = threading.Lock()
        threading.Thread(target=self._see_the_first, name="kafka-actors-progress", daemon=True).start()

    def _see_the_first(self) -> None:
        """Spark keeps the last 100 progresses, and what is counted from is in the first: whoever asks for a status may
        ask later than that."""
        with suppress(Exception):  # the session may end before the query has a batch
            while self._look().batch is None and self.query.isActive:
                time.sleep(STEP_S)

    def wait(self, *, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        error = None
        while error is None:
            left = STEP_S if deadline is None else min(STEP_S, deadline - time.monotonic())
            try:
                if self.query.awaitTermination(max(left, 0.001)):
                    return self._over()
            except Exception as raised:
                error = raised
            if error is None and deadline is not None and time.monotonic() >= deadline:
                raise KafkaTimeoutError(f"the run goes on after {timeout:g} s")
        self._ended = self._ended or time.monotonic()
        self._names.give_back()
        raise failed(error)

    def stop(self) -> None:
        """The micro-batch in hand is given up: it is done again at the next start."""
        active = self.query.isActive
        self._stopped = self._stopped or active
        self.query.stop()
        if self.query.exception() is None:
            self._over()
        self._names.give_back()

    def _over(self) -> None:
        self._ended = self._ended or time.monotonic()
        self._names.give_back()
        if not self._finished:
            self._finished = True
            self._look()
            if self._reckoning.end is not None:
                self._finish(self._reckoning.end)

    def _look(self) -> OffsetCounts:
        with self._looking:
            for progress in self.query.recentProgress:
                self._reckoning.observe(progress)
            return self._reckoning.counts

    def status(self) -> SparkStatus:
        counts = self._look()
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
    """A write of a batch in a thread: its jobs have a tag, by which they are stopped. `kept` is a DataFrame that is
    made whole before, and let go behind it; `names` are given back then."""

    def __init__(self, spark: Any, write: Callable[[], None], kept: Any, names: SourceNames) -> None:
        self._spark = spark
        self._write = write
        self._kept = kept
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
            if self._kept is not None:
                # Not while it is written: two tasks might make the same part of it at the same time, each its own way.
                self._kept.write.format("noop").mode("overwrite").save()
            self._write()
        except BaseException as error:  # it belongs to whoever waits
            self._error = error
        finally:
            self._ended = time.monotonic()
            self._names.give_back()
            if self._kept is not None:
                with suppress(Exception):  # the session may have ended
                    self._kept.unpersist()

    def wait(self, *, timeout: float | None) -> None:
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise KafkaTimeoutError(f"the run goes on after {timeout:g} s")
        if self._error is not None and not self._stopped:
            raise failed(self._error)

    def stop(self) -> None:
        """Cancels its jobs, and waits until it has ended. What was written to Kafka stays written."""
        if self._thread.is_alive():
            self._stopped = True
        while self._thread.is_alive():  # a job may begin just after the others were cancelled
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
        """Of the stages that have begun: those that Spark skips, because their rows are there, never do."""
        if self._context is None:
            return None
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._tag)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        known = [stage for stage in stages if stage is not None and _begun(stage)]
        return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


def _begun(stage: Any) -> bool:
    return bool(stage.numCompletedTasks + stage.numActiveTasks + stage.numFailedTasks)


def enter(spark: Any) -> None:
    """Before data sources are named in a thread that is not the session's own: Spark looks those of Python up in the
    session that is active in the thread, and `createDataFrame` is what makes it so."""
    spark.createDataFrame([], "nothing INT")


def context_of(spark: Any) -> Any:
    """None over Spark Connect, which has none."""
    try:
        return spark.sparkContext
    except Exception:  # each version has its own
        return None
