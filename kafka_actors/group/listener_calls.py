"""A queue of calls of a rebalance listener: one at a time, in order, each bounded by the deadlines of those behind it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

_FOREVER = float("inf")


MINIMUM = 1.0
"""Seconds that every call has, however late its turn comes: the listener must learn of everything."""


@dataclass(slots=True)
class ListenerCall:
    """A call to make, at most until `deadline`. `after` is called when it is over, however it ended.

    `yields`: it can be made again, so it is cancelled at once for a call that has a deadline.
    """

    make: Callable[[], Awaitable[None]]
    name: str
    deadline: float | None = None
    after: Callable[[], None] = lambda: None
    yields: bool = False
    start_by: float = _FOREVER
    """Time at which the call before it is cancelled: half of its own time is left then."""


class ListenerCalls:
    """Runs calls in order. An exception of a call goes to `on_error`; the calls behind it still run."""

    def __init__(self, clock: Callable[[], float], on_error: Callable[[Exception], None]) -> None:
        self._clock = clock
        self._on_error = on_error
        self._calls: deque[ListenerCall] = deque()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, call: ListenerCall) -> None:
        """Makes the call when it is its turn."""
        if call.deadline is not None:
            call.start_by = (self._clock() + call.deadline) / 2
        self._calls.append(call)
        self._idle.clear()
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def drained(self) -> None:
        """Returns when no call is running or waiting."""
        await self._idle.wait()

    async def close(self) -> None:
        """Cancels what runs and forgets the rest."""
        self._calls.clear()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            while self._calls:
                await self._one(self._calls[0])
                if self._calls:  # else closed meanwhile
                    self._calls.popleft().after()
        finally:
            self._idle.set()

    async def _one(self, call: ListenerCall) -> None:
        task = asyncio.ensure_future(_coroutine(call))
        earliest = self._clock() + MINIMUM
        try:
            while not task.done() and (timeout := self._limit(call, earliest) - self._clock()) > 0:
                self._changed.clear()
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait(
                    {task, changed},
                    timeout=None if timeout == _FOREVER else timeout,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                changed.cancel()
        finally:
            if not task.done():
                again = ", to be called again" if call.yields else ""
                log.warning("%s did not return in time: cancelled%s", call.name, again)
                task.cancel()
                await asyncio.wait({task}, timeout=1.0)
        if task.done() and not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._on_error(error)

    def _limit(self, call: ListenerCall, earliest: float) -> float:
        own = _FOREVER if call.deadline is None else call.deadline
        behind = (waiting.start_by for waiting in self._calls if waiting is not call)
        limit = min(own, *behind, _FOREVER)
        return earliest if call.yields and limit < _FOREVER else max(earliest, limit)


async def _coroutine(call: ListenerCall) -> None:
    await call.make()
