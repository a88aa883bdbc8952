"""Calls of an async function: those of different partitions overlap, those of one partition come in order.

All of them, `flush` and `close` run in one event loop of the processing thread, because the sessions and pools of the user's
object belong to that loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from kafka_actors.base.tasks import OwnedTasks
from kafka_actors.fetch import FetchedBytes
from kafka_actors.types import TopicPartition

from .processing_thread import ProcessingThread
from .user_function import UserFunction

__all__ = ["AsyncProcessing"]


class RecordQueue(Protocol):
    """The part of a `Fetcher` that `AsyncProcessing` uses."""

    async def next(self, timeout_s: float) -> FetchedBytes | None: ...


class AsyncProcessing:
    """Runs an async function over fetched items: `serve` in the processing thread, everything else in the worker's loop."""

    def __init__(
        self,
        processing: ProcessingThread,
        function: UserFunction,
        source: RecordQueue,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._processing = processing
        self._function = function
        self._source = source
        self._clock = clock
        self._calls: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._stopped = asyncio.Event()  # belongs to the loop of `serve`

    # ------------------------------------------------------------ in the processing thread

    def serve(self) -> None:
        """Runs the loop of the calls until `stop`, then closes the user's object."""
        with asyncio.Runner() as runner:
            self._calls.set_result(runner.get_loop())
            runner.run(self._until_stopped())
            self._function.close(runner.run)

    async def _until_stopped(self) -> None:
        await self._stopped.wait()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

    # ------------------------------------------------------------ in the worker's loop, and other threads

    def stop(self) -> None:
        """Ends `serve`, after the end of `work`."""
        self._calls.result().call_soon_threadsafe(self._stopped.set)

    def wait(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine of the user's, such as `flush`, in the loop of the calls. Blocks; for any other thread."""
        asyncio.run_coroutine_threadsafe(work, self._calls.result()).result()

    async def work(self) -> None:
        """Takes fetched items, and batches whose linger is over, until a call raises what ends the job. Cancels the calls in
        hand at its end."""
        loop = self._calls.result()
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
