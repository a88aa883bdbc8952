"""Producers that a partition remembers, and what of theirs it takes: sequences, epochs, duplicates.

Theory of operation. A partition keeps for each producer id its epoch and its last five batches. A batch with exactly the sequences
of one of these is a duplicate: it is answered with the first one's offsets and not written again. Otherwise its epoch must not be
lower than the known one, a higher one begins with sequence 0, and in the same epoch the sequences go on without a gap. A producer
that is not known may begin with any sequence: it may have been known until its records were deleted or its time was over.
Times are those of the producer's records, which is why old records are forgotten early.

Source: Kafka's `ProducerStateManager`, `ProducerAppendInfo` and `ProducerStateEntry`; KIP-98, KIP-360.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from kafka_actors import errors

from .error_answers import Refused
from .record_batches import MAX_SEQUENCE, StoredBatch

REMEMBERED = 5
"""Batches of a producer that a partition remembers."""
_NO_EPOCH = -1


class WrittenBatch(NamedTuple):
    """A batch that was written: the sequences and offsets of its first and last record, and its largest timestamp."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class _Producer:
    """A producer's epoch and last batches in one partition."""

    def __init__(self) -> None:
        self.epoch = _NO_EPOCH
        self.batches: deque[WrittenBatch] = deque(maxlen=REMEMBERED)
        self.timestamp = -1

    def duplicate_of(self, batch: StoredBatch) -> WrittenBatch | None:
        if batch.producer_epoch != self.epoch:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        return next((b for b in self.batches if (b.first_sequence, b.last_sequence) == wanted), None)

    def check(self, batch: StoredBatch) -> None:
        """Raises `Refused` where the batch does not follow what is known."""
        if batch.producer_epoch < self.epoch:
            raise Refused(errors.InvalidProducerEpochError)
        if batch.producer_epoch > self.epoch:
            follows = self.epoch == _NO_EPOCH or batch.base_sequence == 0
        else:
            last = self.batches[-1].last_sequence if self.batches else -1
            follows = batch.base_sequence == (0 if last == MAX_SEQUENCE else last + 1)
        if not follows:
            raise Refused(errors.OutOfOrderSequenceNumberError)

    def add(self, batch: StoredBatch) -> None:
        if batch.producer_epoch != self.epoch:
            self.batches.clear()
            self.epoch = batch.producer_epoch
        self.batches.append(
            WrittenBatch(
                batch.base_sequence,
                batch.last_sequence,
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
            )
        )
        self.timestamp = batch.max_timestamp


class ProducerStates:
    """All producers that one partition remembers. expiration_ms, check_ms: `producer.id.expiration.ms` and its check interval."""

    def __init__(self, expiration_ms: int = 86_400_000, check_ms: int = 600_000) -> None:
        self._producers: dict[int, _Producer] = {}
        self._expiration_ms = expiration_ms
        self._check_ms = check_ms
        self._checked = 0

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def admit(self, batch: StoredBatch, now_ms: int) -> WrittenBatch | None:
        """Returns the batch of which this one is a duplicate, None where it may be written. Raises `Refused`."""
        if batch.producer_id < 0:
            return None
        self.expire(now_ms)
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return None
        if (duplicate := producer.duplicate_of(batch)) is not None:
            return duplicate
        producer.check(batch)
        return None

    def written(self, batch: StoredBatch) -> None:
        """Remembers a batch that is in the log now."""
        if batch.producer_id >= 0 and not batch.is_control:
            self._producers.setdefault(batch.producer_id, _Producer()).add(batch)

    def rebuild(self, batches: Iterable[StoredBatch]) -> None:
        """Forgets all, and remembers these batches: the log was truncated."""
        self._producers.clear()
        for batch in batches:
            self.written(batch)

    def expire(self, now_ms: int) -> None:
        """Forgets the producers whose time was over at the last check before `now_ms`, in ms since the epoch."""
        last_check = now_ms - now_ms % self._check_ms
        if last_check > self._checked:
            self._checked = last_check
            limit = last_check - self._expiration_ms
            self._producers = {i: p for i, p in self._producers.items() if p.timestamp > limit}
