"""What the executors' Python workers tell of Spark's tasks, where the `OTEL_*` variables of their environment ask for it.

A worker works on one task after the other, so the task is in the resource of its spans, and in each of its log lines, under the names
that the collector's `apachespark` receiver has for them.
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
"""So long a task waits at its end for a collector that takes no spans; what is not sent by then is sent in the time of later tasks."""

_sending: list[threading.Thread] = []


@contextmanager
def traced_task() -> Iterator[bool]:
    """Around what this process does of a task: log lines name it meanwhile. Gives whether anybody traces; what was traced and said is
    sent at the end, because Spark may end its workers at any time. Telemetry that can't be set up is a warning: the
    variables may be meant for others on the machine."""
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
    """Nobody has set up logging in Spark's Python workers, unless the user's own code does."""
    logging.getLogger("kafka_actors").addHandler(LastResort())


@functools.cache
def _warn(problem: str) -> None:
    logger.warning("Spark's tasks are not traced: %s", problem)


def _send() -> None:
    while _sending and not _sending[0].is_alive():
        del _sending[0]
    if _sending:  # the collector has not taken what was sent before
        return
    thread = threading.Thread(target=flush, args=(FLUSH_S,), name="kafka-actors-flush", daemon=True)
    _sending.append(thread)
    thread.start()
    thread.join(FLUSH_S)


def application_of(context: Any) -> dict[str, str | int]:
    """What stays the same for as long as a worker lives. Spark SQL hands its driver's settings to each task."""
    found = {
        "spark.application.id": context.getLocalProperty("spark.app.id")
        or os.environ.get("SPARK_APPLICATION_ID"),  # of executors on Kubernetes
        "spark.application.name": context.getLocalProperty("spark.app.name"),
    }
    return {name: value for name, value in found.items() if value}


def attributes_of(context: Any) -> dict[str, str | int]:
    """A task: where Spark shows it, which try of it this is, and of which micro-batch it is a part."""
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
    """The batches, each with a span of the time for which it was waited."""
    began = time.monotonic()
    for batch in batches:
        received(None, None, batch, time.monotonic() - began)
        yield batch
        began = time.monotonic()
