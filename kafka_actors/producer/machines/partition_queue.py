"""`PartitionQueue`: one partition's batches in order, and their sequences (KIP-98, KIP-360)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kafka_actors.types import TopicPartition

from .batch import NO_PRODUCER, NO_SEQUENCE, ProducerBatch

MAX_EPOCH = 2**15 - 1
REMEMBERED = 5
"""So many batches of a producer a broker remembers of a partition, to know one that it has already."""
KNOWN_S = 60.0
"""Seconds after an acknowledgement for which a broker is relied upon to know the producer still. It forgets one whose
last record is older than its `producer.id.expiration.ms`, a day by default."""
_SEQUENCES = 2**31
"""Sequences go from 0 to 2^31 - 1 and then start again."""


class PartitionQueue:
    """What waits for a partition, and what was sent there and is not settled.

    `issued` are batches that have been sent at least once, in order; those on the wire come first. After a failure
    nothing is sent until all that is on the wire was answered; then all that is issued goes out again, in order and
    with the same sequences, so that the broker drops what it has already.

    Sequences are given per partition, under the producer's id and an epoch of the lane's own: without transactions
    brokers compare epochs partition by partition. When the chain is `broken`, because a batch was given up or the
    broker lost its state, a new epoch begins with sequence 0; but only when the first issued batch is known not to be
    in the log, because then none behind it is. Otherwise it could be there twice, under both epochs.

    That none behind it is holds as long as the broker knows the producer: of one that it doesn't know it takes any
    first sequence (`ProducerAppendInfo.checkSequence`), so also the second batch where the first was refused. So one
    batch at a time is on the wire until the leader has acknowledged one under this id and epoch, and again after each
    failure, with each new leader, and where the last acknowledgement is `KNOWN_S` old.
    """

    def __init__(self, partition: TopicPartition, *, idempotent: bool, window: int) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        self.issued: list[ProducerBatch] = []
        self.in_flight = 0
        """Requests on the wire with a batch of this partition, one that was given up meanwhile included."""
        self.node = -1
        self.not_before = 0.0
        self.failures = 0
        self.broken = False
        self._stalled = False
        self._idempotent = idempotent
        self._window = window
        self.producer_id = NO_PRODUCER
        self.exhausted_id = NO_PRODUCER
        """A producer id whose last epoch is used up here."""
        self._epoch = NO_PRODUCER
        self._sequence = 0
        self._known_by = -1
        """The leader that has acknowledged a batch under this id and epoch, -1 where none has since the last failure."""
        self._known_until = 0.0
        self._number = 0  # of the next batch to be issued

    @property
    def empty(self) -> bool:
        """Whether nothing waits and nothing is unsettled."""
        return not (self.waiting or self.issued or self.in_flight)

    def oldest(self) -> ProducerBatch | None:
        """The first of what is not settled."""
        if self.issued:
            return self.issued[0]
        return self.waiting[0] if self.waiting else None

    @property
    def needs_id(self) -> bool:
        """Whether nothing can be sent before `identify`."""
        return self._idempotent and self.producer_id == NO_PRODUCER

    def identify(self, producer_id: int, epoch: int) -> None:
        """Sequences are given under this producer id from now on, starting at 0."""
        self.producer_id, self._epoch, self._sequence = producer_id, epoch, 0
        self._known_by = -1

    def sendable(self, now: float, node: int) -> ProducerBatch | None:
        """The batch that may be sent to the leader `node` now."""
        if now < self.not_before or self.in_flight >= self._allowed(now, node):
            return None
        if self.in_flight and (self._stalled or node != self.node):
            return None  # what is on the wire elsewhere comes first, whatever its fate
        self._stalled = False
        if self.broken and not self.in_flight and not (self.issued and self.issued[0].maybe_written):
            self._start_epoch()
        for batch in self.issued:
            if not batch.on_wire:
                return batch if self._remembered(batch.number) else None
        if self.broken or not self.waiting or self.needs_id or not self._remembered(self._number):
            return None
        return self.waiting[0] if self.waiting[0].ready else None

    def _allowed(self, now: float, node: int) -> int:
        """How many batches may be on the wire."""
        if not self._idempotent or (node == self._known_by and now < self._known_until):
            return self._window
        return 1

    def _remembered(self, number: int) -> bool:
        """Whether the broker will still know the first issued batch when it has written that one, the settled ones
        between them included; else it could not tell that it has the first already."""
        return not self._idempotent or not self.issued or number - self.issued[0].number < REMEMBERED

    def _start_epoch(self) -> None:
        """What was issued is known not to be written: it gets new sequences under a new epoch."""
        for batch in reversed(self.issued):
            batch.sequence = NO_SEQUENCE
            self.waiting.appendleft(batch)
        self.issued.clear()
        self.broken = False
        if self._epoch >= MAX_EPOCH:
            self.exhausted_id, self.producer_id = self.producer_id, NO_PRODUCER
        else:
            self.identify(self.producer_id, self._epoch + 1)

    def sent(self, batch: ProducerBatch, node: int) -> None:
        """The batch that was `sendable` is being sent."""
        if self.waiting and batch is self.waiting[0]:
            self.issued.append(self.waiting.popleft())
            batch.number = self._number
            self._number += 1
            if self._idempotent:
                batch.producer_id, batch.producer_epoch = self.producer_id, self._epoch
                batch.sequence = self._sequence
                self._sequence = (self._sequence + batch.records) % _SEQUENCES
        batch.on_wire = True
        batch.attempts += 1
        self.in_flight += 1
        self.node = node

    # ------------------------------------------------------------ answers; each ends one request

    def answered(self, batch: ProducerBatch) -> bool:
        """A request with this batch is over. Returns whether the batch still waits for an outcome."""
        self.in_flight -= 1
        batch.on_wire = False
        return batch in self.issued

    def written(self, batch: ProducerBatch, now: float, node: int) -> None:
        """It is in the log, the leader `node` says."""
        self.issued.remove(batch)
        self._known_by, self._known_until = node, now + KNOWN_S
        self.failures = 0
        self.not_before = 0.0

    def again(self, batch: ProducerBatch, not_before: float, *, doubtful: bool) -> None:
        """It has to be sent again, not before that time; `doubtful` says that it may have been written."""
        batch.doubtful = batch.doubtful or doubtful
        self._stall(not_before)

    def gap(self, batch: ProducerBatch, not_before: float, *, lost_state: bool) -> None:
        """The broker did not write it, because it misses something before it.

        That is real where nothing before it is unsettled, or the broker has `lost_state`; else it only came too
        early, and is sent again behind the others. Only what nobody expected is waited for.
        """
        batch.doubtful = False
        self._stalled = True
        if not self.broken and (lost_state or batch is self.issued[0]):
            self.broken = True
            self._stall(not_before)

    def _stall(self, not_before: float) -> None:
        self._stalled = True
        self._known_by = -1
        self.failures += 1
        self.not_before = max(self.not_before, not_before)

    def replaced(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Smaller batches of the same records take its place, and its sequences.

        Where it may have been written as a whole, a broker that has it does not know them as duplicates.
        """
        at = self.issued.index(batch)
        sequence = batch.sequence
        for later in self.issued[at + 1 :]:
            later.number += len(parts) - 1
        self._number += len(parts) - 1
        for number, part in enumerate(parts, batch.number):
            part.number = number
            part.maybe_whole = batch.maybe_written
            part.producer_id, part.producer_epoch = batch.producer_id, batch.producer_epoch
            if self._idempotent:
                part.sequence = sequence
                sequence = (sequence + part.records) % _SEQUENCES
        self.issued[at : at + 1] = parts
        self._stalled = True

    def refused(self, batch: ProducerBatch) -> None:
        """The broker, which answers, won't ever take it."""
        self.given_up(batch)
        self.failures = 0
        self.not_before = 0.0

    def given_up(self, batch: ProducerBatch) -> None:
        """It failed for good, or its time is over. What was issued behind it gets new sequences if need be."""
        if batch in self.issued:
            self.issued.remove(batch)
            self.broken = self._idempotent
        else:
            self.waiting.remove(batch)
