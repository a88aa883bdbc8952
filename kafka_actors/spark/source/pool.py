"""What a Python worker of Spark keeps from task to task: connections, lent to one task at a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

IDLE_S = 300.0
"""As long as Spark's own source keeps its consumers."""


class IdlePool(Generic[K, T]):
    """Things by key, each made when none is idle that `works`. For any thread; a process that was forked begins with
    none."""

    def __init__(
        self,
        close: Callable[[T], object],
        works: Callable[[T], bool] = lambda _: True,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._close = close
        self._works = works
        self._idle_s = idle_s
        self._clock = clock
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[tuple[K, T, float]] = []

    @contextmanager
    def lend(self, key: K, make: Callable[[], T]) -> Iterator[T]:
        """An idle thing of this key, or a new one. It is kept for others unless an error comes out of the block."""
        if self._pid != os.getpid():
            self._forget()
        found, old = self._take(key)
        for thing in old:
            self._close(thing)
        lent = make() if found is None else found
        try:
            yield lent
        except BaseException:
            self._close(lent)
            raise
        with self._lock:
            self._idle.append((key, lent, self._clock()))

    def _take(self, key: K) -> tuple[T | None, list[T]]:
        """One of this key, and all that were idle for too long or work no more."""
        with self._lock:
            oldest = self._clock() - self._idle_s
            kept = [each for each in self._idle if each[2] >= oldest and self._works(each[1])]
            old = [each[1] for each in self._idle if each not in kept]
            self._idle = kept
            for i, (its_key, thing, _) in enumerate(self._idle):
                if its_key == key:
                    del self._idle[i]
                    return thing, old
            return None, old

    def clear(self) -> None:
        """Closes all that is idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, thing, _ in idle:
            self._close(thing)
