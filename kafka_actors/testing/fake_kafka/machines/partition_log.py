"""The log of one partition: batches in the order of their offsets, leader epochs, the producers that wrote them.

Theory of operation. Arrives: batches of producers, markers of coordinators, questions by offset, time or
epoch. `append` checks batches as Kafka's `UnifiedLog` and `LogValidator` do, gives them offsets, and keeps
them. All replicas share this one log, so what is appended is committed at once: the high watermark is the
end, and followers are never behind.

- `read` returns whole bytes from the batch of an offset on, cut at the limit even within a batch. A batch
  comes as it is stored, though the reader's offset may lie in its middle: clients leave out what they have.
- Readers of committed transactions read up to the last stable offset, where the oldest open transaction
  begins, and are told which transactions were aborted. Which of them is looked up in an index with an entry
  after every 4 KiB, as in Kafka, so more may be told than were needed.
- Leader epochs are a list of (epoch, first offset). `end_of_epoch` answers consumers that compare their log
  with this one.
- What shortens a log happens only when it is asked for: `retain` (retention), `delete_before` (DeleteRecords),
  `truncate` (an unclean election), `compact` (one run of the log cleaner). A log has no clock: the cluster
  asks for `retain` as time passes.
- Producers' states follow the log: they are rebuilt when it is truncated, and outlive records that are
  deleted.

Batches are found by bisection over their last offsets.

Source: `UnifiedLog`, `LogValidator`, `LeaderEpochFileCache`, `TransactionIndex`, `OffsetIndex`; KIP-101,
KIP-74, KIP-98.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from kafka_actors import errors

from .error_answers import Refused
from .log_segments import LogSegments, Retention
from .producer_state import EndedTransaction, ProducerStates
from .record_batches import BatchRecord, StoredBatch, marker, readable

_UNKNOWN = -1
_INDEX_INTERVAL = 4_096


class LogLimits(Struct, frozen=True):
    """Settings of a topic that `append` keeps; names and meanings are Kafka's, times in ms."""

    max_message_bytes: int = 1_048_588
    log_append_time: bool = False
    compacted: bool = False
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 2**63 - 1
    retention: Retention = Retention()


class Appended(NamedTuple):
    """Outcome of an append: `append_time` in ms is -1 under CreateTime, but a duplicate's is its timestamp, as in Kafka."""

    base_offset: int
    append_time: int


class FoundOffset(NamedTuple):
    """An offset with the timestamp of its record (-1 for none) and the leader epoch (-1 for unknown)."""

    offset: int
    timestamp: int
    leader_epoch: int


class InvalidRecords(Refused):
    """Records are refused one by one: `indexes` are their places in the batch."""

    def __init__(self, error: type[errors.KafkaError], indexes: list[int], text: str) -> None:
        super().__init__(error, text)
        self.indexes = indexes


class PartitionLog:
    """The batches of one partition."""

    def __init__(self, producers: ProducerStates | None = None) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.producers = producers or ProducerStates()
        self._batches: list[StoredBatch] = []
        self._last_offsets: list[int] = []
        self._epochs: list[tuple[int, int]] = []
        self._aborted: list[EndedTransaction] = []
        self._newest: StoredBatch | None = None
        self._segments = LogSegments()

    @property
    def batches(self) -> list[StoredBatch]:
        """All batches that are kept, the oldest first."""
        return list(self._batches)

    @property
    def stable_offset(self) -> int:
        """The last stable offset: up to it all transactions have ended."""
        first = self.producers.first_open_offset
        return self.end_offset if first is None else max(first, self.start_offset)

    def records(self, *, committed: bool = False) -> list[BatchRecord]:
        """Returns all records but transactions' ends; committed: without those of open and aborted transactions."""
        end = self.stable_offset if committed else self.end_offset
        return [
            record
            for batch in self._batches
            if not batch.is_control and not (committed and self._is_aborted(batch))
            for record in batch.records()
            if self.start_offset <= record.offset < end
        ]

    def _is_aborted(self, batch: StoredBatch) -> bool:
        return batch.is_transactional and any(
            txn.producer_id == batch.producer_id and txn.first_offset <= batch.base_offset <= txn.last_offset
            for txn in self._aborted
        )

    # ---------------------------------------------------------------- writing

    def append(self, batch: StoredBatch, leader_epoch: int, limits: LogLimits, now_ms: int) -> Appended:
        """Writes a batch as a producer has sent it. Raises `Refused`."""
        self._check_batch(batch, limits)
        self._check_records(batch, limits, now_ms)
        placed = batch.placed(self.end_offset, leader_epoch, now_ms if limits.log_append_time else None)
        if (duplicate := self.producers.admit(placed, now_ms)) is not None:
            return Appended(duplicate.first_offset, duplicate.timestamp)
        self._segments.set_retention(limits.retention)
        self._add(placed)
        return Appended(placed.base_offset, now_ms if limits.log_append_time else _UNKNOWN)

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        coordinator_epoch: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Writes the marker of a transaction's end."""
        batch = marker(
            producer_id,
            producer_epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            now_ms=now_ms,
        )
        self._add(batch.placed(self.end_offset, leader_epoch))

    def _check_batch(self, batch: StoredBatch, limits: LogLimits) -> None:
        """Refuses what no header of a new batch may say (`LogValidator`, `UnifiedLog.analyzeAndValidateRecords`)."""
        if batch.base_offset != 0:
            raise Refused(errors.InvalidRecordError, "the base offset of a new batch is 0")
        if batch.size > limits.max_message_bytes:
            raise Refused(errors.MessageTooLargeError)
        if not batch.is_valid:
            raise Refused(errors.CorruptMessageError)
        if batch.last_delta < 0 or batch.count <= 0 or batch.last_delta + 1 != batch.count:
            raise Refused(
                errors.InvalidRecordError, "the offsets of the batch do not fit its number of records"
            )
        if batch.is_control:
            raise Refused(errors.InvalidRecordError, "clients may not write control records")
        if not batch.is_readable:
            raise Refused(errors.InvalidRecordError, "the records are not those of the header")
        if batch.producer_id >= 0 and batch.base_sequence < 0:
            raise Refused(errors.InvalidRecordError, "a batch with a producer id has a sequence")

    def _check_records(self, batch: StoredBatch, limits: LogLimits, now_ms: int) -> None:
        """Looks at what single records say, where the header leaves it open whether all are good."""
        if batch.log_append_time and limits.log_append_time:
            raise InvalidRecords(errors.InvalidTimestampError, [*range(batch.count)], "LogAppendTime is set")
        earliest, latest = now_ms - limits.timestamp_before_max_ms, now_ms + limits.timestamp_after_max_ms
        bounded = not limits.log_append_time and (
            batch.max_timestamp > latest or limits.timestamp_before_max_ms < now_ms
        )
        if not bounded and not limits.compacted:
            return
        records = list(batch.records())
        keyless = [i for i, r in enumerate(records) if limits.compacted and r.key is None]
        outside = [
            i
            for i, r in enumerate(records)
            if bounded and r.timestamp != _UNKNOWN and not earliest <= r.timestamp <= latest
        ]
        if outside:
            refused = sorted({*keyless, *outside})
            raise InvalidRecords(errors.InvalidTimestampError, refused, "timestamps are out of range")
        if keyless:
            raise InvalidRecords(errors.InvalidRecordError, keyless, "a compacted topic needs keys")

    def _add(self, batch: StoredBatch) -> None:
        """Adds a batch that has its place, with what it means for producers, transactions and epochs."""
        self.begin_epoch(batch.leader_epoch)
        self._batches.append(batch)
        self._last_offsets.append(batch.last_offset)
        self._segments.add(batch)
        self.end_offset = batch.last_offset + 1
        if self._newest is None or batch.max_timestamp > self._newest.max_timestamp:
            self._newest = batch
        ended = self.producers.written(batch)
        if ended is not None and not batch.commits:
            self._aborted.append(ended)

    # ---------------------------------------------------------------- reading

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool, committed: bool = False) -> bytes:
        """Returns bytes from the batch of `offset` on, `max_bytes` at most, cut where that is within a batch.

        `at_least_one`: the first batch is whole, whatever its size; otherwise nothing is returned where it does not fit.
        `committed`: nothing from the last stable offset on. Raises `Refused` for an offset outside of the log.
        """
        self.check_offset(offset)
        at = bisect_left(self._last_offsets, offset)
        end = len(self._batches)
        if committed:
            end = bisect_left(self._last_offsets, self.stable_offset)
        if at >= end:
            return b""
        first = self._batches[at].data
        if len(first) > max_bytes:
            return first if at_least_one else b""
        out = bytearray()
        for batch in self._batches[at:end]:
            out += batch.data[: max_bytes - len(out)]
            if len(out) >= max_bytes:
                break
        return bytes(out)

    def bytes_from(self, offset: int, *, committed: bool = False) -> int:
        """Bytes from the batch of `offset` to the end, or to the last stable offset."""
        first = bisect_left(self._last_offsets, offset)
        end = bisect_left(self._last_offsets, self.stable_offset) if committed else len(self._batches)
        return sum(batch.size for batch in self._batches[first:end])

    def aborted(self, offset: int, size: int) -> list[EndedTransaction]:
        """Returns the aborted transactions that readers of `size` bytes from `offset` on have to know.

        Kafka looks for the upper end in an index that has an entry after every 4 KiB of the log, so it may tell more of them.
        """
        upper = self._upper_bound(offset, size)
        found = []
        for txn in self._aborted:
            if txn.last_offset >= offset and txn.first_offset < upper:
                found.append(txn)
            if txn.stable_offset >= upper:
                break
        return found

    def _upper_bound(self, offset: int, size: int) -> int:
        """Returns the offset up to which Kafka's index says that so many bytes reach: it has an entry after
        every 4 KiB.
        """
        position = since = 0
        start: int | None = None
        for batch in self._batches:
            if start is None and batch.last_offset >= offset:
                start = position
            if since > _INDEX_INTERVAL:
                if start is not None and position >= start + size:
                    return batch.last_offset
                since = 0
            position += batch.size
            since += batch.size
        return self.end_offset

    def check_offset(self, offset: int) -> None:
        """Raises `Refused` for an offset outside of the log."""
        if not self.start_offset <= offset <= self.end_offset:
            raise Refused(errors.OffsetOutOfRangeError)

    def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """Returns the first record that is not older than `timestamp` (ms); None where all are older."""
        for batch in self._batches:
            if batch.max_timestamp >= timestamp and batch.last_offset >= self.start_offset:
                for record in readable(batch) or ():
                    if record.timestamp >= timestamp and record.offset >= self.start_offset:
                        return FoundOffset(record.offset, record.timestamp, batch.leader_epoch)
        return None

    def offset_of_max_timestamp(self) -> FoundOffset | None:
        """Returns the first record with the largest timestamp (KIP-734), None in an empty log; also one that was deleted since: it is
        in the segment still, and there is one."""
        batch = self._newest
        if batch is None:
            return None
        offset = next((r.offset for r in readable(batch) or () if r.timestamp == batch.max_timestamp), None)
        return None if offset is None else FoundOffset(offset, batch.max_timestamp, batch.leader_epoch)

    # ---------------------------------------------------------------- leader epochs

    def begin_epoch(self, epoch: int) -> None:
        """Notes that a leader epoch begins at the end of the log, unless that is known."""
        if not self._epochs or self._epochs[-1][0] < epoch:
            while self._epochs and self._epochs[-1][1] >= self.end_offset:
                self._epochs.pop()
            self._epochs.append((epoch, self.end_offset))

    @property
    def earliest_epoch(self) -> int:
        """Epoch at the start of the log, -1 where it is not known."""
        return self._epochs[0][0] if self._epochs and self._epochs[0][1] <= self.start_offset else _UNKNOWN

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns the largest epoch up to `epoch` and its end offset; (-1, -1) where `epoch` is later than all."""
        if epoch == _UNKNOWN or not self._epochs:
            return _UNKNOWN, _UNKNOWN
        if epoch == self._epochs[-1][0]:
            return epoch, self.end_offset
        above = bisect_right(self._epochs, epoch, key=lambda entry: entry[0])
        if above == len(self._epochs):
            return _UNKNOWN, _UNKNOWN
        return (self._epochs[above - 1][0] if above else epoch), self._epochs[above][1]

    # ---------------------------------------------------------------- what shortens a log

    def retain(self, retention: Retention, now_ms: int) -> bool:
        """Deletes the segments that a topic's retention keeps no longer. Returns whether there were any."""
        self._segments.set_retention(retention)
        start = self._segments.start_after_retention(now_ms)
        if start <= self.start_offset:
            return False
        self.delete_before(start)
        return True

    def delete_before(self, offset: int) -> None:
        """Moves the start of the log; whole batches before it are dropped. Producers stay known, as in Kafka since 2.4."""
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self._segments.drop_before(offset)
        gone = bisect_left(self._last_offsets, offset)
        del self._batches[:gone]
        del self._last_offsets[:gone]
        behind = bisect_right(self._epochs, offset, key=lambda entry: entry[1])
        if behind:
            self._epochs[:behind] = [(self._epochs[behind - 1][0], offset)]

    def truncate(self, offset: int) -> None:
        """Drops the batches that reach to `offset` or beyond it, as an unclean election does, and forgets who wrote them. The log then ends
        where a batch began, since replicas have whole batches."""
        kept = bisect_left(self._last_offsets, offset)
        first = max(self._batches[0].base_offset, self.start_offset) if self._batches else self.end_offset
        del self._batches[kept:]
        del self._last_offsets[kept:]
        self.end_offset = self._last_offsets[-1] + 1 if self._last_offsets else min(offset, first)
        self.start_offset = min(self.start_offset, self.end_offset)
        self._epochs = [entry for entry in self._epochs if entry[1] < self.end_offset]
        self._newest = max(self._batches, key=lambda b: b.max_timestamp, default=None)
        self._aborted = [txn for txn in self._aborted if txn.last_offset < self.end_offset]
        self._segments.rebuild(self._batches)
        self.producers.rebuild(self._batches)

    def compact(self, *, keep_tombstones: bool = True) -> None:
        """Keeps of each key its last record, of all but the last batch, as one run of the log cleaner; offsets stay.

        Transactions' ends stay; records of aborted ones go, and those from the last stable offset on are left alone.

        Tombstones go where `keep_tombstones` is False. Of a producer's last batch an empty one stays, so that its sequence
        is known after a restart.
        """
        stable = min(bisect_left(self._last_offsets, self.stable_offset), max(len(self._batches) - 1, 0))
        closed, active = self._batches[:stable], self._batches[stable:]
        latest: dict[bytes, int] = {}
        for batch in closed:
            for record in self._readable_of(batch):
                if record.key is not None:
                    latest[record.key] = record.offset
        last_of_producer = {b.producer_id: b.base_offset for b in self._batches if b.producer_id >= 0}
        kept: list[StoredBatch] = []
        for batch in closed:
            if batch.is_control:
                kept.append(batch)
                continue
            records = [
                r
                for r in self._readable_of(batch)
                if r.key is not None
                and latest[r.key] == r.offset
                and (keep_tombstones or r.value is not None)
            ]
            if len(records) == batch.count:
                kept.append(batch)
            elif records or last_of_producer.get(batch.producer_id) == batch.base_offset:
                kept.append(batch.with_only(records))
        self._keep([*kept, *active])

    def _readable_of(self, batch: StoredBatch) -> Iterable[BatchRecord]:
        return () if batch.is_control or self._is_aborted(batch) else batch.records()

    def _keep(self, batches: Iterable[StoredBatch]) -> None:
        self._batches = list(batches)
        self._last_offsets = [batch.last_offset for batch in self._batches]
        self._segments.rebuild(self._batches)
        self._newest = max(self._batches, key=lambda b: b.max_timestamp, default=None)
