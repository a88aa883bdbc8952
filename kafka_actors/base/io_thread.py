"""A thread with an event loop of its own, which runs on whatever the user's code does, and the wake-up of a thread that waits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def ended_within(future: concurrent.futures.Future[Any], seconds: float | None) -> bool:
    """Waits for a future, `seconds` at most (None: no limit), and returns whether it is done, however it ended.

    `result(seconds)` alone can't tell the end of the wait from a `TimeoutError` that the work raised.
    """
    try:
        future.exception(seconds)
    except (TimeoutError, concurrent.futures.CancelledError):
        pass
    return future.done()


class ThreadWakeup:
    """Lets one thread sleep until another one has something for it.

    A lock that is free from a call until the next `clear` or `wait`: `threading.Event` takes twenty steps of the interpreter for what this
    takes one for, with each record that comes alone. A wait may be interrupted anywhere (see `IoFuture`): the other thread only gives the
    lock back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self) -> None:
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError:  # another thread has called this very moment
                pass

    def clear(self) -> None:
        """Forgets the calls so far."""
        self._lock.acquire(blocking=False)

    def wait(self, timeout_s: float | None) -> bool:
        """Sleeps until a call, which is then forgotten, or until the time is over. Returns whether there was one."""
        return self._lock.acquire(
            timeout=-1 if timeout_s is None else min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)
        )


class IoFuture(concurrent.futures.Future[T]):
    """Result of a coroutine in an `IoThread`. A wait for it may be interrupted anywhere.

    `Future` waits by a `Condition`, whose lock whoever ends the future needs. What a signal's handler raises, like `KeyboardInterrupt`, may come
    right behind the taking of that lock, which then nobody gives back, and the thread of the loop would stand still for good.
    So this one waits by a `ThreadWakeup`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ended = ended = ThreadWakeup()
        self.add_done_callback(lambda _: ended())

    def result(self, timeout: float | None = None) -> T:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout_s: float | None) -> None:
        if not self._ended.wait(timeout_s):
            raise TimeoutError
        self._ended()  # for another one that waits


class IoThread:
    """Runs coroutines for other threads, from its creation until `stop`. All that was submitted before ends: by itself, or cancelled.

    The thread is a daemon: a client that was never closed does not keep its program alive. The child of a fork has no
    such thread: there `alive` is False, `submit` and `run` raise, and `stop` does nothing.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._lock = threading.RLock()  # guards `_ending`, and what is scheduled while it is False
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except BaseException:  # the system gives no thread
            self.loop.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether the thread runs in this process."""
        return self._thread.is_alive()

    @property
    def takes_work(self) -> bool:
        """Whether the thread runs in this process, and `stop` was not called."""
        return self.alive and not self._ending

    @property
    def inside(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.get_ident() == self._thread.ident

    def submit(self, work: Coroutine[Any, Any, T]) -> IoFuture[T]:
        """Starts a coroutine in the loop. Raises `RuntimeError` if the thread is not `alive`, or ends: nothing would run it."""
        if self.alive:  # else another thread may have had the lock when the process was forked
            future: IoFuture[T] = IoFuture()
            with self._lock:
                if not self._ending:
                    self.loop.call_soon_threadsafe(self._begin, work, future)
                    return future
        work.close()
        raise RuntimeError(f"the thread {self._thread.name} has ended, or was left behind by a fork")

    def _begin(self, work: Coroutine[Any, Any, T], future: IoFuture[T]) -> None:
        """Runs work for a future, as `asyncio.run_coroutine_threadsafe` does, which makes futures of its own."""

        def ended(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                future.cancel()
            if not future.set_running_or_notify_cancel():
                return
            if (error := task.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        def cancelled(future: concurrent.futures.Future[T]) -> None:
            if future.cancelled() and not task.done():
                self.loop.call_soon_threadsafe(task.cancel)

        task = self.loop.create_task(work)
        task.add_done_callback(ended)
        future.add_done_callback(cancelled)

    def run(self, work: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
        """Runs a coroutine in the loop and waits for its result, `timeout` seconds at most. Call it from another thread.

        When the wait ends early, by `TimeoutError` or `KeyboardInterrupt`, the coroutine runs on. Raises the errors of
        `submit` too.
        """
        return self.submit(work).result(timeout)

    def post(self, call: Callable[[], object]) -> None:
        """Schedules a function call in the loop; none where the thread has ended or ends."""
        if self.alive:
            with self._lock:
                if not self._ending:
                    self.loop.call_soon_threadsafe(call)

    def stop(self, seconds: float = 5.0) -> bool:
        """Stops the loop, cancels its tasks, and waits for the thread, `seconds` at most.

        Returns whether the thread has ended. May be called again.
        """
        if self.alive:
            with self._lock:
                if not self._ending:  # a second time it would cut short what ends the tasks
                    self._ending = True
                    self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(seconds)
        return not self.alive

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            with self._lock:
                self._ending = True
            try:
                self._end_tasks()
            finally:
                self.loop.close()

    def _end_tasks(self) -> None:
        """Cancels tasks until none is left: those that were submitted last have not begun, and others may begin more as they
        end."""
        while True:
            self.loop.run_until_complete(asyncio.sleep(0))  # what is scheduled becomes a task
            if not (left := asyncio.all_tasks(self.loop)):
                return
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
