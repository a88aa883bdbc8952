"""The worker side of fetching: an asyncio shell over `FetchMachine`, for `Consumer` and for worker actors alike."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from kafka_actors.batches import numbers
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import (
    AuthenticationError,
    ClientError,
    CorruptRecordBatchError,
    KafkaActorsError,
    NodeNotReadyError,
    RecordError,
)
from kafka_actors.events import Event, EventSink, log_event
from kafka_actors.protocol.types import TopicPartition
from kafka_actors.records import Chunk, Decoder, Limits
from kafka_actors.records.arrow import EMPTY
from kafka_actors.telemetry.attributes import Attributes, of_operation, of_server, with_error
from kafka_actors.telemetry.instruments import FETCH_BYTES, FETCH_FAILURES, GROUP, OPERATION_DURATION
from kafka_actors.telemetry.recorder import Recorder

from .ahead import AHEAD
from .machines.buffer import FetchedBytes, Records
from .machines.fetching import FetchMachine, Issue, Plan
from .machines.partition import Purpose, Standing, Start
from .machines.resets import Lookup
from .messages import Epoch, FetchReply, Pull
from .offsets import OffsetLookup, carry_out

logger = logging.getLogger(__name__)

Answer = tuple[FetchReply, Sequence[Records]]
Outcome = Answer | Exception
Validation = tuple[TopicPartition, int, int, int]


class RecordSource(Protocol):
    """The connection side for one broker. Each pull is answered once, in any thread: by a response or by an error. A source that died answers with `DisconnectedError`; its next pull has
    sequence 0. Pulls come from the loop's thread, and from those in which the source answers."""

    def fetch(self, pull: Pull, answered: Callable[[Outcome], None]) -> None: ...


class _Sent:
    """A pull that was sent, and its outcome once that is known."""

    __slots__ = ("issue", "outcome")

    def __init__(self, issue: Issue) -> None:
        self.issue = issue
        self.outcome: Outcome | None = None


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
        lookups: OffsetLookup,
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
        self._sources = sources
        self._lookups = lookups
        self._request_metadata = request_metadata
        self._events = events
        self._on_ready = on_ready
        self._recorder = recorder or Recorder()
        self._servers: dict[int, Attributes] = {}
        self._clock = clock
        self._wall_clock = wall_clock
        usual = Limits()
        self._limits = Limits(
            config.max_decompressed_batch_bytes,
            config.batch_rows or usual.chunk_rows,
            min(usual.chunk_bytes, max(1, config.worker_buffer_bytes // AHEAD)),
        )
        self._machine = FetchMachine(config, rand=rand, credit=credit, budget=budget, one_by_one=one_by_one)
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._known: dict[int, RecordSource] = {}  # what `sources` gave last, while it does not fail
        self._lanes: dict[int, deque[_Sent]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Event()
        self._untold = 0  # times that events are on their way to the loop
        self._waiting = 0  # calls of `next`
        self._closed = False

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Begins to fetch. Assignments and metadata may come before or after."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._soon()

    async def close(self) -> None:
        """Ends what is under way; sources stay their owner's."""
        with self._lock:
            self._closed = True
            self._lanes.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ------------------------------------------------------------ what to fetch

    def update_metadata(self, snapshot: ClusterSnapshot) -> None:
        """New metadata; positions are checked where leaders or topic ids changed."""
        self._servers = {broker: of_server(b.host, b.port) for broker, b in snapshot.brokers.items()}
        with self._lock:
            self._machine.update_metadata(snapshot)
        self._soon()

    def assign(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Takes partitions on. One that is held under the same epoch is left as it is."""
        with self._lock:
            for tp, start in starts.items():
                self._machine.assign(tp, start)
        self._soon()

    def regrant(self, tp: TopicPartition, epoch: Epoch) -> None:
        """The partition goes on from its own position under a new epoch."""
        with self._lock:
            self._machine.regrant(tp, epoch)
        self._soon()

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets partitions with their positions; those that aren't assigned are passed over."""
        with self._lock:
            for tp in partitions:
                self._machine.revoke(tp)
        self._soon()

    def drain(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands no more of them out; positions stay readable until `revoke`. Unassigned ones are passed over."""
        with self._lock:
            for tp in partitions:
                if tp in self._machine.positions:
                    self._machine.drain(tp)
        self._soon()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands no more of them out until `resume`. Raises `UsageError` for one that isn't assigned."""
        with self._lock:
            for tp in partitions:
                self._machine.pause(tp)
        self._soon()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends `pause`. Raises `UsageError` for a partition that isn't assigned."""
        with self._lock:
            for tp in partitions:
                self._machine.resume(tp)
        self._soon()
        self._notify()

    def rewind(self) -> None:
        """Drops all that is fetched and not consumed, what was taken included; it is fetched again."""
        with self._lock:
            self._machine.rewind()
        self._soon()

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """The next record handed out is the first at or behind `offset`. Raises `UsageError` if unassigned."""
        with self._lock:
            self._machine.seek(tp, offset, leader_epoch)
        self._soon()

    def seek_to_beginning(self, tp: TopicPartition) -> None:
        """Looks up the start of the log and goes on from there. Raises `UsageError` if unassigned."""
        self._seek_to(tp, Purpose.SEEK_BEGINNING)

    def seek_to_end(self, tp: TopicPartition) -> None:
        """Looks up the end (under read_committed the last stable offset) and goes on from there."""
        self._seek_to(tp, Purpose.SEEK_END)

    def _seek_to(self, tp: TopicPartition, purpose: Purpose) -> None:
        with self._lock:
            self._machine.seek_to(tp, purpose)
        self._soon()

    # ------------------------------------------------------------ what is known

    def position(self, tp: TopicPartition) -> int | None:
        """The offset behind what was consumed, None until it is known. Raises `UsageError` if unassigned."""
        with self._lock:
            return self._machine.positions.require(tp).known_position

    @property
    def buffered(self) -> int:
        """Bytes of responses that are in memory: at most `budget` and a response; one by one, as much again that is in hand."""
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

    def standings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Standing]:
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
        """The same ahead of its time, while the user is busy with what was taken before: None where a partition failed, or
        has its first records, which then go first."""
        return self._take(self._machine.take_more)

    def _take(self, take: Callable[[], FetchedBytes | None]) -> FetchedBytes | None:
        with self._lock:
            if self._untold:
                return None  # it may be from behind a reset that is to be known first
            item = take()
            again = self._machine.needs_plan
        if again:
            self._soon()
        return item

    def take_newcomer(self) -> FetchedBytes | None:
        """As `take`, but only the first records of a partition that nothing was handed out of yet."""
        with self._lock:
            return self.take() if self._machine.buffer.newcomer else None

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

    def unpack(self, fetched: FetchedBytes) -> Iterator[Chunk]:
        """Decodes what was taken, in bounded chunks, and does nothing else; for `decode`. Raises `RecordError`."""
        decoder = Decoder(
            *fetched.partition,
            fetch_offset=fetched.fetch_offset,
            isolation_level=self._config.isolation_level,
            aborted=fetched.aborted,
            limits=self._limits,
        )
        return decoder.feed(*(piece.data for piece in fetched.slices))

    def decode(self, item: FetchedBytes, unpacked: Iterator[Chunk] | None = None) -> Iterator[Chunk]:
        """The chunks of what was taken, by `unpack` if they aren't given; any thread, one item of a partition after the
        other.

        Stops early where the position was moved meanwhile, or in front of a batch that can't be read: then
        `on_bad_batch` decides. Under "fail" the error comes out of `take` and `next`; under "skip" a chunk without records
        comes last, whose `next_offset` is behind that batch.
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
            self._soon()
        return done

    def _bad_batch(self, item: FetchedBytes, error: RecordError) -> int | None:
        with self._lock:
            behind = self._machine.bad_batch(item, error)
        self._soon()
        return behind

    def _end_offset(self, tp: TopicPartition) -> int | None:
        with self._lock:
            partition = self._machine.positions.get(tp)
            return None if partition is None else partition.end_offset

    # ------------------------------------------------------------ doing what the machine plans

    def _soon(self) -> None:
        """Has `_pump` run in the loop, once for however many reasons."""
        loop = self._loop
        if loop is None or self._due or self._closed:
            return
        self._due = True
        if threading.get_ident() == self._thread:
            loop.call_soon(self._pump)
        else:
            loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        """In the loop's thread, or in that of a source that answers: what has to be in the loop is left to it."""
        if threading.get_ident() == self._thread:
            self._due = False
        with self._lock:
            if self._closed or self._loop is None:
                return
            plan = self._machine.plan(self._clock())
            events, self._machine.positions.events = self._machine.positions.events, []
            self._untold += bool(events)
            strange = [issue for issue in plan.pulls if not self._send(issue)]
            ready = self._machine.has_something
        if ready:
            self._notify()
        if strange or events or plan.lookups or plan.validations or plan.refresh_metadata:
            self._in_loop(self._carry_out, plan, events, strange)
        elif self._earlier(plan.wakeup):
            self._in_loop(self._set_timer, plan.wakeup)

    def _carry_out(self, plan: Plan, events: list[Event], pulls: list[Issue]) -> None:
        if self._closed:
            return
        if events:
            self._tell(events)
        if plan.refresh_metadata:
            self._request_metadata()
        with self._lock:
            for issue in pulls:
                self._send(issue)
        if plan.lookups:
            self._spawn(self._look_up(plan.lookups))
        if plan.validations:
            self._spawn(self._validate(plan.validations))
        self._set_timer(plan.wakeup)

    def _tell(self, events: list[Event]) -> None:
        try:
            for event in events:
                self._events(event)
        finally:
            with self._lock:
                self._untold -= 1
        self._notify()

    def _in_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        if threading.get_ident() == self._thread:
            call(*arguments)
            return
        try:
            assert self._loop is not None  # only what has begun has something to do
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            logger.debug("the loop of a fetcher ended before it was closed")

    def _earlier(self, wakeup: float | None) -> bool:
        """Whether the timer has to be set; one that comes too early finds out when it has to come again."""
        timer = self._timer
        return wakeup is not None and (timer is None or wakeup < self._timer_at)

    def _set_timer(self, wakeup: float | None) -> None:
        if self._closed or self._loop is None or wakeup is None or not self._earlier(wakeup):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = wakeup
        self._timer = self._loop.call_later(max(0.0, wakeup - self._clock()), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._pump()

    def _notify(self) -> None:
        """Wakes whoever waits for records."""
        if self._waiting:
            self._in_loop(self._arrived.set)
        self._on_ready()

    # ------------------------------------------------------------ pulls

    def _send(self, issue: Issue) -> bool:
        """With the lock, which keeps the pulls of a stream in order. False where only the loop can find the way to the
        broker."""
        if threading.get_ident() != self._thread:
            source = self._known.get(issue.broker)
            if source is None:
                return False
        else:
            source = self._sources(issue.broker)
            if source is None:
                nowhere = NodeNotReadyError(f"no connection to broker {issue.broker}")
                self._failed(issue, nowhere, sent=False)
                return True
            self._known[issue.broker] = source
        sent = _Sent(issue)
        self._lanes.setdefault(issue.token, deque()).append(sent)
        source.fetch(issue.pull, lambda outcome: self._arrive(sent, outcome))
        return True

    def _arrive(self, sent: _Sent, outcome: Outcome) -> None:
        """Takes outcomes in the order of their pulls, whichever comes first."""
        brought = False
        with self._lock:
            sent.outcome = outcome
            token = sent.issue.token
            lane = self._lanes.get(token)
            while lane and (first := lane[0].outcome) is not None:
                brought |= self._answered(lane.popleft().issue, first)
            if not lane:
                self._lanes.pop(token, None)
        if brought:
            self._pump()

    def _answered(self, issue: Issue, outcome: Outcome) -> bool:
        """With the lock. Whether it brought something."""
        if isinstance(outcome, Exception):
            if not isinstance(outcome, (KafkaActorsError, OSError)):
                logger.error("a pull from broker %d failed unexpectedly", issue.broker, exc_info=outcome)
            self._failed(issue, outcome)
            return False
        reply, records = outcome
        self._machine.on_reply(issue, reply, records, self._clock())
        self._measure(issue.broker, reply)
        return True

    def _measure(self, broker: int, reply: FetchReply) -> None:
        server, group = self._servers.get(broker, ()), self._config.group_id
        of_bytes, of_time = ((GROUP, group or ""), *server), (*of_operation("fetch", group), *server)
        self._recorder.add(FETCH_BYTES, reply.size, of_bytes)
        self._recorder.record(OPERATION_DURATION, reply.seconds, of_time)

    def _failed(self, issue: Issue, error: Exception, *, sent: bool = True) -> None:
        logger.info("broker %d: %s", issue.broker, error)
        self._known.pop(issue.broker, None)
        server = self._servers.get(issue.broker, ())
        self._recorder.add(
            FETCH_FAILURES, 1, with_error(((GROUP, self._config.group_id or ""), *server), error)
        )
        with self._lock:
            self._machine.on_pull_failed(
                issue,
                error if isinstance(error, AuthenticationError) else ClientError(str(error)),
                self._clock(),
                sent=sent,
            )
        self._soon()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_up(self, lookups: list[Lookup]) -> None:
        try:
            found = await carry_out(lookups, self._lookups, self._config.isolation_level, self._wall_clock)
        except KafkaActorsError as error:
            found = dict.fromkeys(lookups, error)
        with self._lock:
            for lookup in lookups:
                self._machine.on_offset(lookup, found[lookup], self._clock())
        self._soon()

    async def _validate(self, validations: list[Validation]) -> None:
        asked = {tp: (current, epoch) for tp, _, current, epoch in validations}
        answers: Mapping[TopicPartition, Any]
        try:
            answers = await self._lookups.offsets_for_leader_epoch(asked)
        except KafkaActorsError as error:
            answers = dict.fromkeys(asked, error)
        with self._lock:
            for tp, version, _, _ in validations:
                answer = answers[tp]
                found = (
                    answer
                    if isinstance(answer, KafkaActorsError)
                    else (answer.leader_epoch, answer.end_offset)
                )
                self._machine.on_epoch_end(tp, version, found, self._clock())
        self._soon()


def _cut(chunk: Chunk, end: int) -> Chunk:
    """Only the records below `end`, and the position there."""
    offsets = numbers(chunk.batch.column("offset"))
    return Chunk(chunk.batch.slice(0, int(offsets.searchsorted(end))), end, chunk.leader_epoch)
