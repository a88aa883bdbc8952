"""The results of sending: futures that any thread may wait for and any event loop await, and failures that nobody asked for."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from kafka_actors.base.io_thread import ThreadWakeup
from kafka_actors.base.other_clients import FUTURE, says_ours
from kafka_actors.base.timeouts import timeouts_by_name, wait_of
from kafka_actors.cluster.future import call_each, in_loop, until_called
from kafka_actors.errors import KafkaActorsError, KafkaTimeoutError, UndeliveredError, UsageError
from kafka_actors.types import TopicPartition

from .machines.batch import ProducerBatch
from .machines.sender import SettledBatch

T = TypeVar("T")

Numbers: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]

_LOCK = threading.Lock()  # held for moments only, so one for all results


def _renew() -> None:
    """Replaces the lock in the child of a fork, where a thread that held it does not exist."""
    global _LOCK
    _LOCK = threading.Lock()


os.register_at_fork(after_in_child=_renew)


class RecordMetadata(msgspec.Struct, frozen=True):
    """The place of a record in the log. `offset` is -1 where the broker had the record already and no longer knew its offset.
    `timestamp_ms` is the record's, or the broker's where the topic has LogAppendTime."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class OffsetRange(msgspec.Struct, frozen=True):
    """Offsets of `records` records from `first` on; `first` is -1 where the broker no longer knew it."""

    first: int
    records: int


class BatchMetadata(msgspec.Struct, frozen=True):
    """The places of the rows of one `send_batch` in the log: by partition, in the order of the rows."""

    rows: int
    partitions: dict[TopicPartition, list[OffsetRange]]


class _Segment(NamedTuple):
    """The outcome of `records` records of a batch, from the `first`-th on."""

    first: int
    records: int
    base_offset: int
    timestamp_ms: int
    error: KafkaActorsError | None


class BatchResult:
    """The outcome of one batch of a partition, in as many parts as it was split into."""

    __slots__ = ("_callbacks", "_left", "_waiting", "closed", "done", "loop", "partition", "seen", "segments")

    def __init__(self, partition: TopicPartition, loop: object = None) -> None:
        self.partition = partition
        self.loop = loop
        """The event loop that the outcome comes through."""
        self.segments: list[_Segment] = []
        self.done = False
        self.closed = False
        """Whether callbacks have been called, too, and a failure is among those that a flush raises."""
        self.seen = 0
        """Number of failed records whose error was raised or reported."""
        self._left: int | None = None
        self._callbacks: list[Callable[[], object]] = []
        self._waiting: list[ThreadWakeup] = []

    def settle(self, batch: ProducerBatch, outcome: SettledBatch) -> bool:
        """Adds the outcome of the batch, or of one that it was split into. Returns whether all records have theirs."""
        if self._left is None:
            self._left = batch.total
        count = batch.records
        self.segments.append(
            _Segment(batch.first, count, outcome.base_offset, outcome.timestamp_ms, outcome.error)
        )
        self._left -= count
        if self._left:
            return False
        with _LOCK:
            self.done = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        return True

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call `callback()` when all is settled; at once if it is."""
        with _LOCK:
            if not self.done:
                self._callbacks.append(callback)
                return
        callback()

    def close(self) -> None:
        """Ends the waits for it, once it is settled and nothing is to be done about that any more."""
        with _LOCK:
            self.closed = True
        for wake in self._waiting:
            wake()

    def wait(self, limit_s: float | None) -> bool:
        """Waits until it is closed. Returns whether it is within the time."""
        wake = ThreadWakeup()
        with _LOCK:
            if self.closed:
                return True
            self._waiting.append(wake)
        return wake.wait(limit_s)

    def of(self, index: int) -> _Segment:
        """Returns the outcome of one record."""
        return next(s for s in self.segments if s.first <= index < s.first + s.records)

    def between(self, first: int, count: int) -> list[_Segment]:
        """Returns the outcomes of these records, in order."""
        found = []
        for s in sorted(self.segments):
            lo, hi = max(first, s.first), min(first + count, s.first + s.records)
            if lo < hi:
                base = s.base_offset if s.base_offset < 0 else s.base_offset + lo - s.first
                found.append(_Segment(lo, hi - lo, base, s.timestamp_ms, s.error))
        return found

    @property
    def failed(self) -> int:
        """Number of its records that failed."""
        return sum(s.records for s in self.segments if s.error is not None)

    @property
    def error(self) -> KafkaActorsError | None:
        """The first error."""
        return next((s.error for s in self.segments if s.error is not None), None)


@timeouts_by_name
class SendFuture(ABC, Generic[T]):
    """A result that comes when the broker has acknowledged it. For any thread; awaitable from any event loop. It is no
    `concurrent.futures.Future`: for several, call `result` of each, or the producer's `flush`, or await `asyncio.gather`."""

    __slots__ = ("__weakref__",)

    if not TYPE_CHECKING:
        __getattr__ = says_ours(FUTURE)

    @abstractmethod
    def done(self) -> bool:
        """Whether the outcome is known."""

    @abstractmethod
    def _value(self) -> T:
        """Returns the result, or raises the error, once it is done."""

    @property
    @abstractmethod
    def _loop(self) -> object:
        """The event loop that the outcome comes through, if it is known."""

    @abstractmethod
    def _when_done(self, callback: Callable[[], object]) -> None:
        """Call `callback()` when it is done; at once if it is."""

    def result(self, *, timeout: float | None = None) -> T:
        """Waits for the outcome and returns it, or raises its error. `KafkaTimeoutError` if none came within `timeout`
        seconds, `UsageError` where it never would, because this call holds up the event loop that it comes through."""
        if not self.done():
            if in_loop(self._loop):
                raise UsageError(
                    "result() holds up the event loop that the outcome comes through: await the future there, and in "
                    "its callbacks wait for nothing"
                )
            limit_s = wait_of(timeout)
            wake = ThreadWakeup()
            self._when_done(wake)
            if not wake.wait(limit_s):
                raise KafkaTimeoutError(f"not acknowledged within {limit_s:g} s; it may still be")
        return self._value()

    def exception(self, *, timeout: float | None = None) -> KafkaActorsError | None:
        """Waits for the outcome as `result` does, and returns its error, None if it was delivered."""
        try:
            self.result(timeout=timeout)
        except KafkaActorsError as error:
            if not self.done():
                raise
            return error
        return None

    def add_done_callback(self, callback: Callable[[SendFuture[T]], object]) -> None:
        """Call `callback(self)` when the outcome is known, in the producer's thread; at once if it is. It may send
        more, but wait for nothing: what it waits for comes through that thread. What it raises is logged."""
        self._when_done(lambda: call_each([callback], self))

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done():
            yield from until_called(self._when_done)
        return self._value()


class RecordFuture(SendFuture[RecordMetadata]):
    """The outcome of one record."""

    __slots__ = ("_index", "_result", "_seen", "_timestamp")

    def __init__(self, result: BatchResult, index: int, timestamp_ms: int) -> None:
        self._result = result
        self._index = index
        self._timestamp = timestamp_ms
        self._seen = False

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._result.done

    @property
    def _loop(self) -> object:
        return self._result.loop

    def _when_done(self, callback: Callable[[], object]) -> None:
        self._result.when_done(callback)

    def __repr__(self) -> str:
        topic, partition = self._result.partition
        if not self._result.done:
            return f"<RecordFuture {topic}-{partition}, not acknowledged yet>"
        segment = self._result.of(self._index)  # without counting its error as seen
        if segment.error is not None:
            return f"<RecordFuture {topic}-{partition}, failed: {segment.error}>"
        offset = segment.base_offset + self._index - segment.first
        return f"<RecordFuture {topic}-{partition}, " + (
            "acknowledged>" if segment.base_offset < 0 else f"offset {offset}>"
        )

    def _value(self) -> RecordMetadata:
        segment = self._result.of(self._index)
        if segment.error is not None:
            if not self._seen:
                self._seen = True
                self._result.seen += 1
            raise segment.error.with_traceback(None)  # for each of its records: it must not grow
        offset = segment.base_offset
        return RecordMetadata(
            *self._result.partition,
            offset if offset < 0 else offset + self._index - segment.first,
            self._timestamp if segment.timestamp_ms < 0 else segment.timestamp_ms,
        )


class _BatchPart(NamedTuple):
    """Rows that went into one batch, as its records from `first` on; a row's number is its value in `rows` plus `base`."""

    result: BatchResult
    first: int
    rows: Numbers
    base: int


class BatchFuture(SendFuture[BatchMetadata]):
    """The outcome of all rows of one `send_batch`. Its error is an `UndeliveredError`, which names the rows."""

    __slots__ = ("_callbacks", "_done", "_parts", "_seen", "_waiting", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._parts: list[_BatchPart] = []
        self._waiting = 1  # `complete` takes this one away
        self._done = False
        self._seen = False
        self._callbacks: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return f"<BatchFuture of {self.rows} rows, {'done' if self.done() else 'not acknowledged yet'}>"

    def add(self, result: BatchResult, first: int, rows: Numbers, base: int = 0) -> None:
        """Adds rows that are in a batch, as its records from `first` on."""
        self._parts.append(_BatchPart(result, first, rows, base))
        with _LOCK:
            self._waiting += 1
        result.when_done(self.complete)

    def complete(self) -> None:
        """Counts a part that is settled; once more when all parts are added."""
        with _LOCK:
            self._waiting -= 1
            if self._waiting:
                return
            self._done = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def done(self) -> bool:
        """Whether the outcome of all rows is known."""
        return self._done

    @property
    def failure(self) -> KafkaActorsError | None:
        """The first error so far; reading it doesn't count as reported."""
        return next((part.result.error for part in self._parts if part.result.error is not None), None)

    @property
    def _loop(self) -> object:
        return self._parts[0].result.loop if self._parts else None

    def _when_done(self, callback: Callable[[], object]) -> None:
        with _LOCK:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback()

    def _value(self) -> BatchMetadata:
        ranges: dict[TopicPartition, list[OffsetRange]] = {}
        errors: dict[tuple[str, int], KafkaActorsError] = {}
        failed: list[int] = []
        for result, first, rows, base in self._parts:
            for s in result.between(first, len(rows)):
                if s.error is None:
                    ranges.setdefault(result.partition, []).append(OffsetRange(s.base_offset, s.records))
                    continue
                errors.setdefault(result.partition, s.error)
                failed += (base + int(row) for row in rows[s.first - first : s.first - first + s.records])
                result.seen += 0 if self._seen else s.records
        if errors:
            self._seen = True
            raise UndeliveredError(len(failed), errors, sorted(failed)) from next(iter(errors.values()))
        return BatchMetadata(self.rows, ranges)


def wait_all(results: Sequence[BatchResult], deadline: float | None) -> int:
    """Waits until all are closed or the time (of `time.monotonic`) is over; returns how many are not."""
    for result in results:
        if not result.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
            return sum(not r.closed for r in results)
    return 0


RECENT = 1_000
"""Failed batches that are kept until `flush` or `close`, in case somebody still asks for their errors. Older ones are only counted,
so that a producer that is never flushed doesn't keep them all."""


class Unseen:
    """Failed records whose futures nobody asked for a result; each is reported once. For any thread."""

    def __init__(self) -> None:
        self._recent: deque[BatchResult] = deque()
        self._records = 0
        self._errors: dict[tuple[str, int], KafkaActorsError] = {}
        self._lock = threading.Lock()

    def add(self, result: BatchResult) -> None:
        """Adds a batch of which records failed."""
        with self._lock:
            self._recent.append(result)
            if len(self._recent) > RECENT:
                self._count(self._recent.popleft())

    def take(self) -> UndeliveredError | None:
        """Returns the error about all of them, None if there are none, and forgets them."""
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
