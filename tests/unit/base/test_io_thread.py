"""A thread with an event loop, and the wake-up of a thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Callable

import pytest
from fakes.interrupts import TAKING_A_CONDITION, interrupted_behind

from kafka_actors.base.io_thread import IoFuture, IoThread, ThreadWakeup, ended_within


async def answer() -> int:
    return 42


def test_work_runs_in_the_thread_and_its_result_comes_back() -> None:
    io = IoThread("test")

    async def there() -> tuple[bool, str]:
        return io.inside, threading.current_thread().name

    assert io.run(there()) == (True, "test")
    assert not io.inside
    assert io.alive
    assert io.stop()
    assert not io.alive


def test_the_end_of_a_wait_is_not_the_end_of_the_work() -> None:
    io = IoThread("test")
    done, may = threading.Event(), asyncio.Event()

    async def slow() -> None:
        await may.wait()
        done.set()

    with pytest.raises(TimeoutError):
        io.run(slow(), timeout=0.01)
    io.post(may.set)
    assert done.wait(10)
    io.stop()


@pytest.mark.parametrize("wait", [IoFuture.result, IoFuture.exception])
def test_a_wait_that_a_signals_handler_ends_anywhere_does_not_hold_up_the_thread(
    wait: Callable[..., object],
) -> None:
    """A handler runs behind any call in the main thread, also behind the one that takes the lock of a `Condition`."""
    io = IoThread("test")
    for place in (TAKING_A_CONDITION, IoFuture._wait):
        future = io.submit(asyncio.sleep(0.05))
        with interrupted_behind(place):
            wait(future)
        assert io.run(answer(), timeout=10) == 42
    assert io.stop()


def test_work_that_is_given_up_is_cancelled_in_the_thread() -> None:
    io, cancelled = IoThread("test"), threading.Event()

    async def endless() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    begun = threading.Event()
    future = io.submit(endless())
    assert begun.wait(10)
    assert future.cancel()
    assert cancelled.wait(10)
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(10)
    assert ended_within(future, 10)
    assert io.run(answer()) == 42
    assert io.stop()


def test_a_result_is_there_for_each_that_waits_and_an_error_is_raised_as_it_is() -> None:
    async def fails() -> None:
        raise TimeoutError("its own")

    io = IoThread("test")
    good, bad = io.submit(answer()), io.submit(fails())
    assert [good.result(10), good.result(), good.result(0)] == [42] * 3
    assert ended_within(bad, 10)
    assert str(bad.exception(0)) == "its own"
    with pytest.raises(TimeoutError, match="its own"):
        bad.result()
    io.stop()


def test_stopping_cancels_what_still_runs() -> None:
    io = IoThread("test")

    async def endless() -> None:
        await asyncio.Event().wait()

    left = io.submit(endless())
    assert io.stop()
    assert left.cancelled()
    assert io.loop.is_closed()
    assert io.stop()


def test_a_thread_that_has_ended_takes_no_work() -> None:
    io = IoThread("test")
    io.stop()
    with pytest.raises(RuntimeError, match="the thread test has ended"):
        io.run(answer())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_fork_hears_that_the_thread_is_not_there() -> None:
    io = IoThread("test")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            io.run(answer(), timeout=10)
        except RuntimeError:
            status = 0 if io.stop(0) and not io.alive else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert io.run(answer()) == 42
    io.stop()


def test_a_thread_is_stopped_before_its_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that ends at once: the thread would be left with a loop that is closed under it."""
    asked = threading.Event()
    made = asyncio.new_event_loop()
    run, tell = made.run_forever, made.call_soon_threadsafe
    ended = []

    def late() -> None:
        asked.wait(5)
        run()
        ended.append(True)

    def told(*args, **kwargs):
        asked.set()
        return tell(*args, **kwargs)

    monkeypatch.setattr(made, "run_forever", late)
    monkeypatch.setattr(made, "call_soon_threadsafe", told)
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: made)
    thread = IoThread("test")
    assert thread.stop()
    assert ended[0]
    assert made.is_closed()
    assert thread.stop()


async def endless() -> None:
    await asyncio.Event().wait()


class Ending:
    """A thread whose only task ends when the test lets it."""

    def __init__(self) -> None:
        self.io = IoThread("test")
        self.may, self.cancelled, self.ended = asyncio.Event(), threading.Event(), threading.Event()
        self.task = self.io.submit(self._work())

    async def _work(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
            await self.may.wait()
            self.ended.set()

    def let(self) -> None:
        self.io.loop.call_soon_threadsafe(self.may.set)


def test_a_thread_that_is_ending_takes_no_work() -> None:
    ending = Ending()
    assert not ending.io.stop(0)
    assert ending.cancelled.wait(10)
    with pytest.raises(RuntimeError, match="the thread test has ended"):
        ending.io.submit(endless())
    ending.io.post(ending.io.loop.stop)  # nothing comes of it
    assert not ending.io.stop(0)
    ending.let()
    assert ending.io.stop()
    assert ending.ended.is_set()
    assert ending.io.loop.is_closed()
    ending.io.post(endless)


def test_a_second_stop_does_not_cut_the_end_of_tasks_short() -> None:
    ending = Ending()
    for _ in range(3):
        assert not ending.io.stop(0)
    assert ending.cancelled.wait(10)
    assert not ending.io.stop(0)
    ending.let()
    assert ending.io.stop()
    assert ending.ended.is_set()


def test_what_is_submitted_while_the_loop_ends_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    made = asyncio.new_event_loop()
    run = made.run_forever
    threads: list[IoThread] = []
    begun = threading.Event()
    left = []

    def ends_by_itself() -> None:
        begun.wait(10)
        monkeypatch.undo()
        run()
        left.append(threads[0].submit(endless()))

    monkeypatch.setattr(made, "run_forever", ends_by_itself)
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: made)
    threads.append(IoThread("test"))
    made.call_soon_threadsafe(made.stop)
    begun.set()
    threads[0]._thread.join(10)
    assert left[0].cancelled()
    assert made.is_closed()


def test_tasks_that_others_begin_as_they_end_are_cancelled_too() -> None:
    io = IoThread("test")
    begun = []

    async def begins_another() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            begun.append(asyncio.create_task(endless()))

    io.submit(begins_another())
    assert io.stop()
    assert begun[0].cancelled()


def test_no_loop_is_left_where_the_system_gives_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    made = asyncio.new_event_loop()

    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio, "new_event_loop", lambda: made)
    monkeypatch.setattr(threading.Thread, "start", no_more)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        IoThread("test")
    assert made.is_closed()


LONG_S = 60.0


def test_a_call_from_before_the_wait_ends_it_and_counts_once():
    wakeup = ThreadWakeup()
    wakeup()
    wakeup()
    began = time.monotonic()
    wakeup.wait(LONG_S)
    assert time.monotonic() - began < LONG_S / 2
    wakeup.wait(0.001)  # ends by its own limit
    wakeup()
    wakeup.clear()
    assert wakeup._lock.locked()


def test_many_threads_that_call_at_once_wake_the_one_that_sleeps():
    wakeup, calls = ThreadWakeup(), [0] * 4
    over = threading.Event()

    def call(number):
        while not over.is_set():
            wakeup()
            calls[number] += 1

    threads = [threading.Thread(target=call, args=[number]) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for _ in range(500):
        wakeup.wait(None)
    over.set()
    for thread in threads:
        thread.join()
    assert all(calls)
