"""Python processes of Spark: what they keep from one task to the next, errors in one line, and less work for garbage collections.

A Python worker runs one task at a time, and Spark uses it again for later tasks. Connections, producers and users' objects
that one task leaves are kept for the next: in an `IdlePool` where each is lent to one task, in a `WorkerCache` where all
tasks share them.
"""

from __future__ import annotations

import atexit
import functools
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, TypeVar

from kafka_actors.errors import KafkaActorsError

logger = logging.getLogger(__name__)


class OneLineErrors:
    """Context of a method that Spark calls: raises our errors without a traceback, as their one line says all. Spark repeats a
    traceback for each try of a task."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KafkaActorsError):
            logger.debug("where it was raised", exc_info=error)
            raise error.with_traceback(None) from None


class PickledSource:
    """Base of a data source that knows whether it was pickled. Spark plans a streaming write with a source that it has just made, and makes the
    writer that ends a micro-batch, in a process of its own each time, with a pickled one."""

    pickled = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.pickled = True


@functools.cache
def freeze_imports() -> None:
    """Excludes imported modules from garbage collections, to be called when a process has imported all that it needs. Spark
    collects garbage in a process after each task and each planning call; to go through the modules takes 10 to 40 ms each
    time."""
    gc.freeze()


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

IDLE_S = 300.0
"""Seconds for which idle items are kept: as long as Spark's own source keeps its consumers."""


class IdlePool(Generic[K, T]):
    """Pool of items by key: an item is lent to one task at a time, and made where no idle one `works`. For any thread; a
    forked process begins with an empty pool."""

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
        """Lends an idle item of this key, or a new one. It goes back to the pool, unless the block raises."""
        if self._pid != os.getpid():
            self._forget()
        found, old = self._take(key)
        for item in old:
            self._close(item)
        lent = make() if found is None else found
        try:
            yield lent
        except BaseException:
            self._close(lent)
            raise
        with self._lock:
            self._idle.append((key, lent, self._clock()))

    def _take(self, key: K) -> tuple[T | None, list[T]]:
        """An item of this key, and all items that were idle for too long or work no more."""
        with self._lock:
            oldest = self._clock() - self._idle_s
            kept = [each for each in self._idle if each[2] >= oldest and self._works(each[1])]
            old = [each[1] for each in self._idle if each not in kept]
            self._idle = kept
            for i, (item_key, item, _) in enumerate(self._idle):
                if item_key == key:
                    del self._idle[i]
                    return item, old
            return None, old

    def clear(self) -> None:
        """Closes all idle items."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, item, _ in idle:
            self._close(item)


MOST = 8
"""Items of one process. Users' models take memory."""


class WorkerCache(Generic[T]):
    """The items by key that were used last. For one thread, as a worker runs one task at a time.

    An item is closed when there are more than `most`, and at the end of the process if there is time: Spark ends idle
    workers after about a minute, without waiting for them.
    """

    def __init__(self, close: Callable[[T], object], most: int = MOST) -> None:
        self._close = close
        self._most = most
        self._items: dict[str, T] = {}
        atexit.register(self.clear)

    def get(self, key: str, make: Callable[[], T]) -> T:
        """The item of this key, made if there is none. Raises as `make`."""
        item = self._items.pop(key, None)
        if item is None:
            item = make()
        self._items[key] = item
        while len(self._items) > self._most:
            self.drop(next(iter(self._items)))
        return item

    def drop(self, key: str) -> None:
        """Closes the item of this key, if there is one. An error of `close` is only logged."""
        item = self._items.pop(key, None)
        if item is None:
            return
        try:
            self._close(item)
        except Exception:
            logger.exception("close failed")

    def clear(self) -> None:
        for key in list(self._items):
            self.drop(key)
