"""Jobs whose function, or its constructor, raises, hangs, or returns what it should not."""

import asyncio
import ctypes
import os
import signal
import time

import pytest
from atomic_files import write_atomically
from jobs.journal import Recorder
from pace import this_run
from waiting import at_pace_s, slow_s, until

import kafka_actors as ka
from kafka_actors.errors import ProcessError
from kafka_actors.types import TopicPartition

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

EACH = 60


def raising(scene, partition, offset, error=None):
    """A `process` class with a journal that raises for batches that hold this offset, again and again."""
    directory = str(scene.journal.directory)

    class Raising(Recorder):
        def __init__(self):
            super().__init__(directory)

        def __call__(self, batch):
            super().__call__(batch)
            if batch["partition"][0].as_py() == partition and offset in batch["offset"].to_pylist():
                raise error or ValueError(f"no good: {offset}")

    return Raising


def attempts_at(scene, partition, offset):
    """Number of times that `process` was given this offset."""
    return scene.journal.counts()[partition][offset]


def test_a_function_that_raises_ends_the_job_with_where_and_why(filled):
    bad = TopicPartition(filled.topic, 3)
    running = filled.start(workers=2, process=raising(filled, 3, 45), retries=2, batch_rows=20)
    with pytest.raises(ka.JobFailed) as failed:
        running.wait(timeout=slow_s(60))
    cause = failed.value.cause
    assert isinstance(cause, ProcessError)
    assert (cause.topic, cause.partition) == bad
    assert (cause.first_offset, cause.last_offset) == (40, 59)
    assert cause.attempts == 3 == attempts_at(filled, bad, 45)
    assert isinstance(cause.__cause__, ValueError)
    assert str(cause.__cause__) == "no good: 45"
    assert filled.committed()[bad] == 40, "the first of the failed batch"
    assert filled.cluster.describe_group(filled.group).members == [], "it has left the group"
    assert running.status().state == "failed"


def test_of_process_message_the_error_names_the_record(filled):
    bad = TopicPartition(filled.topic, 5)

    def each(message):
        if message.partition == 5 and message.offset == 17:
            raise KeyError("seventeen")

    running = filled.start(workers=2, process_message=each, retries=1)
    with pytest.raises(ka.JobFailed) as failed:
        running.wait(timeout=slow_s(60))
    cause = failed.value.cause
    assert (cause.partition, cause.first_offset, cause.last_offset, cause.attempts) == (5, 17, 17, 2)
    assert isinstance(cause.__cause__, KeyError)
    assert filled.committed()[bad] == 17


def test_on_error_skip_goes_on_behind_what_failed(filled):
    directory = str(filled.journal.directory)

    class Each(Recorder):
        def __init__(self):
            super().__init__(directory)

        def __call__(self, message):
            if message.partition == 5 and message.offset == 17:
                raise KeyError("seventeen")
            line = f'{{"at": {time.monotonic()}, "pid": {os.getpid()}, "topic": "{message.topic}", '
            line += f'"partition": {message.partition}, "offsets": [[{message.offset}, {message.offset}]]}}\n'
            os.write(self._file, line.encode())

    running = filled.start(workers=2, process_message=Each, retries=0, on_error="skip", until="latest")
    running.wait(timeout=slow_s(60))
    assert filled.journal.missing(filled.ends()) == {TopicPartition(filled.topic, 5): [17]}
    assert filled.journal.duplicates() == {}
    assert filled.committed() == filled.ends()


def test_a_failed_call_waits_as_long_as_it_is_told_and_other_partitions_go_on(filled):
    bad = TopicPartition(filled.topic, 3)
    patient = ka.Backoff(initial_ms=250_000, max_ms=250_000)  # less than max_poll_interval_ms
    running = filled.start(
        workers=1, process=raising(filled, 3, 45), retries=1, retry_backoff=patient, batch_rows=20
    )
    expected = {**filled.ends(), bad: 40}
    until(lambda: filled.committed() == expected, slow_s(40), "all but the records that wait")

    def reason():
        return next(p.reason for p in running.status().partitions if (p.topic, p.partition) == bad)

    until(lambda: reason() == "retrying: offset 40, ValueError", slow_s(20), "the reason")
    running.stop()
    assert attempts_at(filled, bad, 45) == 1
    assert filled.committed() == expected


def test_a_result_that_is_not_none_is_a_type_error(filled):
    running = filled.start(workers=1, process=lambda batch: batch.num_rows, retries=3)
    with pytest.raises(ka.JobFailed) as failed:
        running.wait(timeout=slow_s(60))
    assert isinstance(failed.value.cause, ProcessError)
    assert isinstance(failed.value.cause.__cause__, TypeError)
    assert "the job has no sink=" in str(failed.value.cause.__cause__)
    assert failed.value.cause.attempts == 1, "no retry can mend it"


def test_sys_exit_in_a_worker_is_an_error_of_the_call(filled):
    running = filled.start(workers=1, process=raising(filled, 3, 45, SystemExit(3)), retries=1)
    with pytest.raises(ka.JobFailed) as failed:
        running.wait(timeout=slow_s(60))
    assert isinstance(failed.value.cause, ProcessError)
    assert failed.value.cause.attempts == 2


def test_a_function_that_hangs_is_replaced_and_the_group_never_rebalances(scene, tmp_path):
    """Asleep, and then in C with the interpreter: one that holds that answers no ping either, and its time is counted from its last
    answer, a second before at most."""
    asleep, in_c = tmp_path / "asleep", tmp_path / "in C"
    directory = str(scene.journal.directory)

    class Hanging(Recorder):
        def __init__(self):
            super().__init__(directory)

        def __call__(self, batch):
            super().__call__(batch)
            for told, hang in ((asleep, time.sleep), (in_c, ctypes.PyDLL(None).sleep)):
                if batch["partition"][0].as_py() == 3 and told.exists() and not told.read_text():
                    write_atomically(told, str(os.getpid()))
                    hang(600)  # unlike a function of CDLL, one of PyDLL keeps the interpreter's lock

    limit_s = max(5.0, at_pace_s(2))
    scene.start(workers=3, process=Hanging, config={"max_poll_interval_ms": round(limit_s * 1000)})
    scene.under_load()
    scene.flowing()
    generation = scene.status().group.generation
    for told, before_s in ((asleep, 0.5), (in_c, 1.5)):
        scene.spread(3)
        told.write_text("")
        goes_on_without_the_hung(scene, told, limit_s, before_s)
    assert scene.status().group.generation == generation
    scene.settle()
    assert scene.cluster.generations(scene.group)[-1] == generation


def goes_on_without_the_hung(scene, told, limit_s, before_s):
    """The process whose number stands in `told` has the maximal poll interval, less `before_s` at most, and then its partitions go to
    others."""
    until(lambda: told.read_text(), 30, "the function to hang")
    at, pid = time.monotonic(), int(told.read_text())
    hung = max(e.at for e in scene.journal.entries() if e.pid == pid)  # it has written that before it hangs
    (stuck,) = [name for name, p in scene.pids("worker").items() if p == pid]
    scene.forgive(pid)
    partitions = scene.owned_by(stuck)
    until(
        lambda: scene.journal.first_after(at, partitions, scene.others(pid)).keys() == partitions,
        20,
        "its partitions to be worked on by others",
    )
    went_on = at + max(scene.journal.first_after(at, partitions, scene.others(pid)).values())
    print(f"its partitions went on {went_on - hung:.1f} s after it hung")
    assert went_on - hung >= limit_s - before_s, "it has its maximal poll interval"
    assert this_run().quiet_s(at + limit_s, max(went_on, at + limit_s)) <= 3, "and no more"
    assert pid not in scene.pids().values()
    scene.flowing()


def test_what_the_constructor_raises_is_raised_by_start(scene):
    class Broken:
        def __init__(self):
            raise FileNotFoundError("no such model")

        def __call__(self, batch):
            pass

    with pytest.raises(FileNotFoundError, match=r"(?m)^no such model$") as raised:
        scene.start(workers=2, process=Broken)
    assert type(raised.value) is FileNotFoundError
    line = Broken.__init__.__code__.co_firstlineno + 1
    assert f"raised by the constructor of Broken (test_job_errors.py, line {line})" in raised.value.__notes__
    assert scene.cluster.describe_group(scene.group).members == []


@pytest.mark.parametrize("odd", [SystemExit(3), StopIteration()], ids=repr)
def test_a_constructor_that_exits_or_stops_an_iteration_is_heard_of_at_once(scene, odd):
    class Odd:
        def __init__(self):
            raise odd

        def __call__(self, batch):
            pass

    with pytest.raises(RuntimeError, match=type(odd).__name__):
        scene.start(workers=1, process=Odd)


def test_a_flush_that_exits_ends_the_job(filled):
    class Leaving:
        def __call__(self, batch):
            pass

        def flush(self):
            raise SystemExit(3)

    with pytest.raises(ka.JobFailed, match=r"Leaving\.flush: SystemExit: 3") as raised:
        filled.start(workers=1, process=Leaving).wait(timeout=slow_s(60))
    assert isinstance(raised.value.cause, ka.errors.SinkError)


def test_a_constructor_that_ends_its_process_is_tried_again(filled, tmp_path):
    """How often, and with which pauses, is shown on a fake runtime: tests/unit/job/test_start_and_patience.py."""
    died = tmp_path / "died"

    class Deadly:
        def __init__(self):
            if not died.exists():
                died.write_text("")
                os.kill(os.getpid(), signal.SIGKILL)

        def __call__(self, batch):
            pass

    running = filled.start(workers=1, process=Deadly, until="latest")
    assert "worker-0.1 died" in "".join(entry.text for entry in running.status().timeline)
    running.wait(timeout=slow_s(60))
    assert filled.committed() == filled.ends()


def test_async_functions_overlap_over_partitions_and_keep_the_order_within_one(filled):
    directory = str(filled.journal.directory)

    class Async(Recorder):
        def __init__(self):
            super().__init__(directory)
            self.under_way = set()

        async def __call__(self, batch):
            partition = batch["partition"][0].as_py()
            assert partition not in self.under_way
            self.under_way.add(partition)
            super().__call__(batch)
            await asyncio.sleep(0.2)
            self.under_way.remove(partition)

    running = filled.start(workers=1, process=Async, until="latest", batch_rows=10)
    began = time.monotonic()
    running.wait(timeout=slow_s(60))
    took = this_run().quiet_s(began, time.monotonic())
    assert filled.journal.missing(filled.ends()) == {}
    assert filled.journal.duplicates() == {}
    assert filled.committed() == filled.ends()
    calls = filled.journal.entries()
    assert len(calls) == 12 * EACH / 10
    for partition in filled.partitions:
        offsets = [o for e in calls if e.partition == partition for o in e.offsets]
        assert offsets == sorted(offsets)
    print(f"{len(calls)} calls of 0.2 s in {took:.1f} s")
    assert took < len(calls) * 0.2, "calls of several partitions overlap"


def test_async_calls_of_a_partition_never_overlap_where_a_linger_holds_batches_back(scene):
    directory = str(scene.journal.directory)

    class Async(Recorder):
        def __init__(self):
            super().__init__(directory)
            self.under_way = set()

        async def __call__(self, batch):
            partition = batch["partition"][0].as_py()
            assert partition not in self.under_way, "two calls of a partition at once"
            self.under_way.add(partition)
            super().__call__(batch)
            await asyncio.sleep(0.15)
            self.under_way.remove(partition)

    scene.start(workers=2, process=Async, batch_rows=1000, batch_linger_ms=100)
    scene.under_load()
    scene.flowing()
    time.sleep(1)
    assert scene.settle().total() == 0
    sizes = [len(e.offsets) for e in scene.journal.entries()]
    print(f"{len(sizes)} calls, of {sum(sizes) / len(sizes):.0f} records on average")
    for partition in scene.partitions:
        offsets = [o for e in scene.journal.entries() if e.partition == partition for o in e.offsets]
        assert offsets == sorted(offsets)


def test_close_of_a_class_is_called_once_in_each_worker(filled, tmp_path, monkeypatch):
    monkeypatch.setattr("kafka_actors.job.supervisor.supervisor.CLOSE_S", slow_s(2))
    monkeypatch.setattr("kafka_actors.job.supervisor.actor_manager.QUIT_S", slow_s(2))
    closed = tmp_path / "closed"
    closed.mkdir()

    class Closing:
        def __call__(self, batch):
            pass

        def close(self):
            (closed / str(os.getpid())).write_text("")

    running = filled.start(workers=2, process=Closing)
    pids = filled.worker_pids()
    until(lambda: filled.committed() == filled.ends(), 30, "everything committed")
    running.stop()
    assert {int(path.name) for path in closed.iterdir()} == pids
