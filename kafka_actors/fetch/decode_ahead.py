"""Decoding ahead: while the user works on records, threads decode those that come next.

Decompressing takes long and needs no interpreter. What they bring is handed out in the order in which it was taken;
only pure decoding is done ahead, so positions, errors and events come when the user gets there. Records that are not
compressed are decoded where they are used: measured on two cores, it made them slower by 7 %.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from kafka_actors.errors import UsageError
from kafka_actors.records import Chunk
from kafka_actors.records.batch import is_compressed
from kafka_actors.types import TopicPartition

from .machines.buffer import FetchedBytes

__all__ = ["ChunksAhead", "DecodeAhead"]

ITEMS = 2
"""So many are being decoded beside the one at hand, each in a thread."""
CHUNKS = 2
"""So many of each may wait to be handed out."""
AHEAD = ITEMS * CHUNKS
LITTLE_BYTES = 128 * 1024
"""Less is decoded in the time that it takes to wake a thread."""


class FetchedQueue(Protocol):
    """What there is to take: `Fetcher`."""

    def take(self) -> FetchedBytes | None: ...
    def take_more(self) -> FetchedBytes | None: ...
    def unpack(self, fetched: FetchedBytes) -> Iterator[Chunk]: ...


class ChunksAhead:
    """An iterator whose next elements are made in a pool. An error comes out where it stands among them."""

    def __init__(self, chunks: Iterator[Chunk], pool: ThreadPoolExecutor) -> None:
        self._chunks = chunks
        self._pool = pool
        self._ready: deque[Chunk | Exception] = deque()
        self._changed = threading.Condition()
        self._running = False
        self._ended = False
        with self._changed:
            self._go_on()

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        with self._changed:
            while not self._ready and not self._ended:
                self._changed.wait()
            if not self._ready:
                raise StopIteration
            found = self._ready.popleft()
            self._go_on()
        if isinstance(found, Exception):
            raise found
        return found

    def _go_on(self) -> None:
        """With the lock."""
        if not self._running and not self._ended and len(self._ready) < CHUNKS:
            try:
                self._pool.submit(self._run)
            except RuntimeError:
                raise UsageError("it was closed while its records were read") from None
            self._running = True

    def _run(self) -> None:
        while True:
            found: Chunk | Exception | None
            try:
                found = next(self._chunks, None)
            except Exception as error:
                found = error
            with self._changed:
                if found is not None:
                    self._ready.append(found)
                self._ended = not isinstance(found, Chunk)
                self._running = not self._ended and len(self._ready) < CHUNKS
                self._changed.notify()
                if not self._running:
                    return


class DecodeAhead:
    """Takes from a fetcher for one user, in order, and has what comes next decoded meanwhile. Used by one thread."""

    def __init__(self, fetched: FetchedQueue) -> None:
        self._fetched = fetched
        self._following: deque[tuple[FetchedBytes, Iterator[Chunk]]] = deque()
        self._pool = ThreadPoolExecutor(ITEMS, "decode")  # its threads begin with the first task

    def take(self) -> tuple[FetchedBytes, Iterator[Chunk]] | None:
        """The next records and their chunks, for `Fetcher.decode`; None while there are none. Raises as `take`."""
        if not self._following:
            item = self._fetched.take()
            if item is None:
                return None
            self._following.append((item, self._fetched.unpack(item)))
        taken = self._following.popleft()
        while len(self._following) < ITEMS and (item := self._fetched.take_more()) is not None:
            self._following.append((item, self._begin(item)))
        return taken

    def forget(self, partitions: Container[TopicPartition]) -> None:
        """Nothing that was taken of these comes any more."""
        self._following = deque(taken for taken in self._following if taken[0].partition not in partitions)

    def waiting(self) -> list[TopicPartition]:
        """Of which partitions something is taken and waits for its turn; from any thread."""
        return [item.partition for item, _ in tuple(self._following)]

    def close(self) -> None:
        """Drops what was decoded ahead. Decoding that is under way goes on: another thread may be waiting for it."""
        self._following.clear()
        self._pool.shutdown(wait=False)

    def _begin(self, item: FetchedBytes) -> Iterator[Chunk]:
        chunks = self._fetched.unpack(item)
        size = sum(len(piece.data) for piece in item.slices)
        worth_it = size >= LITTLE_BYTES and is_compressed(item.slices[0].data)
        return ChunksAhead(chunks, self._pool) if worth_it else chunks
