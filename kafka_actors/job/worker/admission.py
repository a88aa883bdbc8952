"""`Admission`: fetched records on their way into `RecordsInFlight`, in one thread, as far as there is room and they are due."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from msgspec.structs import replace

from kafka_actors.base.batches import copy_of, numbers
from kafka_actors.errors import UsageError
from kafka_actors.events import DoneOffsetsDropped, EventSink
from kafka_actors.fetch import FetchedBytes
from kafka_actors.records import Chunk
from kafka_actors.types import TopicPartition

from .machines.record_window import RecordWindow, WindowChunk
from .machines.records_in_flight import RecordsInFlight
from .machines.worker_assignment import WorkerAssignment
from .processing_thread import MovableRecords
from .retry_partitions import NoRetryPartitions, as_they_were
from .slice_records import records_of_slice

__all__ = ["Admission"]


class Admission:
    """Admits what was fetched. `lock` guards `in_flight` and `assignment`. `may_begin(window)`: whether its records are still to be worked on;
    `advanced(window)` moves the offset to commit and returns whether a bounded partition ended, which `on_progress(ended)` is told of."""

    def __init__(
        self,
        in_flight: RecordsInFlight,
        assignment: WorkerAssignment,
        lock: threading.Lock,
        reader: MovableRecords,
        retries: NoRetryPartitions,
        events: EventSink,
        *,
        lanes: int,
        may_begin: Callable[[RecordWindow], bool],
        advanced: Callable[[RecordWindow], bool],
        on_progress: Callable[[bool], None],
        clock: Callable[[], float],
    ) -> None:
        self._in_flight = in_flight
        self._assignment = assignment
        self._lock = lock
        self._reader = reader
        self._retries = retries
        self._events = events
        self._lanes = lanes
        self._may_begin = may_begin
        self._advanced = advanced
        self._on_progress = on_progress
        self._clock = clock
        self._full: set[TopicPartition] = set()

    def next(self) -> Iterator[int] | None:
        """Takes what was fetched next of one partition; None where there is nothing. The iterator admits it, and yields how many calls could
        begin. Raises the error of a partition that failed."""
        self._resume_roomy()
        self._retries.look()
        fetched = self._reader.take()
        return None if fetched is None else self._admitted(fetched)

    def _admitted(self, fetched: FetchedBytes) -> Iterator[int]:
        """Admits chunks until the window is full, or a record isn't due."""
        partition = fetched.partition
        if self._retries.takes(fetched):
            return
        with self._lock:
            if not self._assignment.active(partition, fetched.epoch):
                return
            held = self._assignment.held[partition]
            if held.processed is None:
                at = fetched.fetch_offset, self._reader.position_epoch(partition)
                self._assignment.positioned(partition, *at)
            # Not at its first offset: it may have been taken before a reset, and then none of its records are decoded.
            begun = fetched.epoch, held.resets, held.processed or 0
            window = self._in_flight.window(
                partition, *begun, held.done, held.dealt, held.slices, held.leader_epoch
            )
            waits, room = window.waits, self._in_flight.room_bytes(window)
        if waits:
            self._pause(partition)
            return
        # No more is decoded at once than has room, because what is decoded may be in hand for long.
        for whole in self._reader.decode(fetched, self._reader.unpack(fetched, max(1, room))):
            with self._lock:
                chunk = whole.first(max(0, self._in_flight.room(window)))
            chunk = _by_itself(self._retries.due(partition, chunk), whole)
            decoded = self._decoded(window, chunk)
            with self._lock:
                if not self._may_begin(window):
                    return
                passed, void = self._in_flight.admit(decoded, self._clock())
                ended = self._advanced(window) if passed or window.dealt else False
                full, ready = self._in_flight.full(window), self._in_flight.ready(self._clock())
            self._reader.consumed(fetched, chunk.next_offset)
            self._retries.done(decoded, decoded.done_before)
            self._on_progress(ended)
            if void:
                self._events(DoneOffsetsDropped(*partition, chunk.next_offset, "the log was cut since"))
            yield ready
            if full:
                self._pause(partition)
                return
            if chunk.batch.num_rows < whole.batch.num_rows:
                # The rest comes again: calls may have made room since.
                self._retries.set_aside(partition)
                self._reader.put_back(partition)
                return
        with self._lock:
            active = self._assignment.active(partition, fetched.epoch)
        if active:
            self._reader.consumed(fetched)

    def _decoded(self, window: RecordWindow, chunk: Chunk) -> WindowChunk:
        batch, keyed, lanes = chunk.batch, self._in_flight.keyed, None
        if window.dealt is not None or window.slices:
            batch, lanes = records_of_slice(batch, window.dealt, self._lanes, by_key=keyed)
        offsets = attempts = None
        if self._retries.tier(window.partition):
            offsets, (batch, attempts, _) = numbers(batch["offset"]), as_they_were(batch)
        return WindowChunk(
            window,
            batch,
            chunk.next_offset,
            chunk.leader_epoch,
            keyed=keyed,
            lanes=lanes,
            offsets=offsets,
            attempts=attempts,
        )

    def _pause(self, partition: TopicPartition) -> None:
        """Leaves the rest of a partition where it is until its window has room."""
        try:
            self._reader.pause([partition])
        except UsageError:
            return  # it was taken away meanwhile
        self._reader.put_back(partition)
        self._full.add(partition)

    def _resume_roomy(self) -> None:
        if not self._full:
            return
        full = list(self._full)  # a copy: the worker's loop drops partitions meanwhile
        with self._lock:
            roomy = [partition for partition in full if self._in_flight.roomy(partition)]
        self._full.difference_update(roomy)
        for partition in roomy:
            with suppress(UsageError):  # it was taken away meanwhile
                self._reader.resume([partition])

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops partitions that other workers have now."""
        gone = set(partitions)
        self._full.difference_update(gone)
        self._retries.forget(gone)


def _by_itself(head: Chunk, chunk: Chunk) -> Chunk:
    """Returns the head of a chunk in memory of its own, where most of the chunk's would be kept for nothing: the rest comes again."""
    rows = head.batch.num_rows
    if 2 * rows >= chunk.batch.num_rows:
        return head
    return replace(head, batch=copy_of(head.batch))
