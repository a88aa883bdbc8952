"""Asyncio tasks with an owner, which is notified when one fails and cancels them together; work in a thread; and a wait with a limit."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import logging
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextvars import copy_context
from typing import Any, TypeVar

__all__ = [
    "SILENT_S",
    "Broadcast",
    "OwnedTasks",
    "carried_out_async",
    "in_thread",
    "this_task_is_cancelled",
    "warn_later",
    "warned_when_slow",
    "woken",
]

R = TypeVar("R")

SILENT_S = 2.0
"""Seconds for which a call may wait before it logs what for."""


async def warn_later(logger: logging.Logger, reason: Callable[[], str]) -> None:
    """Logs, after `SILENT_S`, what a call waits for. Whoever waits cancels it."""
    await asyncio.sleep(SILENT_S)
    logger.warning("%s", reason())


@contextlib.contextmanager
def warned_when_slow(logger: logging.Logger, reason: Callable[[], str]) -> Iterator[None]:
    """Logs what the block waits for, if it takes longer than `SILENT_S`."""
    warning = asyncio.ensure_future(warn_later(logger, reason))
    try:
        yield
    finally:
        warning.cancel()


class OwnedTasks:
    """Runs tasks for one owner. `failed(error)` is called when a task ends with an exception, but not when it is cancelled."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[Any]] = set()

    def create_task(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Starts a task."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def cancel(self) -> None:
        """Cancels all tasks, except the calling one."""
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    async def ended(self) -> None:
        """Cancels all tasks and waits until they have ended."""
        self.cancel()
        await asyncio.gather(*self._tasks - {asyncio.current_task()}, return_exceptions=True)


def this_task_is_cancelled() -> bool:
    """Whether the current task itself is cancelled. A `CancelledError` that comes from within a user's function, and not from
    that, is an error like others."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def in_thread(
    work: Callable[[], R], executor: concurrent.futures.Executor | None = None
) -> asyncio.Future[R]:
    """Does work in a thread of the executor, by default the loop's, as `asyncio.to_thread` does. Raises `RuntimeError` where the system gives
    none. Then the work is not done later either: an executor keeps what it had no thread for, and would do it in the next one that it gets."""
    done: concurrent.futures.Future[R] = concurrent.futures.Future()
    context = copy_context()

    def carry_out() -> None:
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(context.run(work))
            except BaseException as error:
                done.set_exception(error)

    try:
        asyncio.get_running_loop().run_in_executor(executor, carry_out)
    except RuntimeError:
        if done.cancel():
            raise
    return asyncio.wrap_future(done)


async def carried_out_async(calls: Generator[Callable[[], Any] | float, Any, R]) -> R:
    """Carries out what a generator yields: calls, whose results are awaited if they can be, and waits in seconds. After a call
    it is sent the result, or the error. Returns the generator's result, and raises its errors; a cancellation passes."""
    answer: Any = None
    try:
        while True:
            step = calls.send(answer)
            if isinstance(step, float):
                await asyncio.sleep(step)
                answer = None
                continue
            try:
                answer = step()
                if inspect.isawaitable(answer):
                    answer = await answer
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                if this_task_is_cancelled():
                    raise
                answer = error
    except StopIteration as end:
        result: R = end.value
        return result


async def woken(event: asyncio.Event, limit_s: float | None) -> None:
    """Waits until the event is set, `limit_s` seconds at most (None: no limit); yields to other tasks in any case."""
    try:
        async with asyncio.timeout(limit_s):
            if event.is_set():
                await asyncio.sleep(0)
            await event.wait()
    except TimeoutError:
        pass


class Broadcast:
    """Wakes all that wait, each time that it is told to; nobody hears of an earlier time."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def notify_all(self) -> None:
        """Wakes those who wait now."""
        notified, self._next = self._next, asyncio.Event()
        notified.set()

    async def wait(self) -> None:
        """Returns after the next `notify_all`."""
        await self._next.wait()
