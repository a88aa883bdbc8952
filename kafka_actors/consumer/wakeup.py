"""What wakes the user's side of a consumer. The IO thread keeps it as long as it runs: so it knows no consumer, or one
that nobody closed would never be noticed."""

from __future__ import annotations

import asyncio
import threading


class ThreadWakeup:
    """Lets one thread sleep until another has something for it."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> None:
        if not self._event.is_set():
            self._event.set()

    def clear(self) -> None:
        self._event.clear()

    def wait(self, timeout_s: float | None) -> None:
        self._event.wait(timeout_s)


class LoopWakeup:
    """The same for a task of `loop`, which is to be set before it sleeps."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    def __call__(self) -> None:
        """Called in the IO thread, and in those that fetch."""
        if self.loop is not None and not self._event.is_set():
            try:
                self.loop.call_soon_threadsafe(self._event.set)
            except RuntimeError:  # the user's loop was closed before the consumer
                pass

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            pass
