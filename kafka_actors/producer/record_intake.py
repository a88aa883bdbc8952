"""`RecordIntake`: the entry of records, from any thread, into batches; and batches split in halves."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import get_args

from kafka_actors.config import ProducerConfig
from kafka_actors.errors import KafkaActorsError, UsageError
from kafka_actors.records import decode
from kafka_actors.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_SIZE,
    MAX_BINARY,
    Kernel,
    KernelWriter,
    Places,
    RecordRows,
)
from kafka_actors.records.compression import CODECS
from kafka_actors.records.encode import Codec, compress, row_columns
from kafka_actors.records.kernel import ACTIVE
from kafka_actors.types import TopicPartition

from .futures import BatchResult
from .machines.batch import Accumulator, ProducerBatch

logger = logging.getLogger(__name__)

FIRST_BYTES = 1024
"""Bytes reserved for a batch that is begun by a single record."""
NEXT_BYTES = 16_384
"""Bytes reserved, at most, for a batch behind one that got full. All of it counts, and many partitions have such a batch open."""
BATCH_BYTES = 1200
"""Bytes of a batch's objects: its queue entry, its result, and what the allocator adds."""

_UNTOLD: weakref.WeakSet[RecordIntake] = weakref.WeakSet()
"""Intakes that say at the end of the process what is left in them. The child of a fork has none: its parent sends."""
os.register_at_fork(after_in_child=_UNTOLD.clear)


@atexit.register
def _tell_unsent() -> None:
    for intake in list(_UNTOLD):
        intake.tell_unsent()


class RecordIntake:
    """Open batches under a lock, and the memory of all batches.

    A batch that is closed goes to `hand_over` at once, so that the order holds; it is `ready` when it is compressed,
    which the thread that closed it does outside the lock. `nudge` is called when the producer's thread has something
    to do.
    """

    def __init__(
        self,
        config: ProducerConfig,
        kernel: Kernel,
        clock: Callable[[], float],
        hand_over: Callable[[ProducerBatch], object],
        nudge: Callable[[], object],
    ) -> None:
        self.kernel = kernel
        self.limit = min(config.batch_size, config.max_request_size)
        self.unsettled: dict[BatchResult, None] = {}
        self._codec = config.compression_type
        self._memory = config.buffer_memory
        self._clock = clock
        self._hand_over = hand_over
        self._nudge = nudge
        self._accumulator = Accumulator(config.linger_ms / 1000)
        self._lock = threading.Lock()
        self._overdue = False
        self.refusal: str | KafkaActorsError | None = None
        """The reason why no records are taken, or the error that is raised for it."""
        self.loop: object = None
        """The event loop that outcomes come through, once it runs."""
        # Two counters, each changed on one side only: the lock's holder, and the producer's thread.
        self._taken = 0
        self._released = 0
        _UNTOLD.add(self)

    def tell_unsent(self) -> None:
        """Logs, once, that batches have no outcome, of a producer that nobody has closed. For any thread."""
        waiting = list(self.unsettled)
        if waiting and self in _UNTOLD:
            _UNTOLD.discard(self)
            first = waiting[0].partition
            logger.warning(
                "a producer was never closed, and what it has not sent may be lost: %d batch%s without an acknowledgement, "
                "the first for %s-%d; call flush() or close(), or send within a with block",
                len(waiting),
                "es" if len(waiting) > 1 else "",
                first.topic,
                first.partition,
            )

    # ------------------------------------------------------------ memory

    @property
    def used(self) -> int:
        """Bytes of all batches that are not settled."""
        return self._taken - self._released

    @property
    def full(self) -> bool:
        """Whether `buffer_memory` is used up."""
        return self.used >= self._memory

    def release(self, size: int) -> None:
        """Releases the bytes of settled batches. In the producer's thread only."""
        self._released += size

    # ------------------------------------------------------------ records

    def append(
        self, partition: TopicPartition, rows: RecordRows, order: Places, lo: int, hi: int, hint: int
    ) -> tuple[int, BatchResult, int]:
        """Appends rows order[lo:hi] as far as one batch takes them; `hint` is their size in bytes, about.

        Returns the index to go on from, the batch's result, and the index of the first row in the batch.
        """
        closed: list[ProducerBatch] = []
        try:
            with self._lock:
                batch, writer = self._open(partition, hint)
                first = writer.count
                at = writer.append(rows, order, lo, hi, self.limit)
                self._charge(batch, BATCH_BYTES + writer.used)
                result: BatchResult = batch.ticket
                if at < hi or writer.used >= self.limit:
                    self._close(partition, closed)
                self._close_overdue(closed)
        finally:
            self._pack(closed)
        return at, result, first

    def append_one(
        self,
        partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[bytes, bytes | None]] | None,
        timestamp_ms: int,
    ) -> tuple[BatchResult, int]:
        """Appends a record. Returns the batch's result and the record's index in it."""
        closed: list[ProducerBatch] = []
        try:
            with self._lock:
                batch, writer = self._open(partition, FIRST_BYTES)
                if not writer.append_one(key, value, headers, timestamp_ms, self.limit):
                    self._close(partition, closed)
                    batch, writer = self._open(partition, min(writer.used, NEXT_BYTES))
                    writer.append_one(key, value, headers, timestamp_ms, self.limit)
                self._charge(batch, BATCH_BYTES + writer.used)
                result: BatchResult = batch.ticket
                index = writer.count - 1
                if writer.used >= self.limit:
                    self._close(partition, closed)
                if self._overdue:
                    self._close_overdue(closed)
        finally:
            if closed:
                self._pack(closed)
        return result, index

    def _open(self, partition: TopicPartition, hint: int) -> tuple[ProducerBatch, KernelWriter]:
        batch = self._accumulator.get(partition)
        if batch is None:
            if self.refusal is not None:
                raise self.refused()
            result = BatchResult(partition, self.loop)
            capacity = min(HEADER_SIZE + hint, self.limit)
            batch = self._accumulator.begin(
                partition,
                lambda: ProducerBatch(partition, self.kernel.writer(capacity), self._clock(), result),
            )
            self.unsettled[result] = None
            self._charge(batch, BATCH_BYTES + capacity)
            if len(self._accumulator) == 1:
                self._nudge()  # to set the timer for the first one
        return batch, batch.content

    def _charge(self, batch: ProducerBatch, size: int) -> None:
        """Counts the memory of a batch, within the lock: what was reserved for it, and what it has grown to beyond that."""
        more = size - batch.charge
        if more > 0:
            batch.charge = size
            self._taken += more

    # ------------------------------------------------------------ closing

    def close_all(self) -> None:
        """Closes all open batches, without lingering."""
        self._close_all()

    def shut(self, reason: str | KafkaActorsError) -> None:
        """Closes all open batches and takes no more records. Sending raises the error from now on, `UsageError` for a text."""
        self._close_all(reason)

    def _close_all(self, refusal: str | KafkaActorsError | None = None) -> None:
        closed: list[ProducerBatch] = []
        try:
            with self._lock:
                if refusal is not None:  # together, or a record could come between and find its batch full
                    self.refusal = refusal
                for partition in self._accumulator.all():
                    self._close(partition, closed)
        finally:
            self._pack(closed)

    def refused(self) -> KafkaActorsError:
        """Returns the error of records that are not taken."""
        if isinstance(self.refusal, KafkaActorsError):
            return self.refusal.with_traceback(None)
        return UsageError(self.refusal)

    def close_due(self) -> bool:
        """Closes the batches that are due. In the producer's thread, which never waits for the lock: if it is taken, its
        holder closes them. Returns whether it was done."""
        if not self._lock.acquire(blocking=False):
            self._overdue = True
            return False
        closed: list[ProducerBatch] = []
        try:
            self._overdue = True
            self._close_overdue(closed)
        finally:
            self._lock.release()
            self._pack(closed)
        return True

    def next_due(self) -> float | None:
        """Returns when the next batch is due. Looks without the lock: the call that begins a first batch nudges."""
        try:
            return self._accumulator.next_due()
        except RuntimeError:  # the open batches changed meanwhile
            return self._clock()

    def _close_overdue(self, closed: list[ProducerBatch]) -> None:
        if not self._overdue:
            return
        self._overdue = False
        for partition in self._accumulator.due(self._clock()):
            self._close(partition, closed)

    def _close(self, partition: TopicPartition, closed: list[ProducerBatch]) -> None:
        """Closes a batch, within the lock, and adds it to those that the caller packs."""
        batch = self._accumulator.close(partition)
        batch.ready = self._codec == "none"
        closed.append(batch)
        self._hand_over(batch)

    def _pack(self, closed: list[ProducerBatch]) -> None:
        """Compresses batches that were closed. All are ready afterwards, also where that is cut off by Ctrl-C, or fails: one that is not
        compressed is sent as it is, and one that is not ready holds up its partition for good."""
        try:
            for batch in closed:
                if self._codec != "none":
                    packed = compress(self._codec, batch.content.body())
                    batch.content.pack(packed, CODECS[self._codec])
                    batch.ready = True
        finally:
            for batch in closed:
                batch.ready = True
            if closed:
                self._nudge()


_NO_TIMESTAMP = -1
_NAMES: dict[int, Codec] = {CODECS[name]: name for name in get_args(Codec)}


def split(batch: ProducerBatch) -> Sequence[ProducerBatch]:
    """Returns the records of a batch that a broker found too large as two batches, compressed alike, with its ticket
    (KIP-126)."""
    sealed = batch.content.seal(-1, -1, -1)
    codec = _NAMES[sealed[ATTRIBUTES_AT + 1] & CODEC_MASK]
    rows = decode(sealed, topic=batch.partition.topic, partition=batch.partition.partition)
    middle = rows.num_rows // 2
    parts = []
    for lo, hi in ((0, middle), (middle, rows.num_rows)):
        writer = ACTIVE.writer(HEADER_SIZE + batch.size // 2)
        columns = row_columns(rows.slice(lo, hi - lo), _NO_TIMESTAMP)
        writer.append(ACTIVE.rows(columns, _NO_TIMESTAMP), None, 0, hi - lo, MAX_BINARY)
        if codec != "none":
            writer.pack(compress(codec, writer.body()), CODECS[codec])
        part = ProducerBatch(batch.partition, writer, batch.created, batch.ticket, batch.first + lo)
        part.split_off = batch.total
        part.charge = batch.charge // 2 if lo else batch.charge - batch.charge // 2
        part.ready = True
        part.attempts = batch.attempts
        part.last_error = batch.last_error
        parts.append(part)
    return parts
