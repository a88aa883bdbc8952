"""`RecordIntake`: where records come in, from any thread, and become batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import get_args

from kafka_actors.config import ProducerConfig
from kafka_actors.errors import UsageError
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
from kafka_actors.records.columns import row_columns
from kafka_actors.records.compression import CODECS
from kafka_actors.records.encode import Codec, compress
from kafka_actors.records.kernel import ACTIVE
from kafka_actors.types import TopicPartition

from .futures import BatchResult
from .machines.accumulator import Accumulator
from .machines.batch import ProducerBatch

FIRST_BYTES = 1024
"""What a batch that is begun by a single record has room for."""


class RecordIntake:
    """Open batches under a lock, and how much memory all batches take.

    A batch that is closed goes to `hand_over` at once, so that the order holds; it is `ready` when it is compressed,
    which whoever closed it does outside the lock. `nudge` is called when something is to be done in the producer's
    thread.
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
        self.refusal: str | None = None
        """Why nothing is taken any more."""
        self.loop: object = None
        """The event loop that outcomes come through, once there is one."""
        # Two counters, each changed on one side only: the lock's holder, and the producer's thread.
        self._taken = 0
        self._released = 0

    # ------------------------------------------------------------ memory

    @property
    def used(self) -> int:
        """Bytes of all that is not settled."""
        return self._taken - self._released

    @property
    def full(self) -> bool:
        """Whether nothing more may come in now."""
        return self.used >= self._memory

    def release(self, size: int) -> None:
        """Of what is settled. In the producer's thread only."""
        self._released += size

    # ------------------------------------------------------------ records

    def append(
        self, partition: TopicPartition, rows: RecordRows, order: Places, lo: int, hi: int, hint: int
    ) -> tuple[int, BatchResult, int]:
        """Appends rows order[lo:hi] as far as one batch takes them; `hint` is about how many bytes they have.

        Returns where to go on, and the batch's result with the place of the first row in it.
        """
        with self._lock:
            batch, writer = self._open(partition, hint)
            first, before = writer.count, writer.used
            at = writer.append(rows, order, lo, hi, self.limit)
            batch.charge += writer.used - before
            self._taken += writer.used - before
            result: BatchResult = batch.ticket
            closed = [self._close(partition)] if at < hi or writer.used >= self.limit else []
            closed += self._close_overdue()
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
        """Appends a record. Returns the batch's result and the record's place in it."""
        closed = []
        with self._lock:
            batch, writer = self._open(partition, FIRST_BYTES)
            before = writer.used
            if not writer.append_one(key, value, headers, timestamp_ms, self.limit):
                closed.append(self._close(partition))
                batch, writer = self._open(partition, before)
                before = writer.used
                writer.append_one(key, value, headers, timestamp_ms, self.limit)
            batch.charge += writer.used - before
            self._taken += writer.used - before
            result: BatchResult = batch.ticket
            index = writer.count - 1
            if writer.used >= self.limit:
                closed.append(self._close(partition))
            if self._overdue:
                closed += self._close_overdue()
        if closed:
            self._pack(closed)
        return result, index

    def _open(self, partition: TopicPartition, hint: int) -> tuple[ProducerBatch, KernelWriter]:
        batch = self._accumulator.get(partition)
        if batch is None:
            if self.refusal is not None:
                raise UsageError(self.refusal)
            result = BatchResult(partition, self.loop)
            capacity = min(HEADER_SIZE + hint, self.limit)
            batch = self._accumulator.begin(
                partition,
                lambda: ProducerBatch(partition, self.kernel.writer(capacity), self._clock(), result),
            )
            self.unsettled[result] = None
            if len(self._accumulator) == 1:
                self._nudge()  # the time of the first one has to be watched
        return batch, batch.content

    # ------------------------------------------------------------ closing

    def close_all(self) -> None:
        """All open batches go out, however young they are."""
        with self._lock:
            closed = [self._close(partition) for partition in self._accumulator.all()]
        self._pack(closed)

    def shut(self, reason: str) -> None:
        """The same, and nothing is taken any more: nobody would tell what became of it. Whoever sends gets
        `UsageError` with the reason."""
        with self._lock:
            self.refusal = reason
        self.close_all()

    def close_due(self) -> bool:
        """The batches whose time has come go out. In the producer's thread, which never waits for the lock: where
        that is taken, its holder does it. Returns whether it was done."""
        if not self._lock.acquire(blocking=False):
            self._overdue = True
            return False
        try:
            self._overdue = True
            closed = self._close_overdue()
        finally:
            self._lock.release()
        self._pack(closed)
        return True

    def next_due(self) -> float | None:
        """When the next batch is due. A glance without the lock: whoever begins the first batch nudges."""
        try:
            return self._accumulator.next_due()
        except RuntimeError:  # the open batches changed under our eyes
            return self._clock()

    def _close_overdue(self) -> list[ProducerBatch]:
        if not self._overdue:
            return []
        self._overdue = False
        return [self._close(partition) for partition in self._accumulator.due(self._clock())]

    def _close(self, partition: TopicPartition) -> ProducerBatch:
        batch = self._accumulator.close(partition)
        batch.ready = self._codec == "none"
        self._hand_over(batch)
        return batch

    def _pack(self, closed: list[ProducerBatch]) -> None:
        for batch in closed:
            if self._codec != "none":
                packed = compress(self._codec, batch.content.body())
                batch.content.pack(packed, CODECS[self._codec])
                batch.ready = True
        if closed:
            self._nudge()


_NO_TIMESTAMP = -1
_NAMES: dict[int, Codec] = {CODECS[name]: name for name in get_args(Codec)}


def split(batch: ProducerBatch) -> Sequence[ProducerBatch]:
    """The records of a batch in two halves, compressed as they were; the halves' ticket is the batch's."""
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
