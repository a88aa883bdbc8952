"""`make_processing`: the part of a worker that makes calls, by the kind of the user's function and by the job's `ordering`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from kafka_actors.config import JobConfig
from kafka_actors.events import EventSink
from kafka_actors.fetch import Fetcher
from kafka_actors.job.machines.lease import Lease
from kafka_actors.job.messages import DeathsInCall
from kafka_actors.job.status import WindowStatus
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.telemetry.spans import ProcessSpans
from kafka_actors.types import TopicPartition

from .async_processing import AsyncProcessing, CallLoop
from .call_record import CallRecord
from .calls import Cut
from .concurrent_calls import ConcurrentCalls
from .counters import WorkerCounters
from .machines.worker_assignment import WorkerAssignment
from .processing_thread import ProcessingThread
from .task_callers import TaskCallers
from .thread_callers import ThreadCallers
from .user_function import UserFunction

__all__ = ["AsyncCalls", "Processing", "make_processing"]


class Processing(Protocol):
    """Decodes fetched records and makes calls with them, in threads of its own. Its methods are for any thread; `note_done` and `blocked` are
    called with the worker's lock held."""

    paused: bool
    counters: WorkerCounters

    def wake(self) -> None: ...
    def stop(self) -> None: ...
    def follow(self, watermarks: Iterable[tuple[TopicPartition, int]]) -> None: ...
    def note_waiting(self) -> None: ...
    def note_done(self) -> None: ...
    def blocked(self, partition: TopicPartition) -> str: ...
    def window(self, partition: TopicPartition) -> WindowStatus | None: ...
    def forget(self, partitions: Collection[TopicPartition]) -> None: ...
    def suspect(self, calls: Iterable[DeathsInCall]) -> None: ...
    def run(self) -> None: ...


class AsyncCalls(Protocol):
    """Makes the calls of an async function with `work`, in the loop of `calls`."""

    calls: CallLoop

    async def work(self) -> None: ...


def make_processing(
    function: UserFunction,
    assignment: WorkerAssignment,
    lease: Lease,
    fetcher: Fetcher,
    config: JobConfig,
    *,
    lock: threading.Lock,
    events: EventSink,
    on_progress: Callable[[bool], None],
    on_failure: Callable[[BaseException], None],
    recorder: Recorder | None,
    spans: ProcessSpans,
    call_record: CallRecord | None,
    cut: Cut | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Processing, AsyncCalls | None]:
    """Makes the processing of a worker, and what runs an async function's calls, None for a plain one. Arguments: as those of
    `ProcessingThread`, and `on_failure` of `ConcurrentCalls`."""
    if config.ordering == "partition":
        processing = ProcessingThread(
            function,
            assignment,
            lease,
            fetcher,
            lock=lock,
            batch_rows=config.batch_rows,
            linger_s=config.batch_linger_ms / 1000,
            events=events,
            on_progress=on_progress,
            recorder=recorder,
            group=config.group_id,
            spans=spans,
            call_record=call_record,
            cut=cut,
            clock=clock,
        )
        if not function.spec.is_async:
            return processing, None
        return processing, AsyncProcessing(processing, function, fetcher, clock)
    callers = TaskCallers if function.spec.is_async else ThreadCallers
    calls = ConcurrentCalls(
        function,
        assignment,
        lease,
        fetcher,
        config,
        lambda calls: callers(calls, config.concurrency),
        lock=lock,
        events=events,
        on_progress=on_progress,
        on_failure=on_failure,
        recorder=recorder,
        spans=spans,
        call_record=call_record,
        clock=clock,
    )
    return calls, calls.callers if isinstance(calls.callers, TaskCallers) else None
