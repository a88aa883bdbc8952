"""Failures that nobody looked at."""

from __future__ import annotations

import threading
from collections import deque

from kafka_actors.errors import KafkaActorsError, UndeliveredError

from .futures import BatchResult

__all__ = ["RECENT", "Unseen"]

RECENT = 1_000
"""Of so many failed batches it is looked at the end whether somebody has asked; of older ones when they become too
many, so that a producer that is never flushed doesn't keep them all."""


class Unseen:
    """Failed records whose futures nobody asked; each is told of once. For any thread."""

    def __init__(self) -> None:
        self._recent: deque[BatchResult] = deque()
        self._records = 0
        self._errors: dict[tuple[str, int], KafkaActorsError] = {}
        self._lock = threading.Lock()

    def add(self, result: BatchResult) -> None:
        """Some of its records failed."""
        with self._lock:
            self._recent.append(result)
            if len(self._recent) > RECENT:
                self._count(self._recent.popleft())

    def take(self) -> UndeliveredError | None:
        """The error about all of them."""
        with self._lock:
            while self._recent:
                self._count(self._recent.popleft())
            records, self._records = self._records, 0
            errors, self._errors = self._errors, {}
        return UndeliveredError(records, errors) if records else None

    def _count(self, result: BatchResult) -> None:
        unseen = result.failed - result.seen
        if unseen > 0 and result.error is not None:
            self._records += unseen
            self._errors.setdefault(result.partition, result.error)
            result.seen = result.failed
