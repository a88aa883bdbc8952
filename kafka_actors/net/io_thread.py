"""A thread with an event loop of its own: heartbeats and fetching go on there whatever the user's code does."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def ended_within(future: concurrent.futures.Future[Any], seconds: float | None) -> bool:
    """Whether the future is done, however it ended, after a wait of so many seconds at most; None waits without end.

    `result(seconds)` alone doesn't tell the end of its time from a `TimeoutError` of the work, nor from an end in that moment.
    """
    try:
        future.exception(seconds)
    except (TimeoutError, concurrent.futures.CancelledError):
        pass
    return future.done()


class IoThread:
    """Runs coroutines for other threads. A daemon: a client that nobody closed does not keep its program alive."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Starts a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def post(self, call: Callable[[], object]) -> None:
        """Calls a function in the loop, soon."""
        self.loop.call_soon_threadsafe(call)

    @property
    def inside(self) -> bool:
        """Whether this is the thread."""
        return threading.get_ident() == self._thread.ident

    def stop(self, seconds: float = 5.0) -> bool:
        """Ends the loop and waits for its thread, for so long. Returns whether it ended. Again: changes nothing."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self.loop.close()
