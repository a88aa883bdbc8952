"""Calls of an async function: those of different partitions overlap, those of one partition come in order.

All of them, `flush` and `close` run in one event loop of the processing thread, because the sessions and pools of the user's
object belong to that loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from kafka_actors.base.tasks import OwnedTasks
from kafka_actors.fetch import FetchedBytes
from kafka_actors.types import TopicPartition

from .processing_thread import ProcessingThread
from .user_function import UserFunction

__all__ = ["AsyncProcessing", "CallLoop"]


class RecordQueue(Protocol):
    """The part of a `Fetcher` that `AsyncProcessing` uses."""

    async def next(self, timeout_s: float) -> FetchedBytes | None: ...


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns what makes uvloop's event loop where that is installed, as Ray does for its own actors, and RAY_USE_UVLOOP=0 doesn't forbid it;
    None for the standard library's."""
    if os.environ.get("RAY_USE_UVLOOP", "1").lower() in ("0", "false"):
        return None
    try:
        import uvloop
    except ImportError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made


class CallLoop:
    """Event loop of an async function's calls, in the processing thread, with `flush` and `close`."""

    def __init__(self, function: UserFunction) -> None:
        self._function = function
        self._loop: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._stopped = asyncio.Event()  # belongs to the loop of `serve`

    @property
    def running(self) -> asyncio.AbstractEventLoop | None:
        """The loop, None before it runs."""
        return self._loop.result() if self._loop.done() else None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which is waited for. For any other thread."""
        return self._loop.result()

    def serve(self) -> None:
        """Runs the loop of the calls until `stop`, then closes the user's object."""
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            self._loop.set_result(runner.get_loop())
            runner.run(self._until_stopped())
            self._function.close(runner.run)

    async def _until_stopped(self) -> None:
        await self._stopped.wait()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

    def stop(self) -> None:
        """Ends `serve`, after the end of the work in it. For any thread."""
        self.loop.call_soon_threadsafe(self._stopped.set)

    def wait(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine of the user's, such as `flush`, in the loop of the calls. Blocks; for any other thread."""
        asyncio.run_coroutine_threadsafe(work, self.loop).result()


class AsyncProcessing:
    """Runs an async function over fetched items. `calls`: the loop of its calls."""

    def __init__(
        self,
        processing: ProcessingThread,
        function: UserFunction,
        source: RecordQueue,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._processing = processing
        self._source = source
        self._clock = clock
        self.calls = CallLoop(function)

    async def work(self) -> None:
        """Takes fetched items, and batches whose linger is over, until a call raises what ends the job. Cancels the calls in
        hand at its end."""
        loop = self.calls.loop
        last: dict[TopicPartition, asyncio.Task[None]] = {}
        failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        calls = OwnedTasks(lambda error: None if failure.done() else failure.set_exception(error))

        async def in_order(before: asyncio.Task[None] | None, item: FetchedBytes | TopicPartition) -> None:
            if before is not None:
                await asyncio.wait([before])
            await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(self._processing.work_async(item), loop)
            )

        def put(partition: TopicPartition, item: FetchedBytes | TopicPartition) -> None:
            last[partition] = calls.create_task(in_order(last.get(partition), item))

        try:
            while not failure.done():
                last = {partition: task for partition, task in last.items() if not task.done()}
                fetched = await self._source.next(self._processing.idle_s(last))
                if fetched is not None:
                    put(fetched.partition, fetched)
                # A partition with a call in hand gets its turn after that.
                for partition, due in self._processing.lingering().items():
                    if due <= self._clock() and partition not in last:
                        put(partition, partition)
            await failure
        finally:
            calls.cancel()
