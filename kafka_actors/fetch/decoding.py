"""Decoding of fetched bytes: the chunks that are still valid, and chunks decoded ahead of the user.

While the user works on records, threads decode those that come next: decompressing takes long and needs no interpreter. The chunks
are handed out in the order in which their bytes were taken. Only pure decoding is done ahead, so positions, errors and events
come when the user gets there. Records that are not compressed are decoded where they are used: ahead, on two cores, they were
7 % slower.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from kafka_actors.base.batches import numbers
from kafka_actors.errors import CorruptRecordBatchError, RecordError, UsageError
from kafka_actors.records import Chunk
from kafka_actors.records.arrow import EMPTY
from kafka_actors.records.batch import is_compressed
from kafka_actors.types import TopicPartition

from .machines.buffer import FetchedBytes

__all__ = ["ChunksAhead", "DecodeAhead", "valid_chunks"]

ITEMS = 2
"""Items that are decoded beside the one in use, each in a thread."""
CHUNKS = 2
"""Chunks of each item that may wait to be handed out."""
AHEAD = ITEMS * CHUNKS
LITTLE_BYTES = 128 * 1024
"""Bytes below which decoding takes no longer than waking a thread."""


def valid_chunks(
    item: FetchedBytes,
    chunks: Iterator[Chunk],
    end: int | None,
    on_bad_batch: Callable[[FetchedBytes, RecordError], int | None],
) -> Iterator[Chunk]:
    """Yields the chunks of an item while its position was not moved, up to the end offset of a bounded partition.

    In front of a batch that can't be read it ends: `on_bad_batch` returns where reading goes on, None if it doesn't.
    """
    topic, number = item.partition
    reached = item.fetch_offset
    try:
        for chunk in chunks:
            if not item.valid:
                return
            item.leader_epoch = chunk.leader_epoch
            reached = chunk.next_offset
            if end is not None and chunk.next_offset > end:
                yield _cut(chunk, end)
                return
            yield chunk
    except RecordError as error:
        if (behind := on_bad_batch(item, error)) is not None:
            yield Chunk(EMPTY, behind if end is None else min(behind, end), item.leader_epoch)
        return
    if reached == item.fetch_offset:
        on_bad_batch(item, CorruptRecordBatchError(topic, number, reached, None, "no complete record batch"))


def _cut(chunk: Chunk, end: int) -> Chunk:
    """Returns the records below `end`, with the position there."""
    offsets = numbers(chunk.batch.column("offset"))
    return Chunk(chunk.batch.slice(0, int(offsets.searchsorted(end))), end, chunk.leader_epoch)


class FetchedQueue(Protocol):
    """A source of fetched records: `Fetcher`."""

    def take(self) -> FetchedBytes | None: ...
    def take_more(self) -> FetchedBytes | None: ...
    def unpack(self, fetched: FetchedBytes) -> Iterator[Chunk]: ...


class ChunksAhead:
    """Makes the next elements of an iterator in a pool of threads. An error comes out where it stands among them."""

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
        """Has the pool go on if there is room. Call it with the lock held."""
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
    """Takes records from a fetcher, in order, and has the ones behind them decoded meanwhile. For one thread."""

    def __init__(self, fetched: FetchedQueue) -> None:
        self._fetched = fetched
        self._following: deque[tuple[FetchedBytes, Iterator[Chunk]]] = deque()
        self._pool = ThreadPoolExecutor(ITEMS, "decode")  # its threads begin with the first task

    def take(self) -> tuple[FetchedBytes, Iterator[Chunk]] | None:
        """Returns the next records and their chunks, for `Fetcher.decode`; None while there are none. Raises as `Fetcher.take`."""
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
        """Drops the records of these partitions that were taken ahead."""
        self._following = deque(taken for taken in self._following if taken[0].partition not in partitions)

    def waiting(self) -> list[TopicPartition]:
        """Returns the partitions whose records are taken and wait for their turn. For any thread."""
        return [item.partition for item, _ in tuple(self._following)]

    def close(self) -> None:
        """Drops all that was decoded ahead. Decoding that is under way goes on: another thread may be waiting for it."""
        self._following.clear()
        self._pool.shutdown(wait=False)

    def _begin(self, item: FetchedBytes) -> Iterator[Chunk]:
        chunks = self._fetched.unpack(item)
        size = sum(len(piece.data) for piece in item.slices)
        worth_it = size >= LITTLE_BYTES and is_compressed(item.slices[0].data)
        return ChunksAhead(chunks, self._pool) if worth_it else chunks
