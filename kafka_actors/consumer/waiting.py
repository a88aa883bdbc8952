"""Waiting in the calls of a consumer: the time that a call has, the steps in which it waits, and the wake-ups of both surfaces.

`Consumer` waits in the user's thread, `AsyncConsumer` in a task of the user's event loop. The calls themselves are written once, as
generators (`ConsumerOperations`): wherever one has to wait it yields a step, and is sent the step's result, or thrown its
error. Each surface knows how to wait for each kind of step.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeAlias, TypeVar

from kafka_actors.base.arguments import seconds_of
from kafka_actors.errors import UsageError

T = TypeVar("T")


class CallLimit:
    """The time that one call may take, connecting included: `timeout_ms` (None: the default) from now on."""

    __slots__ = ("_end", "seconds")

    def __init__(self, timeout_ms: Any = None) -> None:
        self.seconds = seconds_of(timeout_ms)
        self._end = time.monotonic() + self.seconds

    def left(self) -> float:
        """Returns the seconds that are left, 0 where the time is over."""
        return max(self._end - time.monotonic(), 0.0)


class Call(NamedTuple):
    """Run a coroutine in the IO thread, within the limit and `grace_s`; its result is sent back."""

    work: Coroutine[Any, Any, Any]
    limit: CallLimit
    grace_s: float = 0.0


class Done(NamedTuple):
    """Wait for the end of a future of the IO thread, None: without end; whether it is done is sent back."""

    future: Future[None]
    timeout_s: float | None


class Notify(NamedTuple):
    """Call a method of the user's listener; `AsyncConsumer` awaits its result."""

    call: Callable[[], object]


class Block(NamedTuple):
    """Call a function that blocks for a moment; `AsyncConsumer` does so in another thread."""

    call: Callable[[], object]


Step: TypeAlias = Call | Done | Notify | Block
Steps: TypeAlias = Generator[Step, Any, T]


class OneReader:
    """Lets one thread at a time read from a consumer. Another one is refused, as by Java's consumer (ConcurrentModificationException): each would
    take the wake-ups and the batches in hand of the other. A listener's calls come from the thread that reads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise UsageError(
                "another thread is reading from this Consumer: it is for one thread at a time; give each thread a Consumer of its own"
            )

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class OneTask:
    """Lets one task at a time read from an `AsyncConsumer`: see `OneReader`. A listener's calls are made in the task that reads."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._calls = 0

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if self._calls and self._task is not task:
            raise UsageError(
                "another task is reading from this AsyncConsumer: it is for one task at a time; await the call under way, or cancel it and "
                "await its end, or give each task a consumer of its own"
            )
        self._task = task
        self._calls += 1

    def __exit__(self, *error: object) -> None:
        self._calls -= 1
        if not self._calls:
            self._task = None


# The IO thread keeps a wake-up, this one or a `ThreadWakeup`, as long as it runs. So wake-ups have no reference to their consumer: one
# that nobody closed would never be noticed otherwise.


class LoopWakeup:
    """Lets a task of `loop` sleep until another thread has something for it. Set `loop` before the first wait."""

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
        """Forgets the calls so far."""
        self._event.clear()

    async def wait(self, timeout_s: float | None) -> None:
        """Sleeps until a call, or until the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            pass
