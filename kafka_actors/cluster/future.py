"""A result that comes later, for code that has no event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from .listeners import call_each

T = TypeVar("T")


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
        """Settle it with a value. Later calls change nothing."""
        self._settle(value, None)

    def failure(self, exception: BaseException) -> None:
        """Settle it with an exception. Later calls change nothing."""
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
        """Call `callback(self)` when settled; at once if it is. What it raises is logged."""
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
    """For an `__await__`: waits in the running loop until what `subscribe` is given is called, in whatever thread."""
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
    """Whether this is code of that event loop, which does nothing else as long as it runs. False for None."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
