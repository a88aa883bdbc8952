"""An async function's calls: those of different partitions overlap, within a partition one batch at a time.

They run in one event loop on the processing's thread, from the first call to the object's `close`: the sessions and pools
that it has belong to that loop.
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
    """What it needs of the fetcher."""

    async def next(self, timeout_s: float) -> FetchedBytes | None: ...


class AsyncProcessing:
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
        self._stopped = asyncio.Event()  # belongs to the loop of the calls

    # ------------------------------------------------------------ on the processing's thread

    def serve(self) -> None:
        """Until `stop`; then the object is closed."""
        with asyncio.Runner() as runner:
            self._calls.set_result(runner.get_loop())
            runner.run(self._until_stopped())
            self._function.close(runner.run)

    async def _until_stopped(self) -> None:
        await self._stopped.wait()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

    # ------------------------------------------------------------ from others

    def stop(self) -> None:
        """Behind the end of `work`."""
        self._calls.result().call_soon_threadsafe(self._stopped.set)

    def wait(self, work: Coroutine[Any, Any, None]) -> None:
        """From any other thread: blocks until a coroutine of the user's, such as `flush`, has run in the calls' loop."""
        asyncio.run_coroutine_threadsafe(work, self._calls.result()).result()

    async def work(self) -> None:
        """Takes what comes, and what a linger held back long enough, until a call raises what ends the job. Calls that
        are in hand when it ends are cancelled."""
        there = self._calls.result()
        last: dict[TopicPartition, asyncio.Task[None]] = {}
        failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        calls = OwnedTasks(lambda error: None if failure.done() else failure.set_exception(error))

        async def in_order(before: asyncio.Task[None] | None, item: FetchedBytes | TopicPartition) -> None:
            if before is not None:
                await asyncio.wait([before])
            await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(self._processing.work_async(item), there)
            )

        def put(partition: TopicPartition, item: FetchedBytes | TopicPartition) -> None:
            last[partition] = calls.create_task(in_order(last.get(partition), item))

        try:
            while not failure.done():
                last = {partition: task for partition, task in last.items() if not task.done()}
                fetched = await self._source.next(self._processing.patience(last))
                if fetched is not None:
                    put(fetched.partition, fetched)
                # One that is being worked on gets its turn when that is done.
                for partition, due in self._processing.lingering().items():
                    if due <= self._clock() and partition not in last:
                        put(partition, partition)
            await failure
        finally:
            calls.cancel()
