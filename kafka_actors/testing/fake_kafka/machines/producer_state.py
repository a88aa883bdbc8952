"""Producers that a partition remembers, and what of theirs it takes: sequences, epochs, duplicates.

Theory of operation. A partition keeps for each producer id its epoch and its last five batches. A batch with exactly the sequences
of one of these is a duplicate: it is answered with the first one's offsets and not written again. Otherwise its epoch must not be
lower than the known one, a higher one begins with sequence 0, and in the same epoch the sequences go on without a gap. A producer
that is not known may begin with any sequence: it may have been known until its records were deleted or its time was over.
Times are those of the producer's records, which is why old records are forgotten early.

A broker that starts again knows a producer's last batch alone, so that any earlier one is out of order.

A producer's transaction is open from its first transactional batch to the marker that its coordinator writes. The first batch has to
be verified with the coordinator (KIP-890); what was seen of a producer while it was verified bounds the sequence that is written first.

Source: Kafka's `ProducerStateManager`, `ProducerAppendInfo`, `ProducerStateEntry` and `VerificationStateEntry`; KIP-98, KIP-360, KIP-890.
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


class EndedTransaction(NamedTuple):
    """A transaction that a marker at `last_offset` ended; `stable_offset` is the last stable offset after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


class _Verified(NamedTuple):
    """The lowest sequence of a producer's epoch that was seen before its first batch was written."""

    epoch: int
    sequence: int
    from_0: bool


class KnownProducer:
    """A producer's epoch, last batches and open transaction in one partition."""

    def __init__(self) -> None:
        self.epoch = _NO_EPOCH
        self.batches: deque[WrittenBatch] = deque(maxlen=REMEMBERED)
        self.timestamp = -1
        self.coordinator_epoch = -1
        self.first_offset: int | None = None

    def duplicate_of(self, batch: StoredBatch) -> WrittenBatch | None:
        if batch.producer_epoch != self.epoch:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        return next((b for b in self.batches if (b.first_sequence, b.last_sequence) == wanted), None)

    def check(self, batch: StoredBatch, verified: _Verified | None) -> None:
        """Raises `Refused` where the batch does not follow what is known."""
        self.check_epoch(batch.producer_epoch)
        if verified is not None and (
            batch.base_sequence > verified.sequence
            or (verified.from_0 and batch.base_sequence != 0 and not self.batches)
        ):
            raise Refused(errors.OutOfOrderSequenceNumberError)
        if self.epoch != _NO_EPOCH:
            self._check_sequence(batch)
        if self.first_offset is not None and not batch.is_transactional:
            raise Refused(errors.InvalidTxnStateError)

    def check_epoch(self, epoch: int) -> None:
        """Raises `Refused` for an epoch older than the known one."""
        if epoch < self.epoch:
            raise Refused(errors.InvalidProducerEpochError)

    def _check_sequence(self, batch: StoredBatch) -> None:
        """Raises `Refused` where a batch doesn't follow the last one: under a new epoch it begins with 0, else
        it goes on without a gap.
        """
        if batch.producer_epoch > self.epoch:
            follows = batch.base_sequence == 0
        else:
            last = self.batches[-1].last_sequence if self.batches else -1
            follows = batch.base_sequence == (0 if last == MAX_SEQUENCE else last + 1)
        if not follows:
            raise Refused(errors.OutOfOrderSequenceNumberError)

    def raise_to(self, epoch: int) -> None:
        """Forgets the batches of an older epoch."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def add(self, batch: StoredBatch) -> None:
        """Remembers a batch that is in the log now."""
        self.raise_to(batch.producer_epoch)
        if batch.is_transactional and self.first_offset is None:
            self.first_offset = batch.base_offset
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
        self._producers: dict[int, KnownProducer] = {}
        self._verified: dict[int, _Verified] = {}
        self._expiration_ms = expiration_ms
        self._check_ms = check_ms
        self._checked = 0

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def items(self, now_ms: int) -> list[tuple[int, KnownProducer]]:
        """The producers that are known at a time, with their ids."""
        self.expire(now_ms)
        return list(self._producers.items())

    # ---------------------------------------------------------------- writing

    def admit(self, batch: StoredBatch, now_ms: int) -> WrittenBatch | None:
        """Returns the batch of which this one is a duplicate, None where it may be written. Raises `Refused`."""
        if batch.producer_id < 0:
            return None
        self.expire(now_ms)
        producer = self._producers.get(batch.producer_id, KnownProducer())
        if (duplicate := producer.duplicate_of(batch)) is not None:
            return duplicate
        producer.check(batch, self._verified.get(batch.producer_id))
        return None

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raises `Refused` for an epoch older than the known one."""
        self._producers.get(producer_id, KnownProducer()).check_epoch(epoch)

    def to_verify(
        self, producer_id: int, epoch: int, sequence: int, *, from_0: bool, of_any_epoch: bool = False
    ) -> bool:
        """Notes that a transactional batch has come; returns whether the coordinator has to be asked: not within a transaction.

        from_0: whether a producer that is not known has to begin with sequence 0 (version 2 of the protocol). of_any_epoch: whether
        the open transaction may be one of another epoch, as before Kafka 4.0.
        """
        if self.has_open(producer_id, None if of_any_epoch else epoch):
            return False
        known = self._verified.setdefault(producer_id, _Verified(epoch, sequence, from_0))
        if epoch > known.epoch or (epoch == known.epoch and sequence < known.sequence):
            self._verified[producer_id] = _Verified(epoch, sequence, known.from_0)
        return True

    def has_open(self, producer_id: int, epoch: int | None) -> bool:
        """Whether a producer's epoch, None for any, has an open transaction here."""
        producer = self._producers.get(producer_id)
        is_open = producer is not None and producer.first_offset is not None
        return is_open and (epoch is None or self._producers[producer_id].epoch == epoch)

    def written(self, batch: StoredBatch) -> EndedTransaction | None:
        """Remembers a batch that is in the log now; returns the transaction that it ends."""
        if batch.producer_id < 0:
            return None
        if batch.is_transactional and not self._belongs_to_the_next(batch):
            self._verified.pop(batch.producer_id, None)
        producer = self._producers.setdefault(batch.producer_id, KnownProducer())
        if not batch.is_control:
            producer.add(batch)
            return None
        first, producer.first_offset = producer.first_offset, None
        producer.raise_to(batch.producer_epoch)
        producer.coordinator_epoch = batch.coordinator_epoch
        producer.timestamp = batch.max_timestamp
        if first is None:
            return None
        stable = self.first_open_offset
        stable = batch.last_offset + 1 if stable is None else stable
        return EndedTransaction(batch.producer_id, first, batch.last_offset, stable)

    def _belongs_to_the_next(self, batch: StoredBatch) -> bool:
        """Whether a marker finds the first batch of its producer's next transaction verified already (version 2 of the protocol)."""
        verified = self._verified.get(batch.producer_id)
        return (
            verified is not None
            and batch.is_control
            and verified.from_0
            and batch.producer_epoch == verified.epoch
        )

    @property
    def first_open_offset(self) -> int | None:
        """First offset of the oldest open transaction; None without one."""
        return min(
            (p.first_offset for p in self._producers.values() if p.first_offset is not None), default=None
        )

    def rebuild(self, batches: Iterable[StoredBatch]) -> None:
        """Forgets all, and remembers these batches: the log was truncated."""
        self._producers.clear()
        for batch in batches:
            self.written(batch)

    def reload(self) -> None:
        """Remembers of each producer its last batch alone: a broker that starts again has read this from a snapshot."""
        for producer in self._producers.values():
            while len(producer.batches) > 1:
                producer.batches.popleft()

    def expire(self, now_ms: int) -> None:
        """Forgets the producers whose time was over at the last check before `now_ms`, in ms since the epoch."""
        last_check = now_ms - now_ms % self._check_ms
        if last_check > self._checked:
            self._checked = last_check
            limit = last_check - self._expiration_ms
            self._producers = {
                i: p for i, p in self._producers.items() if p.timestamp > limit or p.first_offset is not None
            }
