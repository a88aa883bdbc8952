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
from functools import partial
from typing import Protocol
from weakref import ref

from kafka_actors.base.batches import numbers
from kafka_actors.base.io_thread import ThreadWakeup
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


class Threads(Protocol):
    """Threads that decode: `DecodeThreads`."""

    def start(self, work: Callable[[], None]) -> bool: ...


class DecodeThreads:
    """A pool of `ITEMS` threads, which begin with the first work."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(ITEMS, "decode")
        self._closed = False

    def start(self, work: Callable[[], None]) -> bool:
        """Has a thread do the work. Returns False where the system gives no more threads: the pool has queued the work all the
        same, and may do it at any later time. Raises `UsageError` once it is closed."""
        try:
            self._pool.submit(work)
        except RuntimeError:
            if self._closed:
                raise UsageError("it was closed while its records were read") from None
            return False
        return True

    def close(self) -> None:
        """Takes no more work. What is under way goes on."""
        self._closed = True
        self._pool.shutdown(wait=False)


class ChunksAhead:
    """Makes the next elements of an iterator in threads; in the thread of its user from where none could be started. An error comes
    out where it stands among them."""

    def __init__(self, chunks: Iterator[Chunk], threads: Threads) -> None:
        self._chunks = chunks
        self._threads = threads
        self._ready: deque[Chunk | Exception] = deque()
        self._lock = threading.RLock()
        self._changed = ThreadWakeup()
        self._running = False
        self._ended = False
        self._left_to_user = False
        with self._lock:
            self._go_on()

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        while self._running and not self._ready:
            self._changed.wait(None)
        with self._lock:
            if not self._ready and not self._left_to_user:
                raise StopIteration
            found = self._ready.popleft() if self._ready else None
            self._go_on()
        if found is None:
            return next(self._chunks)  # no thread runs it, and none will
        if isinstance(found, Exception):
            raise found
        return found

    def _go_on(self) -> None:
        """Has a thread go on if there is room. Call it with the lock held."""
        if self._running or self._ended or self._left_to_user or len(self._ready) >= CHUNKS:
            return
        self._running = True
        try:
            # A reference that is weak: work that no thread has begun must not keep the bytes of an item that was dropped.
            started = self._threads.start(partial(_run, ref(self)))
        except UsageError as error:
            self._ready.append(error)
            self._running, self._ended = False, True
        else:
            if not started:
                self._running, self._left_to_user = False, True

    def run(self) -> None:
        """Makes elements as long as there is room for them. For a thread of the pool."""
        with self._lock:
            if self._left_to_user:
                return
        while True:
            found: Chunk | Exception | None
            try:
                found = next(self._chunks, None)
            except Exception as error:
                found = error
            with self._lock:
                if found is not None:
                    self._ready.append(found)
                self._ended = not isinstance(found, Chunk)
                self._running = goes_on = not self._ended and len(self._ready) < CHUNKS
            self._changed()
            if not goes_on:
                return


def _run(chunks: ref[ChunksAhead]) -> None:
    if (wanted := chunks()) is not None:
        wanted.run()


class DecodeAhead:
    """Takes records from a fetcher, in order, and has the ones behind them decoded meanwhile. For one thread."""

    def __init__(self, fetched: FetchedQueue) -> None:
        self._fetched = fetched
        self._following: deque[tuple[FetchedBytes, Iterator[Chunk]]] = deque()
        self._threads = DecodeThreads()

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
        self._threads.close()

    def _begin(self, item: FetchedBytes) -> Iterator[Chunk]:
        chunks = self._fetched.unpack(item)
        size = sum(len(piece.data) for piece in item.slices)
        worth_it = size >= LITTLE_BYTES and is_compressed(item.slices[0].data)
        return ChunksAhead(chunks, self._threads) if worth_it else chunks
