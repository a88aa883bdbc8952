"""What a Python worker of Spark makes once and uses for many tasks, of many micro-batches."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MOST = 8
"""Pipelines at the same time in one process; models take memory."""

logger = logging.getLogger(__name__)


class WorkerCache(Generic[T]):
    """Things by key, the ones that were used last. A worker runs one task at a time, in one thread.

    They are closed when there are too many, and as the process ends, if there is time: Spark ends idle workers
    after about a minute, and doesn't wait.
    """

    def __init__(self, close: Callable[[T], object], most: int = MOST) -> None:
        self._close = close
        self._most = most
        self._things: dict[str, T] = {}
        atexit.register(self.clear)

    def get(self, key: str, make: Callable[[], T]) -> T:
        """The thing of this key, made if there is none. What `make` raises comes through."""
        thing = self._things.pop(key, None)
        if thing is None:
            thing = make()
        self._things[key] = thing
        while len(self._things) > self._most:
            self.drop(next(iter(self._things)))
        return thing

    def drop(self, key: str) -> None:
        """Closes the thing of this key, if there is one. What `close` raises is only told."""
        thing = self._things.pop(key, None)
        if thing is None:
            return
        try:
            self._close(thing)
        except Exception:
            logger.exception("close failed")

    def clear(self) -> None:
        for key in list(self._things):
            self.drop(key)
