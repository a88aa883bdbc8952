"""A thread with an event loop of its own: what runs there goes on whatever the user's code does."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
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
    """Runs coroutines for other threads, from when it is made until `stop`.

    A daemon: a client that nobody closed does not keep its program alive. After a fork the child has no such thread:
    there `alive` is False, `submit` and `run` raise, and `stop` does nothing.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs, in this process."""
        return self._thread.is_alive()

    @property
    def inside(self) -> bool:
        """Whether this is the thread."""
        return threading.get_ident() == self._thread.ident

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Starts a coroutine in the loop. Raises `RuntimeError` where the thread is not `alive`: nothing would come."""
        if not self.alive:
            work.close()
            raise RuntimeError(f"the thread {self._thread.name} has ended, or was left behind by a fork")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
        """Runs a coroutine in the loop and waits for its result, `timeout` seconds at most; from another thread.

        The end of the wait, by `TimeoutError` or by `KeyboardInterrupt`, doesn't end the work. Raises as `submit` too.
        """
        return self.submit(work).result(timeout)

    def post(self, call: Callable[[], object]) -> None:
        """Calls a function in the loop, soon."""
        self.loop.call_soon_threadsafe(call)

    def stop(self, seconds: float = 5.0) -> bool:
        """Ends the loop, cancels what still runs in it, and waits for the thread, `seconds` at most.

        Returns whether it ended. Again: changes nothing.
        """
        if self.alive:
            with suppress(RuntimeError):  # it closes its loop in this moment
                self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(seconds)
        return not self.alive

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
