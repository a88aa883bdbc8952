"""`TaskCallers`: calls of an async function by as many lasting tasks as the job's `concurrency`.

They share one event loop of the processing thread with `flush` and `close`, because the sessions and pools of the user's object belong
to that loop. Records are admitted in that loop, too.
"""

from __future__ import annotations

import asyncio
from collections import deque

from kafka_actors.base.tasks import this_task_is_cancelled

from .async_processing import CallLoop
from .concurrent_calls import ConcurrentCalls
from .machines.record_window import ConcurrentCall
from .processing_thread import IDLE_S, noted
from .user_function import CallFailed

__all__ = ["TaskCallers"]


class TaskCallers:
    """Runs an async function over the records in flight. `calls`: the loop of its calls."""

    def __init__(self, calls: ConcurrentCalls, tasks: int) -> None:
        self._calls = calls
        self._function = calls.function
        self._tasks = tasks
        self.calls = CallLoop(calls.function)
        self._woken = asyncio.Event()
        self._idle: deque[asyncio.Future[None]] = deque()

    async def _run(self) -> None:
        """Admits records and makes calls until one raises what ends the job, or this is cancelled."""
        tasks = [asyncio.ensure_future(self._admit())]
        tasks += [asyncio.ensure_future(self._make_calls()) for _ in range(self._tasks)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                if (error := task.exception()) is not None:
                    self._calls.on_failure(error)  # at once: calls that are cancelled may take long to end
        finally:
            self._calls.stopped = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    async def _admit(self) -> None:
        while True:
            self._woken.clear()
            if self._calls.admit_some():
                await asyncio.sleep(0)  # callers begin
                continue
            try:
                async with asyncio.timeout(self._calls.look(IDLE_S)):
                    await self._woken.wait()
            except TimeoutError:
                continue

    def wake_callers(self, ready: int) -> None:
        """Has idle callers look for calls; in the loop."""
        while ready > 0 and self._idle:
            caller = self._idle.popleft()
            if not caller.done():
                caller.set_result(None)
                ready -= 1

    async def _make_calls(self) -> None:
        while True:
            call = self._calls.take()
            if call is None:
                await self._ready()
            else:
                self._calls.ended(call, await self._made(call))

    async def _ready(self) -> None:
        caller = asyncio.get_running_loop().create_future()
        self._idle.append(caller)
        await caller

    async def _made(self, call: ConcurrentCall) -> CallFailed | None:
        with self._calls.span(call) as span:
            try:
                await self._call(call)
            except CallFailed as failure:
                if this_task_is_cancelled():
                    raise asyncio.CancelledError from failure  # the call neither returned nor failed
                return noted(failure, span)
        return None

    async def _call(self, call: ConcurrentCall) -> None:
        rows, batch, messages = call.rows, call.chunk.batch, self._calls.messages
        if messages is None:
            await self._function.call_async(call.batch, call.attempts + 1)
        else:
            for message in messages.of(batch, rows):
                if (row := call.next_row()) is None:
                    break  # others make the rest: `look`, in this loop too, has found that this takes long
                await self._function.call_message_async(message, batch, row)

    # ------------------------------------------------------------ in the worker's loop, and other threads

    def run(self) -> None:
        """Serves: the loop of an async function's calls runs there."""
        self.calls.serve()

    def wake(self) -> None:
        """Has the loop look for records. For any thread."""
        if (loop := self.calls.running) is not None:
            loop.call_soon_threadsafe(self._woken.set)

    async def work(self) -> None:
        """Makes calls until one raises what ends the job. Cancels the calls in hand at its end."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._run(), self.calls.loop))
