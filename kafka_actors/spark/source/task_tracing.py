"""Traces and logs of Spark's tasks in the executors' Python workers, where the `OTEL_*` environment variables enable them.

A worker runs one task at a time, so the task's attributes are in the resource of its spans and in each of its log lines, under
the names of the collector's `apachespark` receiver.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from kafka_actors.errors import KafkaActorsError
from kafka_actors.telemetry import flush
from kafka_actors.telemetry.logs import LastResort, in_task
from kafka_actors.telemetry.sdk import begin_task, exports_logs
from kafka_actors.telemetry.spans import received

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

FLUSH_S = 2.0
"""Seconds that a task waits at its end for a slow collector; later tasks send the rest."""

_sending: list[threading.Thread] = []


@contextmanager
def traced_task() -> Iterator[bool]:
    """Context of a task: log lines have its attributes. Yields whether tracing is on. Spans and logs are sent at the end,
    because Spark may end its workers at any time. Telemetry that can't be set up is only a warning: the variables may be
    meant for other programs on the machine."""
    context: Any = TaskContext.get()
    if context is None:  # not in a task
        yield False
        return
    task = attributes_of(context)
    _lines_on_stderr()
    with in_task(task):
        traced = _begin(application_of(context), task)
        try:
            yield traced
        finally:
            if traced or exports_logs():
                _send()


def _begin(application: dict[str, str | int], task: dict[str, str | int]) -> bool:
    try:
        return begin_task(application, task)
    except KafkaActorsError as error:
        _warn(str(error))
        return False


@functools.cache
def _lines_on_stderr() -> None:
    """Logs to stderr: Spark's Python workers have no logging set up, unless the user's code does it."""
    logging.getLogger("kafka_actors").addHandler(LastResort())


@functools.cache
def _warn(problem: str) -> None:
    logger.warning("Spark's tasks are not traced: %s", problem)


def _send() -> None:
    while _sending and not _sending[0].is_alive():
        del _sending[0]
    if _sending:  # the collector is still busy with an earlier flush
        return
    thread = threading.Thread(target=flush, args=(FLUSH_S,), name="kafka-actors-flush", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the system gives no thread: a later task sends it
        return
    _sending.append(thread)
    thread.join(FLUSH_S)


def application_of(context: Any) -> dict[str, str | int]:
    """Attributes of the application, which are constant in a worker. Spark SQL passes its driver's settings to each task."""
    # Executors on Kubernetes have the variable.
    found = {
        "spark.application.id": context.getLocalProperty("spark.app.id")
        or os.environ.get("SPARK_APPLICATION_ID"),
        "spark.application.name": context.getLocalProperty("spark.app.name"),
    }
    return {name: value for name, value in found.items() if value}


def attributes_of(context: Any) -> dict[str, str | int]:
    """Attributes of a task: its ids in Spark's UI, the attempt, and the micro-batch."""
    task: dict[str, str | int | None] = {
        "spark.stage.id": context.stageId(),
        "spark.partition.id": context.partitionId(),
        "spark.task.attempt.id": context.taskAttemptId(),
        "spark.task.attempt.number": context.attemptNumber(),
        "spark.streaming.query.id": context.getLocalProperty("sql.streaming.queryId"),
        "spark.streaming.batch.id": context.getLocalProperty("streaming.sql.batchId"),
    }
    return {name: value for name, value in task.items() if value is not None}


def polled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, each with a span for the time spent waiting for it."""
    began = time.monotonic()
    for batch in batches:
        received(None, None, batch, time.monotonic() - began)
        yield batch
        began = time.monotonic()
