"""`ProcessingThread`: decodes fetched bytes and calls the user's function, one partition at a time.

It has a thread of its own (for an async function, with an event loop in it), so heartbeats, fetching and orders never wait for
the user's code. The generators `_in_turn` and `_steps` yield what to do next, calls and waits; `work` and `work_async` carry
these out, so a function and an async function are treated alike.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Protocol

from opentelemetry.trace import Span

from kafka_actors.base.io_thread import ThreadWakeup
from kafka_actors.base.tasks import this_task_is_cancelled
from kafka_actors.errors import UsageError
from kafka_actors.events import EventSink
from kafka_actors.fetch import DecodeAhead, FetchedBytes
from kafka_actors.job.machines.lease import Lease
from kafka_actors.job.machines.retries import RetryCounter, SuspectCalls
from kafka_actors.job.messages import DeathsInCall, GrantEpoch
from kafka_actors.records import Chunk
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.telemetry.spans import ProcessSpans, failed
from kafka_actors.types import TopicPartition

from .call_record import CallRecord
from .calls import Cut, FunctionCalls, Step, Steps, WaitFor
from .counters import WorkerCounters
from .error_policy import ErrorPolicy
from .machines.rebatch import CallBatch, Rebatcher, without
from .machines.turns import Turns
from .machines.worker_assignment import WorkerAssignment
from .user_function import CallFailed, UserFunction

__all__ = ["IDLE_S", "FetchedRecords", "MovableRecords", "ProcessingThread", "noted"]


IDLE_S = 0.25


class FetchedRecords(Protocol):
    """The part of a `Fetcher` that `ProcessingThread` uses, from any thread."""

    def unpack(self, fetched: FetchedBytes, chunk_bytes: int | None = None) -> Iterator[Chunk]: ...
    def decode(self, fetched: FetchedBytes, unpacked: Iterator[Chunk] | None) -> Iterator[Chunk]: ...
    def take(self) -> FetchedBytes | None: ...
    def take_more(self) -> FetchedBytes | None: ...
    def take_newcomer(self) -> FetchedBytes | None: ...
    def consumed(self, fetched: FetchedBytes, next_offset: int | None = None) -> object: ...
    def put_back(self, partition: TopicPartition) -> None: ...
    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...
    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...
    def waiting(self) -> Collection[TopicPartition]: ...
    def position_epoch(self, tp: TopicPartition) -> int: ...

    @property
    def newcomer(self) -> bool: ...


class MovableRecords(FetchedRecords, Protocol):
    """The part of a `Fetcher` that calls which overlap use, from any thread."""

    def position(self, tp: TopicPartition) -> int | None: ...
    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None: ...
    def seek_to_end(self, tp: TopicPartition) -> None: ...


class ProcessingThread:
    """Processes one worker's fetched items. `lock` guards `assignment`, which the worker's event loop changes too.

    `batch_rows` and `linger_s`: how chunks become batches (`machines/rebatch.py`). `on_progress(ended)` is called after each
    batch. `clock`: monotonic seconds; `wall`: seconds since 1970.
    """

    def __init__(
        self,
        function: UserFunction,
        assignment: WorkerAssignment,
        lease: Lease,
        reader: FetchedRecords,
        *,
        lock: threading.Lock,
        batch_rows: int | None,
        linger_s: float,
        events: EventSink,
        on_progress: Callable[[bool], None],
        recorder: Recorder | None = None,
        group: str | None = None,
        spans: ProcessSpans | None = None,
        call_record: CallRecord | None = None,
        cut: Cut | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,  # wall clock: record timestamps are times of day
    ) -> None:
        self._function = function
        self._assignment = assignment
        self._reader = reader
        self._ahead = DecodeAhead(reader)
        self._lock = lock
        self._batch_rows = batch_rows
        self._linger_s = linger_s
        self._spans = spans or ProcessSpans(group, "")
        self._clock = clock
        self._rebatchers: dict[tuple[TopicPartition, GrantEpoch], Rebatcher] = {}
        self._turns = Turns()
        self._retry_counter = RetryCounter(function.spec.backoff, random.random)
        self._parks = not function.spec.is_async  # whose partitions wait each in a task of its own
        self._parked: dict[TopicPartition, float] = {}
        """Partitions whose failed call waits to be made again, and when it is due."""
        self._suspects = SuspectCalls(function.spec.retries, function.spec.on_error != "fail")
        self.counters = WorkerCounters(group, recorder or Recorder())
        self.paused = False
        self._stopped = False
        self._calls = FunctionCalls(
            function.spec,
            assignment,
            lock,
            ErrorPolicy(function, assignment, lock, events, cut := cut or Cut()),
            self.counters,
            self._retry_counter,
            self._suspects,
            call_record,
            cut=cut,
            blocked_by=lambda: "paused" if self.paused else "" if lease.valid(clock()) else "no lease",
            stopped=lambda: self._stopped,
            on_progress=on_progress,
            clock=clock,
            wall=wall,
        )
        self._taken: TopicPartition | None = None
        self._woken = ThreadWakeup()

    # ------------------------------------------------------------ the thread

    def run(self) -> None:
        """Processes items until `stop`; raises as `work`. Waits in this thread, because any other thread between a record and
        the user's function would have to be woken first."""
        try:
            taken = self._look()
            while not self._stopped:
                if taken is None and (patience := self.idle_s()) > 0:
                    self._woken.wait(patience)
                    taken = self._look()
                else:
                    self.work(*(taken or (None,)))
                    taken = None  # `work` has looked, and nothing was there
        finally:
            self._ahead.close()

    def wake(self) -> None:
        """Has the thread look for items. For any thread."""
        self._woken()

    def work(self, fetched: FetchedBytes | None, unpacked: Iterator[Chunk] | None = None) -> None:
        """Processes one item (None: batches whose linger is over), then all others that have come.

        `unpacked`: the item's chunks as far as they were decoded ahead. To ask the event loop for each item would cost as much
        as to decode it. Partitions take turns by time; one of which nothing was processed yet goes first, because it was just
        taken over from another worker.

        Raises `ProcessError`, or the error of bytes that can't be decoded.
        """
        self.counters.work_begins(self._clock())
        try:
            while True:
                self._taken = None if fetched is None else fetched.partition
                while not self._stopped and (newcomer := self._reader.take_newcomer()) is not None:
                    self._carry_out(self._in_turn(newcomer, None))
                self._carry_out(self._in_turn(fetched, unpacked))
                if self._stopped or (taken := self._look()) is None:
                    return
                fetched, unpacked = taken
        finally:
            self._taken = None
            self._turns.end()
            self.counters.work_ends(self._clock())

    def _look(self) -> tuple[FetchedBytes, Iterator[Chunk]] | None:
        """Takes the next item. What comes later wakes the next wait."""
        self._woken.clear()
        return self._ahead.take()

    def stop(self) -> None:
        """Ends `work` after the item in hand, and then `run`. For any thread."""
        self._stopped = True
        self.wake()

    def _carry_out(self, steps: Steps) -> None:
        answer: CallFailed | None = None
        while (step := _next(steps, answer)) is not None:
            answer = None
            if isinstance(step, WaitFor):
                time.sleep(step.seconds)
                continue
            with self._spans.call(step.batch, self._function.spec.unit) as span:
                try:
                    self._function.call(step.batch)
                except CallFailed as failure:
                    answer = noted(failure, span)

    async def work_async(self, fetched: FetchedBytes | TopicPartition) -> None:
        """Processes one item of an async function; given a partition, its batches whose linger is over. Raises as `work`."""
        steps = self._lingered(fetched) if isinstance(fetched, TopicPartition) else self._steps(fetched, None)
        self.counters.work_begins(self._clock())
        try:
            await self._carry_out_async(steps)
        finally:
            self.counters.work_ends(self._clock())

    async def _carry_out_async(self, steps: Steps) -> None:
        answer: CallFailed | None = None
        while (step := _next(steps, answer)) is not None:
            answer = None
            if isinstance(step, WaitFor):
                await asyncio.sleep(step.seconds)
                continue
            with self._spans.call(step.batch, self._function.spec.unit) as span:
                try:
                    await self._function.call_async(step.batch)
                except CallFailed as failure:
                    if this_task_is_cancelled():
                        raise asyncio.CancelledError from failure  # the call neither returned nor failed
                    answer = noted(failure, span)

    def lingering(self) -> dict[TopicPartition, float]:
        """Returns when the linger of each partition that is held back ends."""
        rebatchers = list(self._rebatchers.items()) if self._linger_s else []
        return {p: due for (p, _), r in rebatchers if (due := r.next_due) is not None}

    def idle_s(self, busy: Container[TopicPartition] = ()) -> float:
        """Returns for how many seconds there is nothing to do if no item comes; lingers of `busy` partitions don't count."""
        lingers = (at for p, at in self.lingering().items() if p not in busy)
        due = min((*lingers, *self._parked.copy().values()), default=None)
        return IDLE_S if due is None else max(0.0, min(IDLE_S, due - self._clock()))

    # ------------------------------------------------------------ steps

    def _in_turn(self, fetched: FetchedBytes | None, unpacked: Iterator[Chunk] | None) -> Steps:
        """Processes batches whose linger is over first: behind other partitions' items they might never have their turn."""
        self._unpark(self._clock())
        for lingering, due in self.lingering().items():
            if due <= self._clock():
                self._turns.begin(lingering, self._clock())
                yield from self._lingered(lingering)
        if fetched is not None:
            self._turns.begin(fetched.partition, self._clock())
            yield from self._steps(fetched, unpacked)

    def _steps(self, fetched: FetchedBytes, unpacked: Iterator[Chunk] | None) -> Steps:
        """Processes one item. Leaves it half-way if its partition drains or halts, with the position where the function got to."""
        partition, epoch = fetched.partition, fetched.epoch
        with self._lock:
            if not self._assignment.active(partition, epoch):
                return
            held = self._assignment.held[partition]
            if held.processed is None:
                # Before any of it is consumed: else the start would count as processed while a linger holds records back.
                at = fetched.fetch_offset, self._reader.position_epoch(partition)
                self._assignment.positioned(partition, *at)
            resets, done = held.resets, held.done
        rebatcher, turn_over = self._rebatcher(partition, epoch), partial(self._turn_over, fetched)
        for chunk in self._reader.decode(fetched, unpacked):
            batch = without(chunk.batch, done, chunk.leader_epoch) if done else chunk.batch
            decoded = CallBatch(batch, chunk.next_offset, chunk.leader_epoch, resets)
            for piece in rebatcher.add(decoded, self._clock()):
                if not self._assignment.active(partition, epoch):
                    return
                # A piece from before a reset, held back by a linger, has offsets of another log.
                own = turn_over if piece.resets == resets else _never
                if not (yield from self._calls.until_done(partition, epoch, piece, own)):
                    return
                if own(piece.next_offset):
                    return
        with self._lock:
            active = self._assignment.active(partition, epoch)
        if active:
            self._reader.consumed(fetched)

    def _turn_over(self, fetched: FetchedBytes, offset: int) -> bool:
        """Takes that the partition got to this offset. Returns whether its turn is over. The rest of its bytes is then decoded
        again in its next turn: to keep it decoded for every partition would take memory without bound."""
        if offset < fetched.fetch_offset:
            return False  # of the item before, held back by a linger
        partition, now = fetched.partition, self._clock()
        self._reader.consumed(fetched, offset)
        wait_s = self._retry_counter.wait_s(partition, offset, now) if self._parks else 0.0
        if not wait_s and not self._turns.over(
            now, newcomer=self._reader.newcomer, others=lambda: self._others_wait(partition)
        ):
            return False
        self._ahead.forget({partition})
        self._reader.put_back(partition)
        if wait_s:
            with suppress(UsageError):  # the worker's loop has revoked it meanwhile
                self._reader.pause((partition,))
                self._parked[partition] = now + wait_s
        return True

    def _unpark(self, now: float) -> None:
        """Has partitions go on whose failed call is due. It waited where no other partition had to wait for it."""
        for partition in [partition for partition, due in self._parked.copy().items() if due <= now]:
            self._parked.pop(partition, None)
            with suppress(UsageError):  # as above
                self._reader.resume((partition,))

    def _others_wait(self, partition: TopicPartition) -> bool:
        return any(p != partition for p in self._waiting(self._clock()))

    def _waiting(self, now: float) -> Iterator[TopicPartition]:
        """Partitions with something to process: fetched items, and batches whose linger is over."""
        yield from self._ahead.waiting()
        yield from self._reader.waiting()
        yield from (partition for partition, due in self.lingering().items() if due <= now)

    def blocked(self, partition: TopicPartition) -> str:
        """Returns why nothing of a partition is processed; empty if the reason lies elsewhere."""
        return self.counters.blocked(partition) or self._turns.blocked(partition, self._clock())

    def window(self, partition: TopicPartition) -> None:
        """Partitions with one call at a time have no window."""

    def follow(self, watermarks: Iterable[tuple[TopicPartition, int]]) -> None:
        """Partitions whose records have an order aren't dealt in slices: nothing follows."""

    def note_waiting(self) -> None:
        """Notes which partitions wait for their turn. For any thread."""
        now = self._clock()
        at_hand = set() if self._taken is None else {self._taken}  # newcomers and lingers go before it
        self._turns.seen(at_hand.union(self._waiting(now)), now)

    def note_done(self) -> None:
        """Notes nothing: records are done in order here, none beyond an offset to commit."""

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drops partitions that other workers have now."""
        self.counters.forget(partitions)
        for partition in partitions:
            self._parked.pop(partition, None)
        self._retry_counter.forget(partitions)
        self._suspects.forget(partitions)

    def suspect(self, calls: Iterable[DeathsInCall]) -> None:
        """Takes calls in which other workers died: they are made again as they were, and alone."""
        for died in calls:
            self._suspects.suspect(died)

    def _lingered(self, partition: TopicPartition) -> Steps:
        for (of, epoch), rebatcher in list(self._rebatchers.items()):
            piece = rebatcher.due(self._clock()) if of == partition else None
            if piece is not None:
                yield from self._calls.until_done(partition, epoch, piece)

    def _rebatcher(self, partition: TopicPartition, epoch: GrantEpoch) -> Rebatcher:
        key = (partition, epoch)
        if key not in self._rebatchers:
            held = self._assignment.held
            for old in [k for k in self._rebatchers if k[0] not in held or k[0] == partition]:
                del self._rebatchers[old]
            self._rebatchers[key] = Rebatcher(self._batch_rows, self._linger_s)
        return self._rebatchers[key]


def _never(offset: int) -> bool:
    return False


def noted(failure: CallFailed, span: Span | None) -> CallFailed:
    """Returns the failure, which its span has then."""
    if span is not None:
        failed(span, failure.cause)
    return failure


def _next(steps: Steps, answer: CallFailed | None) -> Step | None:
    try:
        return steps.send(answer)
    except StopIteration:
        return None
