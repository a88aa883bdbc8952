"""`Future`: a result that comes later, for code that has no event loop; and the calls of callbacks and listeners."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, TypeVar, TypeVarTuple

log = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVarTuple("A")


def call_each(callbacks: Iterable[Callable[[*A], object]], *arguments: *A) -> None:
    """Calls each of them. An exception of one is logged: the others are called, and the caller goes on."""
    for callback in list(callbacks):
        try:
            callback(*arguments)
        except Exception:  # a user's code, as a rule
            log.exception("the callback %r raised", callback)


class Future(Generic[T]):
    """Settled once, with a value or an exception; awaitable from any loop, and readable without one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = False
        self._value: T | None = None
        self._exception: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], object]] = []

    @property
    def is_done(self) -> bool:
        """Whether it is settled."""
        return self._done

    def done(self) -> bool:
        """Whether it is settled."""
        return self._done

    def success(self, value: T) -> None:
        """Settles it with a value. Later calls change nothing."""
        self._settle(value, None)

    def failure(self, exception: BaseException) -> None:
        """Settles it with an exception. Later calls change nothing."""
        self._settle(None, exception)

    def _settle(self, value: T | None, exception: BaseException | None) -> None:
        with self._lock:
            if self._done:
                return
            self._value, self._exception, self._done = value, exception, True
            callbacks, self._callbacks = self._callbacks, []
        call_each(callbacks, self)

    def exception(self) -> BaseException | None:
        """The exception it failed with; None if it has a value or isn't settled."""
        return self._exception

    def result(self) -> T:
        """The value. Raises the exception it failed with, `RuntimeError` before it is settled."""
        if not self._done:
            raise RuntimeError("the future is not settled yet")
        if self._exception is not None:
            raise self._exception
        return self._value  # type: ignore[return-value]  # settled without exception, so it is a T

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """Calls `callback(self)` when it is settled; at once if it is. An exception of the callback is logged."""
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        call_each([callback], self)

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            yield from until_called(lambda settled: self.add_done_callback(lambda _: settled()))
        return self.result()


def until_called(subscribe: Callable[[Callable[[], None]], object]) -> Generator[Any, None, None]:
    """Waits in the running loop until the callback given to `subscribe` is called, in any thread: for an `__await__`."""
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    def called() -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:  # the waiter's loop is closed: nobody waits
            pass

    subscribe(called)
    yield from woken


def in_loop(loop: object) -> bool:
    """Whether the caller runs in that event loop, which does nothing else meanwhile. False for None."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
