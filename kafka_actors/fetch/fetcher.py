"""The worker side of fetching: a shell over `FetchMachine`, for `Consumer` and for worker actors alike."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from kafka_actors.base.batches import numbers
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import CorruptRecordBatchError, RecordError
from kafka_actors.events import EventSink, log_event
from kafka_actors.records import Chunk, Decoder, Limits
from kafka_actors.records.arrow import EMPTY
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.types import TopicPartition

from .decode_ahead import AHEAD
from .fetch_driver import FetchDriver, RecordSource
from .lookups import LookupClient
from .machines.buffer import FetchedBytes
from .machines.fetch_machine import FetchMachine
from .machines.partition_state import CommitPosition, FetchProgress, LookupPurpose, PartitionStart
from .messages import Epoch
from .telemetry import FetchTelemetry


class Fetcher:
    """Fetches the assigned partitions from their leaders and hands the bytes out, fair over partitions.

    `sources(broker_id)` gives the way to a broker, None while there is none. `request_metadata()` asks for newer
    metadata, which comes through `update_metadata`. These and `events` are called in the loop's thread, `on_ready`
    in any, when there may be something to take. `credit`: pulls outstanding per broker under load. `budget`: bytes of
    responses in memory, by default `worker_buffer_bytes`. `one_by_one`: nothing more of a partition is handed out until
    what was is consumed. `recorder`: of bytes and times, by broker.

    Everything but `start`, `close` and `next` may be called from any thread.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        sources: Callable[[int], RecordSource | None],
        lookups: LookupClient,
        request_metadata: Callable[[], None] = lambda: None,
        events: EventSink = log_event,
        on_ready: Callable[[], None] = lambda: None,
        credit: int = 2,
        budget: int = 0,
        one_by_one: bool = False,
        recorder: Recorder | None = None,
        clock: Callable[[], float] = time.monotonic,
        rand: Callable[[], float] = random.random,
        wall_clock: Callable[[], float] = time.time,  # wall clock: auto_offset_reset=by_duration
    ) -> None:
        self._config = config
        self._on_ready = on_ready
        self._clock = clock
        usual = Limits()
        # What `budget` leaves is for the chunk in use and those that are decoded ahead.
        room = (config.worker_buffer_bytes - budget) // (AHEAD + 1 if budget else AHEAD)
        self._limits = Limits(
            config.max_decompressed_batch_bytes,
            config.batch_rows or usual.chunk_rows,
            min(usual.chunk_bytes, max(1, room)),
        )
        self._machine = FetchMachine(config, rand=rand, credit=credit, budget=budget, one_by_one=one_by_one)
        self._lock = threading.RLock()
        self._meter = FetchTelemetry(recorder or Recorder(), config.group_id)
        self._pump = FetchDriver(
            self._machine,
            self._lock,
            config,
            sources=sources,
            lookups=lookups,
            request_metadata=request_metadata,
            events=events,
            on_brought=self._notify,
            meter=self._meter,
            clock=clock,
            wall_clock=wall_clock,
        )
        self._arrived = asyncio.Event()
        self._waiting = 0  # calls of `next`

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Begins to fetch. Assignments and metadata may come before or after."""
        self._pump.start()

    async def close(self) -> None:
        """Ends what is under way; sources stay their owner's."""
        await self._pump.close()

    # ------------------------------------------------------------ what to fetch

    def update_metadata(self, snapshot: ClusterSnapshot) -> None:
        """New metadata; positions are checked where leaders or topic ids changed."""
        self._meter.follow(snapshot)
        with self._lock:
            self._machine.update_metadata(snapshot)
        self._pump.soon()

    def assign(self, starts: Mapping[TopicPartition, PartitionStart]) -> None:
        """Takes partitions on. One that is held under the same epoch is left as it is."""
        with self._lock:
            for tp, start in starts.items():
                self._machine.assign(tp, start)
        self._pump.soon()

    def regrant(self, tp: TopicPartition, epoch: Epoch) -> None:
        """The partition goes on from its own position under a new epoch."""
        with self._lock:
            self._machine.regrant(tp, epoch)
        self._pump.soon()

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets partitions with their positions; those that aren't assigned are passed over."""
        with self._lock:
            for tp in partitions:
                self._machine.revoke(tp)
        self._pump.soon()

    def drain(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands no more of them out; positions stay readable until `revoke`. Unassigned ones are passed over."""
        with self._lock:
            for tp in partitions:
                if tp in self._machine.positions:
                    self._machine.drain(tp)
        self._pump.soon()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands no more of them out until `resume`. Raises `UsageError` for one that isn't assigned."""
        with self._lock:
            for tp in partitions:
                self._machine.pause(tp)
        self._pump.soon()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends `pause`. Raises `UsageError` for a partition that isn't assigned."""
        with self._lock:
            for tp in partitions:
                self._machine.resume(tp)
        self._pump.soon()
        self._notify()

    def rewind(self) -> None:
        """Drops all that is fetched and not consumed, what was taken included; it is fetched again."""
        with self._lock:
            self._machine.rewind()
        self._pump.soon()

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """The next record handed out is the first at or behind `offset`. Raises `UsageError` if unassigned."""
        with self._lock:
            self._machine.seek(tp, offset, leader_epoch)
        self._pump.soon()

    def seek_to_beginning(self, tp: TopicPartition) -> None:
        """Looks up the start of the log and goes on from there. Raises `UsageError` if unassigned."""
        self._seek_to(tp, LookupPurpose.SEEK_BEGINNING)

    def seek_to_end(self, tp: TopicPartition) -> None:
        """Looks up the end (under read_committed the last stable offset) and goes on from there."""
        self._seek_to(tp, LookupPurpose.SEEK_END)

    def _seek_to(self, tp: TopicPartition, purpose: LookupPurpose) -> None:
        with self._lock:
            self._machine.seek_to(tp, purpose)
        self._pump.soon()

    # ------------------------------------------------------------ what is known

    def position(self, tp: TopicPartition) -> int | None:
        """The offset behind what was consumed, None until it is known. Raises `UsageError` if unassigned."""
        with self._lock:
            return self._machine.positions.require(tp).known_position

    def where(self, tp: TopicPartition) -> CommitPosition | None:
        """The position to commit, with leader epoch and topic id; None until it is known. Raises `UsageError` if
        unassigned."""
        with self._lock:
            return self._machine.positions.require(tp).where

    def topic_id(self, tp: TopicPartition) -> bytes | None:
        """The id of the topic that the partition's position is of; None if it isn't known, or not assigned."""
        with self._lock:
            partition = self._machine.positions.get(tp)
            return None if partition is None else partition.position_id

    @property
    def buffered(self) -> int:
        """Bytes of responses in memory: at most `budget` and one response; under `one_by_one` as much again in hand."""
        with self._lock:
            return self._machine.buffer.total

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What is assigned."""
        with self._lock:
            return frozenset(partition.tp for partition in self._machine.positions)

    def failure(self, tp: TopicPartition) -> Exception | None:
        """The error of a partition that can't be read on. Raises `UsageError` if unassigned."""
        with self._lock:
            return self._machine.positions.require(tp).error

    def holds(self, tp: TopicPartition, epoch: Epoch, position: int) -> bool:
        """Whether the partition is still assigned under this epoch, and its position is this one."""
        with self._lock:
            partition = self._machine.positions.get(tp)
            return partition is not None and partition.epoch == epoch and partition.position == position

    def position_epoch(self, tp: TopicPartition) -> int:
        """The leader epoch of the last record consumed, to be committed with the position; -1 if unknown."""
        with self._lock:
            return self._machine.positions.require(tp).position_epoch

    def end(self, tp: TopicPartition) -> int | None:
        """The end of the log as last seen: high watermark, or last stable offset under read_committed."""
        with self._lock:
            positions = self._machine.positions
            return positions.require(tp).end(positions.read_committed)

    def standings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, FetchProgress]:
        """Of each partition `position`, `end` and `reason`, at once. Raises `UsageError` for one that isn't assigned."""
        with self._lock:
            return self._machine.standings(partitions, self._clock())

    def lag(self, tp: TopicPartition) -> int | None:
        """How far the position is behind `end`, in offsets; None until both are known."""
        with self._lock:
            return self._machine.positions.require(tp).lag(self._machine.positions.read_committed)

    def end_reached(self, tp: TopicPartition) -> bool:
        """Whether a bounded partition was consumed up to its end offset (KIP-98 markers and gaps included)."""
        with self._lock:
            return self._machine.end_reached(tp)

    def reason(self, tp: TopicPartition) -> str:
        """Why no records of the partition are fetched, for people; empty while they are."""
        with self._lock:
            return self._machine.reason(tp, self._clock())

    # ------------------------------------------------------------ handing out

    def take(self) -> FetchedBytes | None:
        """The next records, None while there are none. Raises the typed error of a partition that failed, once
        everything before it is consumed."""
        return self._take(self._machine.take)

    def take_more(self) -> FetchedBytes | None:
        """The same ahead of its time, while the user is busy with what was taken before: None where a partition
        failed, or has its first records, which then go first."""
        return self._take(self._machine.take_more)

    def _take(self, take: Callable[[], FetchedBytes | None]) -> FetchedBytes | None:
        with self._lock:
            if self._pump.untold:
                return None  # it may be from behind a reset that is to be known first
            item = take()
            again = self._machine.needs_plan
        if again:
            self._pump.soon()
        return item

    def take_newcomer(self) -> FetchedBytes | None:
        """As `take`, but only the first records of a partition that nothing was handed out of yet."""
        with self._lock:
            return self.take() if self._machine.buffer.newcomer else None

    @property
    def newcomer(self) -> bool:
        """Whether `take_newcomer` has something."""
        return self._machine.buffer.newcomer

    def waiting(self) -> list[TopicPartition]:
        """Partitions of which something waits to be handed out."""
        with self._lock:
            return list(self._machine.buffer.waiting)

    def put_back(self, tp: TopicPartition) -> None:
        """All that was taken of a partition and is not `consumed` is handed out again, after what waits of others. Nothing
        that was taken of it before may be used any more."""
        with self._lock:
            self._machine.put_back(tp)

    async def next(self, timeout_s: float | None) -> FetchedBytes | None:
        """As `take`, waiting up to `timeout_s` (None: without end). In the loop's thread only."""
        deadline = None if timeout_s is None else self._clock() + timeout_s
        self._waiting += 1  # before it looks: what comes later finds somebody waiting
        try:
            while True:
                self._arrived.clear()
                item = self.take()
                if item is not None:
                    return item
                left = None if deadline is None else deadline - self._clock()
                if left is not None and left <= 0:
                    return None
                try:
                    async with asyncio.timeout(left):
                        await self._arrived.wait()
                except TimeoutError:
                    return None
        finally:
            self._waiting -= 1

    def _notify(self) -> None:
        """Wakes whoever waits for records."""
        if self._waiting:
            self._pump.in_loop(self._arrived.set)
        self._on_ready()

    def unpack(self, fetched: FetchedBytes) -> Iterator[Chunk]:
        """Decodes what was taken, in bounded chunks, and does nothing else; for `decode`. Raises `RecordError`."""
        decoder = Decoder(
            *fetched.partition,
            fetch_offset=fetched.fetch_offset,
            isolation_level=self._config.isolation_level,
            aborted=fetched.aborted,
            log_end=fetched.log_end(self._config.isolation_level == "read_committed"),
            limits=self._limits,
        )
        return decoder.feed(*(piece.data for piece in fetched.slices))

    def decode(self, item: FetchedBytes, unpacked: Iterator[Chunk] | None = None) -> Iterator[Chunk]:
        """The chunks of what was taken, by `unpack` if they aren't given; any thread, one item of a partition after the
        other.

        Stops early where the position was moved meanwhile, or in front of a batch that can't be read: then
        `on_bad_batch` decides. Under "fail" the error comes out of `take` and `next`; under "skip" a chunk without
        records comes last, whose `next_offset` is behind that batch, or in front of it if more has to be fetched
        to know where it ends.
        """
        topic, number = item.partition
        end = self._end_offset(item.partition)
        reached = item.fetch_offset
        try:
            for chunk in unpacked or self.unpack(item):
                if not item.valid:
                    return
                item.leader_epoch = chunk.leader_epoch
                reached = chunk.next_offset
                if end is not None and chunk.next_offset > end:
                    yield _cut(chunk, end)
                    return
                yield chunk
        except RecordError as error:
            if (behind := self._bad_batch(item, error)) is not None:
                yield Chunk(EMPTY, behind if end is None else min(behind, end), item.leader_epoch)
            return
        if reached == item.fetch_offset:
            self._bad_batch(
                item, CorruptRecordBatchError(topic, number, reached, None, "no complete record batch")
            )

    def consumed(self, item: FetchedBytes, next_offset: int | None = None) -> bool:
        """Everything of `item` below `next_offset` (by default all) is worked off: moves the position and frees
        the budget. False if the position was moved meanwhile: then no offset of it may be committed."""
        with self._lock:
            done = self._machine.consumed(item, next_offset)
            again = self._machine.needs_plan
        if again:
            self._pump.soon()
        return done

    def _bad_batch(self, item: FetchedBytes, error: RecordError) -> int | None:
        with self._lock:
            behind = self._machine.bad_batch(item, error)
        self._pump.soon()
        return behind

    def _end_offset(self, tp: TopicPartition) -> int | None:
        with self._lock:
            partition = self._machine.positions.get(tp)
            return None if partition is None else partition.end_offset


def _cut(chunk: Chunk, end: int) -> Chunk:
    """Only the records below `end`, and the position there."""
    offsets = numbers(chunk.batch.column("offset"))
    return Chunk(chunk.batch.slice(0, int(offsets.searchsorted(end))), end, chunk.leader_epoch)
