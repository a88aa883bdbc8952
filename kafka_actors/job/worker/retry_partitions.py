"""`RetryPartitions`: the retry partitions of one worker, which it has with their source partitions (`job/retry_topics.py`).

A retry partition is read like any other, up to a record that isn't due: it is set aside until then, which takes no caller. With
`keep_order` a worker has to know which keys wait before it processes anything of a partition that it was given. So its retry partitions are
read to their ends first, as the leader says where these are, and only keys are kept (`machines/waiting_keys.py`); then they are read again from
where they were. Meanwhile the partition and all that goes with it are paused.

What another worker, taken for dead, writes behind these ends does no harm: it hasn't committed it, so the records are here as well, and come
first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from kafka_actors.base.batches import numbers, rows_of
from kafka_actors.base.callables import described
from kafka_actors.errors import UsageError
from kafka_actors.events import EventSink, RecordsRetriedLater
from kafka_actors.fetch import FetchedBytes
from kafka_actors.job.messages import GrantEpoch
from kafka_actors.job.retry_topics import NOT_DUE, READS_AHEAD
from kafka_actors.records import Chunk
from kafka_actors.types import TopicPartition

from .calls import RECHECK_S
from .machines.rebatch import without
from .machines.record_window import ConcurrentCall, RecordWindow, WindowChunk
from .machines.waiting_keys import WaitingKeys
from .machines.worker_assignment import WorkerAssignment
from .outputs import Outputs
from .processing_thread import MovableRecords
from .slice_records import records_of_slice
from .user_function import CallFailed

if TYPE_CHECKING:
    from kafka_actors.producer.futures import BatchFuture
    from kafka_actors.sinks.dead_letters import WaitingRecords

__all__ = ["NoRetryPartitions", "RetryPartitions", "as_they_were"]

LOOKED_AT = 256  # records together, for when they are due
SOONEST_MS = 50
"""Shortest time for which a partition is set aside: it is decoded anew afterwards."""
BEHIND = "it comes behind a record of its key that waits"


def as_they_were(batch: pa.RecordBatch) -> WaitingRecords:
    """Returns records of a retry partition as they were first read."""
    from kafka_actors.sinks import dead_letters  # imports a producer, as most jobs don't

    return dead_letters.as_they_were(batch)


class _ReadAhead:
    """Reading of one retry partition to its end, from `start` on. `end` is None while it isn't known."""

    def __init__(self) -> None:
        self.start: int | None = None
        self.end: int | None = None


class _Group:
    """A source partition under one grant, and what goes with it. `reading`: retry partitions that are not read to their ends yet; until they
    are, `paused` ones wait. `resets`: how often the position in each retry partition was reset."""

    def __init__(self, keys: WaitingKeys | None, resets: dict[TopicPartition, int]) -> None:
        self.keys = keys
        self.reading = {} if keys is None else {partition: _ReadAhead() for partition in resets}
        self.paused: set[TopicPartition] = set()
        self.resets = resets


class NoRetryPartitions:
    """The retry partitions of a worker whose job has none."""

    keep_order = False
    """Whether records follow earlier ones of their keys."""

    def look(self) -> None: ...
    def idle_s(self) -> float:
        return float("inf")

    def takes(self, fetched: FetchedBytes) -> bool:
        return False

    def tier(self, partition: TopicPartition) -> int:
        return 0

    def due(self, partition: TopicPartition, chunk: Chunk) -> Chunk:
        return chunk

    def set_aside(self, partition: TopicPartition) -> None: ...
    def behind(self, call: ConcurrentCall) -> dict[int, tuple[int, int]]:
        return {}

    def follow(self, call: ConcurrentCall, behind: dict[int, tuple[int, int]]) -> None: ...
    def retry_later(self, call: ConcurrentCall, failure: CallFailed, attempts: int) -> bool:
        return False

    def done(self, chunk: WindowChunk, rows: Iterable[int]) -> None: ...
    def forget(self, partitions: Iterable[TopicPartition]) -> None: ...
    def blocked(self, partition: TopicPartition) -> str:
        return ""


class RetryPartitions(NoRetryPartitions):
    """Decides when retry partitions are read, and writes into them. `lock` guards `assignment`. `wall`: seconds since 1970."""

    def __init__(
        self,
        assignment: WorkerAssignment,
        lock: threading.Lock,
        reader: MovableRecords,
        outputs: Outputs,
        events: EventSink,
        lanes: int,
        wall: Callable[[], float],
    ) -> None:
        self._tiers = outputs.tiers
        self.keep_order = outputs.tiers.keep_order
        self._assignment = assignment
        self._lock = lock
        self._reader = reader
        self._outputs = outputs
        self._events = events
        self._lanes = lanes
        self._wall = wall
        self._groups: dict[tuple[TopicPartition, GrantEpoch], _Group] = {}
        self._reading: dict[TopicPartition, tuple[GrantEpoch, _Group]] = {}
        """Source partitions whose retry partitions are read ahead: looking at all, for each item, would take long where there are thousands."""
        self._seen: object = None
        self._not_due: dict[TopicPartition, int] = {}
        """Partitions that are set aside, and until when, in milliseconds since 1970."""
        self._next_due = float("inf")  # the first of these times, or one before it
        self._beyond: set[TopicPartition] = set()
        """Partitions with records behind where a bounded run ends, which are set aside."""
        self._keys_lock = threading.Lock()

    # ------------------------------------------------------------ which partitions are read, in the thread that admits records

    def look(self) -> None:
        """Goes on with partitions that are due, and with reading ahead."""
        self._follow()
        now = self._wall() * 1000
        if now >= self._next_due:
            for partition in [partition for partition, due in self._not_due.copy().items() if due <= now]:
                self._not_due.pop(partition, None)
                self._resume(partition)
            self._next_due = min(self._not_due.copy().values(), default=float("inf"))
        for home, (epoch, group) in list(self._reading.items()):
            for partition, ahead in list(group.reading.items()):
                with suppress(UsageError):  # it was taken away meanwhile
                    if self._is_read(partition, epoch, ahead):
                        del group.reading[partition]
            if not group.reading:
                while group.paused:
                    self._resume(group.paused.pop())
                del self._reading[home]

    def idle_s(self) -> float:
        """Returns after how many seconds to look again, at the latest."""
        return RECHECK_S if self._reading else max(RECHECK_S, self._next_due / 1000 - self._wall())

    def _follow(self) -> None:
        """Takes over what orders have changed."""
        with self._lock:
            every = self._assignment.held
            seen = self._assignment.seen, len(every), self._assignment.resets
            if seen == self._seen:
                return
            self._seen = seen
            held = {
                (partition, each.begun_under): {
                    behind: every[behind].resets
                    for behind in self._tiers.group(partition)[1:]
                    if behind in every
                }
                for partition, each in every.items()
                if partition.topic == self._tiers.source
            }
        self._groups = {at: group for at, group in self._groups.items() if at in held}
        for at, resets in held.items():
            group = self._groups.get(at)
            if group is None:
                keys = WaitingKeys(len(self._tiers.topics)) if self.keep_order else None
                self._groups[at] = _Group(keys, resets)
            elif group.keys is not None:
                for partition in [each for each, count in resets.items() if count != group.resets.get(each)]:
                    with self._keys_lock:  # another log: what was found in the one before waits no more
                        group.keys.begin_anew(self._tiers.tier(partition.topic))
                    group.reading[partition] = _ReadAhead()
                group.resets = resets
        self._reading = {home: (epoch, each) for (home, epoch), each in self._groups.items() if each.reading}

    def _is_read(self, partition: TopicPartition, epoch: GrantEpoch, ahead: _ReadAhead) -> bool:
        """Takes the next step of reading ahead. Returns whether the partition is read to its end, and begins anew."""
        at = self._reader.position(partition)
        if at is None:
            return False
        with self._lock:
            held = self._assignment.held.get(partition)
            if held is None or held.begun_under != epoch:
                return False
            if ahead.start is None:  # else the end would count as processed
                self._assignment.positioned(partition, at, self._reader.position_epoch(partition))
            start, leader_epoch = held.processed if held.processed is not None else at, held.leader_epoch
        if ahead.start is None:
            ahead.start = start
            self._reader.seek_to_end(partition)
            return False
        if ahead.end is None:
            ahead.end = at
            self._reader.seek(partition, start, leader_epoch)
            return start >= ahead.end
        if at < ahead.end:
            return False
        self._reader.seek(partition, start, leader_epoch)
        return True

    def takes(self, fetched: FetchedBytes) -> bool:
        """Takes fetched records whose time has not come: which keys wait isn't known yet. Returns whether it has taken them."""
        self._follow()
        partition = fetched.partition
        group = self._groups.get((self._tiers.home(partition), fetched.epoch))
        if group is None or not group.reading:
            return False
        ahead = group.reading.get(partition)
        if ahead is not None and ahead.end is not None and group.keys is not None:
            self._read_keys(fetched, group.keys)
            return True
        self._reader.put_back(partition)
        if ahead is None:
            with suppress(UsageError):  # it was taken away meanwhile
                self._reader.pause([partition])
                group.paused.add(partition)
        return True

    def _read_keys(self, fetched: FetchedBytes, keys: WaitingKeys) -> None:
        partition = fetched.partition
        tier = self._tiers.tier(partition.topic)
        for chunk in self._reader.decode(fetched, None):
            with self._lock:
                held = self._assignment.held.get(partition)
                if held is None or held.begun_under != fetched.epoch:
                    return
            batch = without(chunk.batch, held.done, chunk.leader_epoch) if held.done else chunk.batch
            if held.dealt is not None:
                batch, _ = records_of_slice(batch, held.dealt, self._lanes, by_key=True)
            offsets, waiting = numbers(batch["offset"]).tolist(), as_they_were(batch)
            found = zip(batch["key"].to_pylist(), offsets, waiting.not_before, strict=True)
            with self._keys_lock:
                for key, offset, due in found:
                    if key is not None:
                        keys.found(tier, key, offset, due)
            self._reader.consumed(fetched, chunk.next_offset)
        self._reader.consumed(fetched)

    # ------------------------------------------------------------ records that are not due

    def tier(self, partition: TopicPartition) -> int:
        """Returns the tier of a partition, 0 for the source."""
        return self._tiers.tier(partition.topic)

    def due(self, partition: TopicPartition, chunk: Chunk) -> Chunk:
        """Returns the head of a chunk that is due, of one topic, and in front of where a bounded run ends."""
        if not self.tier(partition):
            return chunk
        chunk = self._bounded(partition, chunk)
        size, now, head = chunk.batch.num_rows, self._wall() * 1000, 0
        topic = None
        while head < size:  # what comes behind the first that isn't due needn't be looked at
            waiting = as_they_were(chunk.batch.slice(head, LOOKED_AT))
            topic = topic or waiting.batch["topic"][0].as_py()
            rows = waiting.due(now, topic)
            head += rows
            if rows < len(waiting.not_before):
                if (until := waiting.not_before[rows]) > now:
                    self._not_due[partition] = due = max(until, int(now) + SOONEST_MS)
                    self._next_due = min(self._next_due, due)
                break
        return chunk.first(head)

    def _bounded(self, partition: TopicPartition, chunk: Chunk) -> Chunk:
        with self._lock:
            held = self._assignment.held.get(partition)
        if held is None or held.end_offset is None or chunk.next_offset <= held.end_offset:
            return chunk
        within = int((numbers(chunk.batch["offset"]) < held.end_offset).sum())
        if within < chunk.batch.num_rows:
            self._beyond.add(partition)
        return chunk.first(within)

    def set_aside(self, partition: TopicPartition) -> None:
        """Sets a partition aside until its next record is due, where it isn't, and for good where a bounded run ends."""
        if partition in self._not_due or partition in self._beyond:
            with suppress(UsageError):  # as above
                self._reader.pause([partition])

    # ------------------------------------------------------------ calls, for any thread

    def _keys_of(self, window: RecordWindow) -> WaitingKeys | None:
        group = self._groups.get((self._tiers.home(window.partition), window.epoch))
        return None if group is None else group.keys

    def behind(self, call: ConcurrentCall) -> dict[int, tuple[int, int]]:
        """Returns the rows of a call that have to follow earlier records of their keys, into which tier each, and when it is due there."""
        keys, of = self._keys_of(call.window), call.chunk.keys
        if keys is None or of is None:
            return {}
        tier = self.tier(call.window.partition)
        with self._keys_lock:
            if not len(keys):
                return {}
            found = {row: keys.behind(tier, of[row]) for row in call.rows if of[row] is not None}
        return {row: at for row, at in found.items() if at is not None}

    def follow(self, call: ConcurrentCall, behind: dict[int, tuple[int, int]]) -> None:
        """Writes rows of a call into later tiers. Raises what keeps them from being written."""
        for tier in sorted({tier for tier, _ in behind.values()}):
            rows = {row: due for row, (into, due) in behind.items() if into == tier}
            self._write(call, rows, BEHIND, 0, tier)

    def retry_later(self, call: ConcurrentCall, failure: CallFailed, attempts: int) -> bool:
        """Writes the records of a failed call into the next tier. Returns False where there is none, or it lacks their partition, or another
        try is useless. Raises what keeps them from being written."""
        tier = self.tier(call.window.partition)
        if failure.final or tier == len(self._tiers.topics):
            return False
        error, due = described(failure.cause), int((self._wall() + self._tiers.delays_s[tier]) * 1000)
        if not self._write(call, dict.fromkeys(call.rows, due), error, attempts, tier + 1):
            return False
        at = *call.origin, failure.first, failure.last
        self._events(RecordsRetriedLater(*at, len(call.rows), self._tiers.topics[tier], error))
        return True

    def _write(self, call: ConcurrentCall, due: dict[int, int], reason: str, failed: int, tier: int) -> bool:
        chunk, keys, rows = call.chunk, self._keys_of(call.window), list(due)
        before = chunk.attempts or [0] * len(chunk.offsets)
        attempts = [before[row] + failed for row in rows]
        written: list[Hashable] = []
        if keys is not None and chunk.keys is not None:
            written = [chunk.keys[row] for row in rows]
            with self._keys_lock:  # before it is written, so that nothing of its key is processed meanwhile
                for key, at in zip(written, due.values(), strict=True):
                    if key is not None:
                        keys.writing(tier, key, at)
        batch = rows_of(chunk.batch, rows)
        future = self._outputs.retry_later(batch, [reason] * len(rows), tier, attempts, list(due.values()))
        if keys is not None and future is not None:
            future.add_done_callback(partial(self._written, keys, tier, written))
        return future is not None

    def _written(self, keys: WaitingKeys, tier: int, written: list[Hashable], outcome: BatchFuture) -> None:
        """Takes the offsets of what was written, in the producer's thread. An error stays with the producer: the flush before a commit raises
        it. A broker that doesn't tell the offset leaves its key in doubt, and its records go by this tier."""
        if outcome.failure is not None:
            return
        (ranges,) = outcome.result().partitions.values()
        offsets = [each.first + n if each.first >= 0 else -1 for each in ranges for n in range(each.records)]
        with self._keys_lock:
            for key, offset in zip(written, offsets, strict=True):
                if key is not None and offset >= 0:
                    keys.written(tier, key, offset)

    def done(self, chunk: WindowChunk, rows: Iterable[int]) -> None:
        """Takes that records are done in their tier."""
        keys, tier = self._keys_of(chunk.window), self.tier(chunk.window.partition)
        if keys is None or chunk.keys is None or not tier:
            return
        with self._keys_lock:
            for row in rows:
                keys.done(tier, chunk.keys[row], int(chunk.offsets[row]))

    # ------------------------------------------------------------ the worker's side

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops partitions that other workers have now."""
        for partition in partitions:
            self._not_due.pop(partition, None)
            self._beyond.discard(partition)

    def blocked(self, partition: TopicPartition) -> str:
        """Returns why nothing of a partition is processed; empty if the reason lies elsewhere."""
        if (due := self._not_due.get(partition)) is not None:
            return f"{NOT_DUE}: its next record waits until {datetime.fromtimestamp(due / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        found = self._reading.get(self._tiers.home(partition))
        reading = [] if found is None else [f"{topic}-{n}" for topic, n in list(found[1].reading)]
        return f"{READS_AHEAD}: which keys wait in {', '.join(reading)}" if reading else ""

    def _resume(self, partition: TopicPartition) -> None:
        with suppress(UsageError):  # it was taken away meanwhile
            self._reader.resume([partition])
