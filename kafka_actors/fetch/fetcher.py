"""`Fetcher`: the worker side of fetching, for `Consumer`, the workers of a job, and Spark's tasks.

A lock, an event loop and threads around a `FetchMachine`. Calls of the user change the machine with the lock held and then have
the `FetchDriver` plan in the loop; records are taken, decoded and counted as consumed in the user's own thread.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import RecordError
from kafka_actors.events import EventSink, log_event
from kafka_actors.records import Chunk, Decoder, Limits
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.types import TopicPartition

from .decoding import AHEAD, valid_chunks
from .fetch_driver import FetchDriver, FetchTelemetry, RecordSource
from .lookups import LookupClient
from .machines.buffer import FetchedBytes
from .machines.fetch_machine import FetchMachine
from .machines.partition_state import UNKNOWN, CommitPosition, FetchProgress, LookupPurpose, PartitionStart
from .messages import Epoch


class Fetcher:
    """Fetches the assigned partitions from their leaders and hands the bytes out, fair over partitions.

    `sources(broker_id)` returns the connection side of a broker, None while there is none. `request_metadata()` asks for newer
    metadata, which comes through `update_metadata`. These and `events` are called in the loop's thread, `on_ready`
    in any, when there may be something to take. `credit`: pulls outstanding per broker under load. `budget`: bytes of
    responses in memory, by default `worker_buffer_bytes`. `one_by_one`: records of a partition are handed out only when those
    before them are consumed. `recorder` measures bytes and times, by broker.

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
        # The memory that `budget` leaves is for the chunk in use and those that are decoded ahead.
        room = (config.worker_buffer_bytes - budget) // (AHEAD + 1 if budget else AHEAD)
        self._limits = Limits(
            config.max_decompressed_batch_bytes,
            config.chunk_rows or usual.chunk_rows,
            min(usual.chunk_bytes, max(1, room)),
        )
        self._machine = FetchMachine(config, rand=rand, credit=credit, budget=budget, one_by_one=one_by_one)
        self._lock = threading.RLock()
        self._meter = FetchTelemetry(recorder or Recorder(), config.group_id)
        self._driver = FetchDriver(
            self._machine,
            self._lock,
            config,
            sources=sources,
            lookups=lookups,
            request_metadata=request_metadata,
            events=events,
            on_records=self._notify,
            meter=self._meter,
            clock=clock,
            wall_clock=wall_clock,
        )
        self._arrived = asyncio.Event()
        self._waiting = 0  # calls of `next`

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Begins to fetch. Assignments and metadata may come before or after."""
        self._driver.start()

    async def close(self) -> None:
        """Stops fetching; sources stay their owner's."""
        await self._driver.close()

    # ------------------------------------------------------------ assignment

    def update_metadata(self, snapshot: ClusterSnapshot) -> None:
        """Takes over new metadata; positions are validated where leaders or topic ids changed."""
        self._meter.follow(snapshot)
        with self._lock:
            self._machine.update_metadata(snapshot)
        self._driver.soon()

    def assign(self, starts: Mapping[TopicPartition, PartitionStart]) -> None:
        """Adds partitions. One that is assigned under the same epoch is left as it is."""
        with self._lock:
            for tp, start in starts.items():
                self._machine.assign(tp, start)
        self._driver.soon()

    def regrant(self, tp: TopicPartition, epoch: Epoch) -> None:
        """Keeps a partition under a new epoch, from its own position on."""
        with self._lock:
            self._machine.regrant(tp, epoch)
        self._driver.soon()

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes partitions with their positions; those that aren't assigned are passed over."""
        with self._lock:
            for tp in partitions:
                self._machine.revoke(tp)
        self._driver.soon()

    def drain(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Epoch]:
        """Stops handing partitions out; positions stay readable until `revoke` or `release`. Returns the epochs of assigned ones."""
        epochs = {}
        with self._lock:
            for tp in partitions:
                if (partition := self._machine.partitions.get(tp)) is not None:
                    self._machine.drain(tp)
                    epochs[tp] = partition.epoch
        self._driver.soon()
        return epochs

    def release(self, drained: Mapping[TopicPartition, Epoch]) -> None:
        """Removes partitions that `drain` returned, with their positions; one that was assigned anew since stays."""
        with self._lock:
            for tp, epoch in drained.items():
                partition = self._machine.partitions.get(tp)
                if partition is not None and partition.epoch == epoch:
                    self._machine.revoke(tp)
        self._driver.soon()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops handing partitions out until `resume`. Raises `UsageError` for one that isn't assigned."""
        with self._lock:
            for tp in partitions:
                self._machine.pause(tp)
        self._driver.soon()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends `pause`. Raises `UsageError` for a partition that isn't assigned."""
        with self._lock:
            for tp in partitions:
                self._machine.resume(tp)
        self._driver.soon()
        self._notify()

    def rewind(self) -> None:
        """Discards all records that are not consumed, also those that were taken; they are fetched again."""
        with self._lock:
            self._machine.rewind()
        self._driver.soon()

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Moves the position to `offset`: the next record is the first at or behind it. Raises `UsageError` if unassigned."""
        with self._lock:
            self._machine.seek(tp, offset, leader_epoch)
        self._driver.soon()

    def seek_to_beginning(self, tp: TopicPartition) -> None:
        """Looks up the start of the log and goes on from there. Raises `UsageError` if unassigned."""
        self._seek_to(tp, LookupPurpose.SEEK_BEGINNING)

    def seek_to_end(self, tp: TopicPartition) -> None:
        """Looks up the end (under read_committed the last stable offset) and goes on from there."""
        self._seek_to(tp, LookupPurpose.SEEK_END)

    def _seek_to(self, tp: TopicPartition, purpose: LookupPurpose) -> None:
        with self._lock:
            self._machine.seek_to(tp, purpose)
        self._driver.soon()

    # ------------------------------------------------------------ positions and progress

    def position(self, tp: TopicPartition) -> int | None:
        """Returns the offset behind the last consumed record, None until it is known. Raises `UsageError` if unassigned."""
        with self._lock:
            return self._machine.partitions.require(tp).known_position

    def where(self, tp: TopicPartition) -> CommitPosition | None:
        """Returns the position to commit, with leader epoch and topic id; None until it is known. Raises `UsageError` if
        unassigned."""
        with self._lock:
            return self._machine.partitions.require(tp).where

    def topic_id(self, tp: TopicPartition) -> bytes | None:
        """Returns the id of the topic that the partition's position is of; None if it isn't known, or not assigned."""
        with self._lock:
            partition = self._machine.partitions.get(tp)
            return None if partition is None else partition.position_id

    @property
    def buffered(self) -> int:
        """Bytes of responses in memory: at most `budget` and one response; under `one_by_one` as much again in hand."""
        with self._driver.present() as machine:
            return machine.buffer.total

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        with self._lock:
            return frozenset(partition.tp for partition in self._machine.partitions)

    def failure(self, tp: TopicPartition) -> Exception | None:
        """Returns the error of a partition that failed. Raises `UsageError` if unassigned."""
        with self._lock:
            return self._machine.partitions.require(tp).error

    def holds(self, tp: TopicPartition, epoch: Epoch, position: int) -> bool:
        """Whether the partition is still assigned under this epoch, and its position is this one."""
        with self._lock:
            partition = self._machine.partitions.get(tp)
            return partition is not None and partition.epoch == epoch and partition.position == position

    def position_epoch(self, tp: TopicPartition) -> int:
        """Returns the leader epoch of the last consumed record, to be committed with the position; -1 if it isn't known, or not assigned."""
        with self._lock:
            partition = self._machine.partitions.get(tp)
            return UNKNOWN if partition is None else partition.position_epoch

    def end(self, tp: TopicPartition) -> int | None:
        """Returns the end of the log as last seen: high watermark, or last stable offset under read_committed."""
        with self._driver.present() as machine:
            return machine.partitions.require(tp).end(machine.partitions.read_committed)

    def progress(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, FetchProgress]:
        """Returns `position`, `end`, `reason` and `position_epoch` of partitions, all as of one moment. Raises `UsageError` for one that isn't
        assigned."""
        with self._driver.present() as machine:
            return machine.progress(partitions, self._clock())

    def lag(self, tp: TopicPartition) -> int | None:
        """Returns the distance of the position from `end`, in offsets; None until both are known."""
        with self._driver.present() as machine:
            return machine.partitions.require(tp).lag(machine.partitions.read_committed)

    def end_reached(self, tp: TopicPartition) -> bool:
        """Whether a bounded partition was consumed up to its end offset (KIP-98 markers and gaps included)."""
        with self._lock:
            return self._machine.partitions.require(tp).end_reached

    def reason(self, tp: TopicPartition) -> str:
        """Returns why no records of the partition are fetched, for people; empty while they are."""
        with self._driver.present() as machine:
            return machine.reason(tp, self._clock())

    # ------------------------------------------------------------ handing out

    def take(self) -> FetchedBytes | None:
        """Returns the next records, None while there are none. Raises the typed error of a partition that failed, once
        everything before it is consumed."""
        return self._take(self._machine.take)

    def take_more(self) -> FetchedBytes | None:
        """Returns the records after those, ahead of time; None where a partition failed, or has its first records, which then
        go first."""
        return self._take(self._machine.take_more) if self._machine.buffer.ready else None

    def _take(self, take: Callable[[], FetchedBytes | None]) -> FetchedBytes | None:
        with self._lock:
            if self._driver.events_pending:
                return None  # an event is on its way, perhaps of a reset that these records come after
            self._driver.take_answers()
            item = take()
            again = self._machine.needs_poll
        if again:
            self._driver.soon()
        return item

    def take_newcomer(self) -> FetchedBytes | None:
        """Returns the first records of a partition, if no records of it were handed out yet; else None."""
        with self._lock:
            return self.take() if self._machine.buffer.newcomer else None

    @property
    def newcomer(self) -> bool:
        """Whether `take_newcomer` has something."""
        return self._machine.buffer.newcomer

    def waiting(self) -> list[TopicPartition]:
        """Returns the partitions with records that wait to be handed out."""
        with self._driver.present() as machine:
            return list(machine.buffer.waiting)

    def put_back(self, tp: TopicPartition) -> None:
        """Has the records of a partition that were taken and are not `consumed` handed out again, after those of others. The
        items that were taken before must not be used any more."""
        with self._lock:
            self._machine.put_back(tp)

    async def next(self, timeout_s: float | None) -> FetchedBytes | None:
        """Takes records as `take` does, after waiting for them up to `timeout_s` (None: without end). In the loop's thread
        only."""
        deadline = None if timeout_s is None else self._clock() + timeout_s
        self._waiting += 1  # before the first look, so that records that come after it wake this call
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
        """Wakes calls that wait for records."""
        if self._waiting:
            self._driver.in_loop(self._arrived.set)
        self._on_ready()

    def unpack(self, fetched: FetchedBytes, chunk_bytes: int | None = None) -> Iterator[Chunk]:
        """Decodes taken records in bounded chunks, of `chunk_bytes` at most, without any effect on positions; for `decode`. Raises `RecordError`."""
        limits = self._limits if chunk_bytes is None else _smaller(self._limits, chunk_bytes)
        decoder = Decoder(
            *fetched.partition,
            fetch_offset=fetched.fetch_offset,
            isolation_level=self._config.isolation_level,
            aborted=fetched.aborted,
            log_end=fetched.log_end(self._config.isolation_level == "read_committed"),
            check_crcs=self._config.check_crcs,
            limits=limits,
        )
        return decoder.feed(*(piece.data for piece in fetched.slices))

    def decode(self, item: FetchedBytes, unpacked: Iterator[Chunk] | None = None) -> Iterator[Chunk]:
        """Yields the chunks of taken records, from `unpack` if they aren't passed. For any thread, one item of a partition after
        the other.

        Ends early where the position was moved meanwhile, or in front of a batch that can't be read: then
        `on_bad_batch` decides. Under "fail" the error comes out of `take` and `next`; under "skip" a chunk without
        records comes last, whose `next_offset` is behind that batch, or in front of it if more has to be fetched
        to know where it ends.
        """
        with self._lock:
            partition = self._machine.partitions.get(item.partition)
            end = None if partition is None else partition.end_offset
        return valid_chunks(item, unpacked or self.unpack(item), end, self._bad_batch)

    def consumed(self, item: FetchedBytes, next_offset: int | None = None) -> bool:
        """Moves the position behind the records of `item` below `next_offset` (by default all) and frees their memory.

        False if the position was moved meanwhile: then no offset of them may be committed.
        """
        with self._lock:
            done = self._machine.consumed(item, next_offset)
            again = self._machine.partitions.needs_plan
        if again:
            self._driver.soon()
        return done

    def _bad_batch(self, item: FetchedBytes, error: RecordError) -> int | None:
        with self._lock:
            behind = self._machine.bad_batch(item, error)
        self._driver.soon()
        return behind


def _smaller(limits: Limits, chunk_bytes: int) -> Limits:
    return replace(limits, chunk_bytes=min(chunk_bytes, limits.chunk_bytes))
