"""Which kind of processing a worker has, by its function and the job's ordering."""

import threading

import pytest

from kafka_actors.config import JobConfig, build
from kafka_actors.job.machines.lease import Lease
from kafka_actors.job.worker.async_processing import AsyncProcessing
from kafka_actors.job.worker.concurrent_calls import ConcurrentCalls
from kafka_actors.job.worker.machines.worker_assignment import WorkerAssignment
from kafka_actors.job.worker.processing import make_processing
from kafka_actors.job.worker.processing_thread import ProcessingThread
from kafka_actors.job.worker.task_callers import TaskCallers
from kafka_actors.job.worker.thread_callers import ThreadCallers
from kafka_actors.job.worker.user_function import FunctionSpec, UserFunction
from kafka_actors.telemetry.spans import ProcessSpans


def plain(batch): ...


async def in_tasks(batch): ...


@pytest.mark.parametrize(
    ("target", "ordering", "kind", "callers"),
    [
        (plain, "partition", ProcessingThread, type(None)),
        (in_tasks, "partition", ProcessingThread, AsyncProcessing),
        (plain, "key", ConcurrentCalls, type(None)),
        (plain, "unordered", ConcurrentCalls, type(None)),
        (in_tasks, "key", ConcurrentCalls, TaskCallers),
    ],
)
def test_the_kind_follows_the_function_and_the_ordering(target, ordering, kind, callers):
    processing, async_calls = make_processing(
        UserFunction(FunctionSpec(target, "batch", 0, "fail")),
        WorkerAssignment(),
        Lease(),
        None,
        build(JobConfig, group_id="g", bootstrap_servers="localhost:9092", ordering=ordering),
        lock=threading.Lock(),
        events=lambda event: None,
        on_progress=lambda ended: None,
        on_failure=lambda error: None,
        recorder=None,
        spans=ProcessSpans("g", "c"),
        call_record=None,
    )
    assert isinstance(processing, kind)
    assert isinstance(async_calls, callers)
    if kind is ConcurrentCalls and target is plain:
        assert isinstance(processing.callers, ThreadCallers)
