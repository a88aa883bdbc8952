"""Calls of an async function by lasting tasks in one loop: at once, each key in order; they are cancelled at the end of the work."""

import asyncio
import threading

import pytest
from fakes.in_flight import P0, Flight
from fakes.loop import in_loop
from waiting import slow_s

from kafka_actors.errors import ProcessError
from kafka_actors.job.worker.task_callers import TaskCallers


class Served:
    """A flight whose callers have their loop in a thread of its own."""

    def __init__(self, target, **options):
        self.flight = Flight(target, make_callers=lambda calls: TaskCallers(calls, 4), **options)
        self.callers = self.flight.calls.callers
        self._thread = threading.Thread(target=self.flight.calls.run)

    async def __aenter__(self):
        self._thread.start()
        self.work = asyncio.ensure_future(self.callers.work())
        return self

    async def __aexit__(self, *error):
        self.work.cancel()
        await asyncio.gather(self.work, return_exceptions=True)
        self.callers.calls.stop()
        await asyncio.to_thread(self._thread.join, slow_s(10))
        assert not self._thread.is_alive()


@in_loop
async def test_calls_are_made_at_once_and_those_of_a_key_in_order():
    called, together, over = [], asyncio.Event(), threading.Event()

    async def call(message):
        called.append((message.key, message.offset))
        if len(called) == 3:
            together.set()
        await together.wait()
        if len(called) == 6:
            over.set()

    async with Served(call) as served:
        served.flight.reader.put(P0, 0, "abcaba")
        served.flight.calls.wake()
        assert await asyncio.to_thread(over.wait, slow_s(10))
    assert called[:3] == [(b"a", 0), (b"b", 1), (b"c", 2)]
    assert [offset for key, offset in called if key == b"a"] == [0, 3, 5]
    assert served.flight.processed() >= 5


@in_loop
async def test_what_ends_the_job_comes_out_of_work():
    async def call(message):
        raise ValueError("no good")

    async with Served(call) as served:
        served.flight.reader.put(P0, 0, "ab")
        served.flight.calls.wake()
        with pytest.raises(ProcessError, match="no good"):
            await served.work


@in_loop
async def test_what_ends_the_job_is_told_while_a_cancelled_call_is_in_hand():
    """It may take long to end, as one does that closes a session first."""
    began, go_on, told = asyncio.Event(), asyncio.Event(), threading.Event()

    async def call(message):
        if message.key == b"b":
            await began.wait()
            raise ValueError("no good")
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await go_on.wait()

    async with Served(call) as served:
        served.flight.calls.on_failure = lambda error: (served.flight.failures.append(error), told.set())
        served.flight.reader.put(P0, 0, "ab")
        served.flight.calls.wake()
        assert await asyncio.to_thread(told.wait, slow_s(10))
        assert not served.work.done()
        served.callers.calls.loop.call_soon_threadsafe(go_on.set)
        with pytest.raises(ProcessError, match="no good"):
            await served.work
        assert isinstance(served.flight.failures[0], ProcessError)


@in_loop
async def test_calls_in_hand_are_cancelled_at_the_end_and_move_nothing():
    began, cancelled = threading.Event(), threading.Event()

    async def call(message):
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with Served(call) as served:
        served.flight.reader.put(P0, 0, "a")
        served.flight.calls.wake()
        assert await asyncio.to_thread(began.wait, slow_s(10))
    assert cancelled.is_set()
    assert served.flight.processed() == 0


@in_loop
async def test_other_coroutines_of_the_users_run_in_the_same_loop():
    loops, over = [], threading.Event()

    async def call(message):
        loops.append(asyncio.get_running_loop())
        over.set()

    async def flush():
        loops.append(asyncio.get_running_loop())

    async with Served(call) as served:
        served.flight.reader.put(P0, 0, "a")
        served.flight.calls.wake()
        assert await asyncio.to_thread(over.wait, slow_s(10))
        await asyncio.to_thread(served.callers.calls.wait, flush())
    assert loops[0] is loops[1]
