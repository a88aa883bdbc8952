"""Threads that take turns with an event loop: one runs at a time, and where each waits is known, so that a run can be repeated.

A `LockstepThread` runs when the loop resumes it, while the loop waits; and until it parks, in one of the calls that block here: `get`
of a `LockstepQueue`, `Lockstep.sleep`, or a receiving `BlockingSocket` (`network.py`). What wakes it is an event of the loop. So code
that is written for threads, such as `BrokerFetcher`, runs as it is, under the loop's clock.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from typing import Any

_STACK_BYTES = 512 * 1024


class SimulationOver(BaseException):
    """Raised in a thread that waits when the run ends."""


class LockstepThread:
    """A thread in place of `threading.Thread`."""

    def __init__(
        self, lockstep: Lockstep, target: Callable[[], object], name: str = "", daemon: bool = True
    ) -> None:
        self.name = name
        self.parked = False
        self.ended = False
        self.go = allocate_lock()
        self.go.acquire()
        self._lockstep = lockstep
        self._target = target
        self._own = contextvars.copy_context()
        self.context = contextvars.copy_context()  # of the events that resume it: `_own` is entered all along
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._joining: LockstepThread | None = None

    def start(self) -> None:
        """Starts it at the next turn of the loop."""
        self._lockstep.threads.append(self)
        self.parked = True
        self._lockstep.wake(self)

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self.ended

    def join(self, timeout: float | None = None) -> None:
        """Waits for its end, in another such thread."""
        if self._lockstep.running is not None:
            self._joining = self._lockstep.running
            self._lockstep.wait_until(lambda: self.ended, timeout)

    def _run(self) -> None:
        self.go.acquire()
        try:
            if not self._lockstep.over:
                self._own.run(self._target)
        except SimulationOver:
            pass
        except BaseException as error:
            self._lockstep.failed(self.name, error)
        finally:
            self.ended = True
            if self._joining is not None:
                self._lockstep.wake(self._joining)
            self._lockstep.back.release()


class Lockstep:
    """The threads of one run, and whose turn it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.back = allocate_lock()
        self.back.acquire()
        self.running: LockstepThread | None = None
        self.threads: list[LockstepThread] = []
        self.over = False
        self._idle: list[_Worker] = []

    def thread(
        self, target: Callable[[], object], name: str = "", daemon: bool = True, **_: Any
    ) -> LockstepThread:
        """Makes a thread, as `threading.Thread` does."""
        return LockstepThread(self, target, name)

    def wake(self, thread: LockstepThread) -> None:
        """Has a thread go on soon, if it is parked."""
        if thread.parked and not self.over:
            thread.parked = False
            self.loop.call_soon(self._resume, thread, context=thread.context)

    def _resume(self, thread: LockstepThread) -> None:
        assert self.running is None, "a thread was resumed from within another one"
        if thread.thread.ident is None:
            before = threading.stack_size(_STACK_BYTES)
            thread.thread.start()
            threading.stack_size(before)
        self.running = thread
        thread.go.release()
        self.back.acquire()
        self.running = None

    def park(self, seconds: float | None = None) -> None:
        """Lets the loop go on until the thread is woken, or the time is over. For such threads only."""
        thread = self.running
        if self.over:
            raise SimulationOver
        assert thread is not None, "the event loop itself would block here"
        timer = None if seconds is None else self.loop.call_later(max(seconds, 0.0), self.wake, thread)
        thread.parked = True
        self.back.release()
        thread.go.acquire()
        if self.over:
            raise SimulationOver
        if timer is not None:
            timer.cancel()

    def sleep(self, seconds: float) -> None:
        """`time.sleep`."""
        self.wait_until(lambda: False, seconds)

    def wait_until(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        """Waits until a condition holds, `seconds` at most; looks each time that the thread is woken. Returns whether it holds."""
        end = None if seconds is None else self.loop.time() + seconds
        while not condition():
            left = None if end is None else end - self.loop.time()
            if left is not None and left <= 0:
                return False
            self.park(left)
        return True

    def in_thread(self, work: Callable[[], object]) -> None:
        """Has a call made in a thread, one that is idle or a new one."""
        worker = self._idle.pop() if self._idle else _Worker(self, self._idle)
        worker.jobs.put((contextvars.copy_context(), work))

    def failed(self, name: str, error: BaseException) -> None:
        """Reports the error that ended a thread."""
        self.loop.call_exception_handler({"message": f"the thread {name} failed", "exception": error})

    def end(self) -> None:
        """Ends all threads. Call it before the loop is closed, outside of it."""
        self.over = True
        for thread in self.threads:
            if thread.thread.ident is not None and not thread.ended:
                self.running = thread
                thread.go.release()
                self.back.acquire()
                thread.thread.join()


class _Worker:
    """A thread for one call after the other."""

    def __init__(self, lockstep: Lockstep, idle: list[_Worker]) -> None:
        self.jobs = LockstepQueue(lockstep)
        self._idle = idle
        contextvars.Context().run(lambda: lockstep.thread(self._run, "worker").start())

    def _run(self) -> None:
        while True:
            context, work = self.jobs.get()
            context.run(work)
            self._idle.append(self)


class LockstepQueue:
    """A queue in place of `queue.SimpleQueue`, for one thread that gets."""

    def __init__(self, lockstep: Lockstep) -> None:
        self._lockstep = lockstep
        self._items: deque[Any] = deque()
        self._waiting: LockstepThread | None = None

    def put(self, item: Any) -> None:
        """Adds an item, in any thread."""
        self._items.append(item)
        if self._waiting is not None:
            self._lockstep.wake(self._waiting)

    def get(self, timeout: float | None = None) -> Any:
        """Waits for an item; raises `queue.Empty` where none comes in time."""
        self._waiting = self._lockstep.running if not self._items else None
        self._lockstep.wait_until(lambda: bool(self._items), timeout)
        self._waiting = None
        return self.get_nowait()

    def get_nowait(self) -> Any:
        """Returns an item, or raises `queue.Empty`."""
        if not self._items:
            raise queue.Empty
        return self._items.popleft()
