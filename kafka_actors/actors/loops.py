"""Event loops: one on a thread of its own; the tasks of one owner, of which one that fails tells its owner, and which all
end together; and how they wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["LoopThread", "Loops", "woken"]

R = TypeVar("R")


class LoopThread:
    """An event loop on a thread of its own, for the supervisor of a job in the driver, and for a status page."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R], timeout: float | None = None) -> R:
        """From another thread: waits for the result, so many seconds at most."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def close(self) -> None:
        """Ends both, also where the thread has not got to run the loop yet. Closing again changes nothing."""
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        if not self._thread.is_alive():
            self.loop.close()


class Loops:
    """`failed(error)` is called for a task that ends with an exception; a cancelled one ends in silence."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[Any]] = set()

    def go(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Runs it beside the others."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def cancel(self) -> None:
        """Ends all of them, except the one that asks."""
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    async def ended(self) -> None:
        """Cancels them and returns when they are over."""
        self.cancel()
        await asyncio.gather(*self._tasks - {asyncio.current_task()}, return_exceptions=True)


async def woken(event: asyncio.Event, limit_s: float) -> None:
    """Returns when the event is set, or after so many seconds; the others get a turn in any case."""
    try:
        async with asyncio.timeout(limit_s):
            if event.is_set():
                await asyncio.sleep(0)
            await event.wait()
    except TimeoutError:
        pass
