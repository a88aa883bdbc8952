"""`PartitionQueue`: one partition's batches in order, and their sequences (KIP-98, KIP-360).

A batch is `waiting` until it is sent for the first time, then `issued` until it is settled; issued batches on the wire come
first. After a failure nothing is sent until all requests on the wire are answered. Then all issued batches go out again, in
order and with the same sequences, so that the broker drops those that it has already.

Sequences are counted per partition, under the producer's id and an epoch of the queue's own: without transactions brokers compare
epochs partition by partition. The chain of sequences is `broken` when a batch failed for good or the broker lost its
state. Then a new epoch begins with sequence 0, but only when no issued batch may be in the log. Otherwise records could be there twice,
under both epochs. None behind a batch that was never written can be there.

A broker that says that it misses what came before a batch may have it nevertheless: when it starts again, it remembers only the last
batch of a producer, of any earlier one it says the same. So all doubtful batches are sent again in turn. One that is acknowledged
follows, or is, the last one that the log has, so that all before it are in the log, too (`written`). Those before one that is acknowledged by
a leader that knows the producer are sent again for their offsets alone (`followed`). Not where that leader has refused an earlier one
meanwhile: the topic may have been made anew, and its log has begun with the later one.

A leader that misses what came before a batch speaks for its own log. Where the batch was doubtful, another replica may have it, and
lead next, before what this leader writes is on all replicas in sync. So the new epoch is on trial until its first batch is acknowledged: that
needs all replicas in sync, which then have this leader's log. Until then the queue goes back to the former sequences (`_Trial`) whenever an
attempt fails or another node leads, and asks that leader anew. Where the first batch was written under the new epoch after all, the
broker refuses the former one (INVALID_PRODUCER_EPOCH), and the same batch is tried again with the same sequence of the new one.

That none is behind a batch that was never written holds as long as the broker knows the producer. Of a producer that it doesn't know it takes any first
sequence (`ProducerAppendInfo.checkSequence`), so also the second batch where the first was refused. So one batch at a time is on
the wire until the leader has acknowledged one under this id and epoch, and again after each failure, with each new leader or topic id,
and where the last acknowledgement is `KNOWN_S` old.

A broker remembers the last five batches of a producer and partition. So no batch is sent that would make it forget an earlier one
whose fate isn't known (`_remembered`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from kafka_actors.types import TopicPartition

from .batch import NO_PRODUCER, NO_SEQUENCE, ProducerBatch

MAX_EPOCH = 2**15 - 1
REMEMBERED = 5
"""Batches of a producer that a broker remembers per partition, to tell one that it has already."""
KNOWN_S = 60.0
"""Seconds after an acknowledgement for which a broker is relied upon to know the producer. It forgets one whose last record is
older than its `producer.id.expiration.ms`, a day by default."""
_SEQUENCES = 2**31
"""Number of sequences: they go from 0 to 2^31 - 1 and then start again."""


class Leader(NamedTuple):
    """The node that leads a partition, and its topic's id, None where brokers give none. A topic with another id, which was recreated, has another
    log, of which nobody knows the producer."""

    node: int
    topic_id: bytes | None = None


NOBODY = Leader(-1)


class _Issued(NamedTuple):
    """A batch with its sequence and its position among those issued."""

    batch: ProducerBatch
    sequence: int
    number: int


class _Trial(NamedTuple):
    """The former id, epoch and next sequence of a queue, and the batches issued under them, while no batch of its new epoch is
    acknowledged."""

    producer_id: int
    epoch: int
    next_sequence: int
    issued: tuple[_Issued, ...]


class PartitionQueue:
    """The unsettled batches of one partition. `window`: the most that may be on the wire. `transactional`: the epoch is the
    transaction's, so that a broken chain ends in its abort, and it doesn't matter what was written behind a lost batch."""

    def __init__(
        self, partition: TopicPartition, *, idempotent: bool, window: int, transactional: bool = False
    ) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        self.issued: list[ProducerBatch] = []
        self.in_flight = 0
        """Requests on the wire with a batch of this partition, also one that failed meanwhile."""
        self.leader = NOBODY
        self.not_before = 0.0
        self.failures = 0
        self.broken = False
        self._stalled = False
        self._idempotent = idempotent
        self._window = window
        self._transactional = transactional
        self.producer_id = NO_PRODUCER
        self.exhausted_id = NO_PRODUCER
        """A producer id whose last epoch is used up here."""
        self._epoch = NO_PRODUCER
        self._sequence = 0
        self._any_denied = False
        """Whether a batch is denied, or an epoch is on trial because of one."""
        self._trial: _Trial | None = None
        self._newest = (NO_PRODUCER, NO_PRODUCER)
        """The id and epoch that came last, also where the queue went back to a former one."""
        self._tried: ProducerBatch | None = None
        """The batch that was sent under them with sequence 0, where that was on trial and may have been written."""
        self._known_by = NOBODY
        """The leader that has acknowledged a batch under this id and epoch, `NOBODY` where none has since the last failure."""
        self._known_until = 0.0
        self._number = 0  # of the next batch to be issued

    @property
    def empty(self) -> bool:
        """Whether no batch waits or is unsettled."""
        return not (self.waiting or self.issued or self.in_flight)

    def oldest(self) -> ProducerBatch | None:
        """Returns the first batch that is not settled."""
        if self.issued:
            return self.issued[0]
        return self.waiting[0] if self.waiting else None

    @property
    def needs_id(self) -> bool:
        """Whether nothing can be sent before `identify`."""
        return self._idempotent and self.producer_id == NO_PRODUCER

    def identify(self, producer_id: int, epoch: int) -> None:
        """Counts sequences under this producer id from now on, starting at 0."""
        self.producer_id, self._epoch, self._sequence = producer_id, epoch, 0
        self._newest = producer_id, epoch
        self._known_by = NOBODY

    def sendable(self, now: float, leader: Leader) -> ProducerBatch | None:
        """Returns the batch that may be sent to the leader now, None if none may."""
        if now < self.not_before or self.in_flight >= self._allowed(now, leader):
            return None
        if self.in_flight and (self._stalled or leader != self.leader):
            return None  # batches on the wire elsewhere are answered first
        self._stalled = False
        if leader != self.leader:
            self._ask_anew()
        if self.broken and not (self._transactional or self.in_flight) and not self._in_doubt():
            self._start_epoch()
        for batch in self.issued:
            if not batch.on_wire and (batch.doubtful or not self.issued[0].denied):
                return batch if self._remembered(batch.number) else None
        if self.broken or not self.waiting or self.needs_id or not self._remembered(self._number):
            return None
        return self.waiting[0] if self.waiting[0].ready else None

    def _in_doubt(self) -> bool:
        """Whether a batch may be in the log under its present sequence: the first, or one behind it where the leader has denied that."""
        if not self.issued:
            return False
        first, *others = self.issued
        if first.doubtful or first.followed or first.maybe_whole:
            return True
        return first.denied and any(b.doubtful for b in others)

    def _allowed(self, now: float, leader: Leader) -> int:
        """Returns how many batches may be on the wire."""
        if not self._idempotent or self._transactional:
            return self._window
        if leader == self._known_by and now < self._known_until:
            return self._window
        return 1

    def _remembered(self, number: int) -> bool:
        """Whether the broker will still know the first issued batch when it has written that one, the settled ones
        between them included; else it could not tell that it has the first already."""
        if not (self._idempotent and self.issued) or self.issued[0].denied:
            return True
        return number - self.issued[0].number < REMEMBERED

    def _start_epoch(self) -> None:
        """Gives issued batches, which the leader says are not written, new sequences under a new epoch."""
        first = self.issued[0] if self.issued else None
        if any(batch.denied for batch in self.issued):
            former = tuple(_Issued(b, b.sequence, b.number) for b in self.issued)
            self._trial = _Trial(self.producer_id, self._epoch, self._sequence, former)
        for batch in reversed(self.issued):
            batch.sequence = NO_SEQUENCE
            self.waiting.appendleft(batch)
        self.issued.clear()
        self.broken = False
        newest_id, newest_epoch = self._newest
        if first is not None and first is self._tried:
            self.identify(newest_id, newest_epoch)
        elif newest_epoch >= MAX_EPOCH:
            self.exhausted_id, self.producer_id = newest_id, NO_PRODUCER
        else:
            self.identify(newest_id, newest_epoch + 1)

    def _ask_anew(self) -> None:
        """Has the next leader asked for what another one has denied, with the sequences that it may know."""
        if self._trial is not None:
            self._end_trial(self._trial)
        for batch in self.issued:
            batch.doubtful = batch.doubtful or batch.denied
            batch.denied = False

    def _end_trial(self, trial: _Trial) -> None:
        """Goes back to the former epoch with the batches that are not settled. At most the first was sent since."""
        self._trial = None
        self._tried = self.issued[0] if self.issued else None
        unsettled = [*self.issued, *islice(self.waiting, len(trial.issued))]
        former = [one for one in trial.issued if one.batch in unsettled]
        for batch, sequence, number in former:
            if batch in self.issued:
                self.issued.remove(batch)
            else:
                self.waiting.remove(batch)
            batch.producer_id, batch.producer_epoch = trial.producer_id, trial.epoch
            batch.sequence, batch.number = sequence, number
        self.issued[:0] = [one.batch for one in former]
        self.producer_id, self._epoch, self._sequence = trial.producer_id, trial.epoch, trial.next_sequence
        self._number = trial.issued[-1].number + 1
        self._known_by = NOBODY
        self.broken = True

    def sent(self, batch: ProducerBatch, leader: Leader) -> None:
        """Notes that the batch that was `sendable` is being sent."""
        if self.waiting and batch is self.waiting[0]:
            self.issued.append(self.waiting.popleft())
            batch.number = self._number
            self._number += 1
            if self._idempotent:
                batch.producer_id, batch.producer_epoch = self.producer_id, self._epoch
                batch.sequence = self._sequence
                self._sequence = (self._sequence + batch.records) % _SEQUENCES
        batch.on_wire = True
        batch.chained = self._idempotent and leader == self._known_by
        batch.attempts += 1
        self.in_flight += 1
        self.leader = leader

    # ------------------------------------------------------------ answers; each ends one request

    def answered(self, batch: ProducerBatch) -> bool:
        """Notes that a request with this batch is over. Returns whether the batch still waits for an outcome."""
        self.in_flight -= 1
        batch.on_wire = False
        return batch in self.issued

    def written(self, batch: ProducerBatch, now: float, leader: Leader) -> list[ProducerBatch]:
        """Settles a batch that is in the log, as the leader says. Returns those before it that the leader has denied: they are in the
        log, too, and are settled with it."""
        denied: list[ProducerBatch] = []
        if batch is self.issued[0]:
            del self.issued[0]
        else:
            before = self.issued[: self.issued.index(batch)]
            if before[0].denied:
                denied = before
            elif batch.chained:
                for earlier in before:
                    earlier.followed = True
            del self.issued[len(before)]
            del self.issued[: len(denied)]
        if self._any_denied:
            self._confirm()
        self._known_by, self._known_until = leader, now + KNOWN_S
        self.failures = 0
        self.not_before = 0.0
        return denied

    def _confirm(self) -> None:
        """Notes that all replicas in sync have the log of the leader that has denied batches."""
        if self._trial is not None:
            for one in self._trial.issued:
                one.batch.denied = False
        for batch in self.issued:
            batch.denied = False
        self._trial = self._tried = None
        self._any_denied = False

    def again(
        self, batch: ProducerBatch, not_before: float, *, doubtful: bool, appended: bool = False
    ) -> None:
        """Has a batch sent again, not before that time; `doubtful` says that it may have been written, `appended` that this leader had it in
        its log. Where that isn't said, those on the wire behind it may be the first that a log of a topic made anew gets of this producer."""
        batch.doubtful = batch.doubtful or doubtful
        if not appended:
            for later in self.issued:
                later.chained = False
        self._ask_anew()
        self._stall(not_before)

    def gap(self, batch: ProducerBatch, not_before: float, *, lost_state: bool) -> None:
        """Has a batch sent again that the broker did not write because it lacks a sequence before it.

        Where no batch before it is unsettled, or the broker has `lost_state`, the chain is broken. Else the batch only came too
        early, and is sent again behind the others, without a backoff.
        """
        batch.denied = (batch.denied or batch.doubtful) and not (self._transactional or batch.maybe_whole)
        batch.doubtful = False
        self._any_denied = self._any_denied or batch.denied
        self._stalled = True
        if self._trial is not None:
            self._ask_anew()
            self._tried = None
            self._stall(not_before)
        elif not self.broken and (lost_state or batch is self.issued[0]):
            self.broken = True
            self._stall(not_before)

    def _stall(self, not_before: float) -> None:
        self._stalled = True
        self._known_by = NOBODY
        self.failures += 1
        self.not_before = max(self.not_before, not_before)

    def replaced(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Puts smaller batches of the same records in the place of a batch, with its sequences.

        Where it may have been written as a whole, the broker doesn't recognise them as duplicates.
        """
        if self._trial is not None:
            self._ask_anew()
        at = self.issued.index(batch)
        if batch.doubtful and self.issued[0].denied:
            for earlier in self.issued[:at]:  # nobody can find out any more
                earlier.denied, earlier.maybe_whole = False, True
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
        """Settles a batch that the broker refused for good; the broker answers, so there is no backoff."""
        self.fail(batch)
        self.failures = 0
        self.not_before = 0.0

    def fail(self, batch: ProducerBatch) -> None:
        """Settles a batch that failed for good, or whose time is over. Batches issued behind it get new sequences if need be."""
        if batch in self.issued:
            self.issued.remove(batch)
            self.broken = self._idempotent
        else:
            self.waiting.remove(batch)
        if self._trial is not None:
            self._ask_anew()
        if batch is self._tried:
            self._tried = None
