"""Jobs whose function ends its process: deaths in the same call count as tries of it."""

import asyncio
import ctypes
import os
import signal
import time

import pytest
from jobs.journal import Recorder
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.errors import ProcessError
from kafka_actors.types import TopicPartition

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

EACH = 60


@pytest.fixture(autouse=True)
def patient_reports(monkeypatch):
    """A death whose report is late counts as none."""
    monkeypatch.setattr("kafka_actors.job.supervisor.health_checks.CRASH_REPORT_S", slow_s(0.5))


HANGS = "a call of process lasts for more than 3 s"
HOWS = ["exit code 3", "SIGSEGV in string_at (__init__.py:", "SIGKILL, perhaps of the kernel", HANGS]


def ending(scene, how, bad):
    """A `process` class with a journal that ends its process for batches of partition 3 with one of these offsets."""
    directory = str(scene.journal.directory)

    def end():
        if how.startswith("exit"):
            os._exit(3)
        if how.startswith("a call"):
            time.sleep(600)
        if how.startswith("SIGSEGV"):
            ctypes.string_at(0)
        os.kill(os.getpid(), signal.SIGKILL)

    class Ending(Recorder):
        def __init__(self):
            super().__init__(directory)

        def __call__(self, batch):
            super().__call__(batch)
            if batch["partition"][0].as_py() == 3 and set(bad) & set(batch["offset"].to_pylist()):
                end()

    return Ending


@pytest.mark.parametrize("how", [HOWS[0], *(pytest.param(how, marks=pytest.mark.slow) for how in HOWS[1:])])
def test_a_function_that_ends_its_process_ends_the_job_with_how_and_where(filled, how):
    bad = TopicPartition(filled.topic, 3)
    config = {"max_poll_interval_ms": 3_000} if how == HANGS else {}
    process = ending(filled, how, [45])
    running = filled.start(workers=2, process=process, retries=1, batch_rows=20, config=config)
    with pytest.raises(ka.JobFailed) as failed:
        running.wait(timeout=slow_s(60))
    cause = failed.value.cause
    assert isinstance(cause, ProcessError)
    assert (cause.topic, cause.partition) == bad
    assert (cause.first_offset, cause.last_offset, cause.attempts) == (40, 59, 2)
    assert how in str(cause)
    assert filled.journal.counts()[bad][45] == 2
    assert filled.committed()[bad] == 40


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "async function"])
def test_under_skip_the_record_at_fault_is_found_and_no_other_is_lost(filled, kind):
    made = ending(filled, HOWS[0], [17])

    class Asynchronous(made):
        async def __call__(self, batch):
            await asyncio.sleep(0.05)
            super().__call__(batch)

    process = made if kind == "function" else Asynchronous
    running = filled.start(workers=2, process=process, retries=1, on_error="skip", until="latest")
    running.wait(timeout=slow_s(150))
    assert filled.journal.counts().keys() == set(filled.partitions)
    assert filled.committed() == filled.ends()
    calls = [e for e in filled.journal.entries() if e.partition.partition == 3]
    alone = [e for e in calls if e.offsets == (17,)]
    assert len(alone) == 1, "it was called with alone, once, and given up"
    survived = {o for e in calls if 17 not in e.offsets for o in e.offsets}
    assert survived == set(range(EACH)) - {17}


@pytest.mark.slow
def test_kills_from_outside_in_different_calls_are_no_tries(scene):
    scene.start(workers=2, retries=0)
    scene.under_load()
    for _ in range(4):
        scene.flowing()
        scene.kill(sorted(scene.pids("worker"))[0])
        time.sleep(0.5)
    until(lambda: len(scene.pids("worker")) == 2, 30, "the replacement")
    scene.flowing()
    assert scene.status().state == "running"
    scene.settle()
