"""The worker's bench: decodes fetched bytes and calls the user's function on them, one partition at a time.

It runs in a thread of its own (async functions in an event loop on that thread), so heartbeats, fetching and
orders never wait for the user's code. The generators `_in_turn` and `_steps` say what is to be done next, as calls
and waits; `work` and `work_async` carry these out, so a function and an async function are treated alike.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from functools import partial
from typing import Protocol

from opentelemetry.trace import Span

from kafka_actors.events import EventSink
from kafka_actors.fetch import DecodeAhead, FetchedBytes
from kafka_actors.job.machines.deaths import SuspectCalls
from kafka_actors.job.machines.lease import Lease
from kafka_actors.job.messages import DeathsInCall, GrantEpoch
from kafka_actors.records import Chunk
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.telemetry.spans import ProcessSpans, failed
from kafka_actors.types import TopicPartition

from .call_record import CallRecord
from .calls import FunctionCalls, Step, Steps, WaitFor
from .counters import WorkerCounters
from .error_policy import ErrorPolicy
from .machines.rebatch import CallBatch, Rebatcher
from .machines.retries import RetryCounter
from .machines.turns import Turns
from .machines.worker_assignment import WorkerAssignment
from .user_function import CallFailed, UserFunction

__all__ = ["ProcessingThread"]

logger = logging.getLogger(__name__)

IDLE_S = 0.25


class FetchedRecords(Protocol):
    """What the bench needs of the fetcher, from any thread."""

    def unpack(self, fetched: FetchedBytes) -> Iterator[Chunk]: ...
    def decode(self, fetched: FetchedBytes, unpacked: Iterator[Chunk] | None) -> Iterator[Chunk]: ...
    def take(self) -> FetchedBytes | None: ...
    def take_more(self) -> FetchedBytes | None: ...
    def take_newcomer(self) -> FetchedBytes | None: ...
    def consumed(self, fetched: FetchedBytes, next_offset: int | None = None) -> object: ...
    def put_back(self, partition: TopicPartition) -> None: ...
    def waiting(self) -> Collection[TopicPartition]: ...

    @property
    def newcomer(self) -> bool: ...


class ProcessingThread:
    """Works through fetched bytes. `lock` guards `assignment`, which the control loop changes too."""

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
        self._retry_counter = RetryCounter()
        self._suspects = SuspectCalls(function.spec.retries, function.spec.on_error != "fail")
        self.counters = WorkerCounters(group, recorder or Recorder())
        self.paused = False
        self._left = False
        self._calls = FunctionCalls(
            function.spec,
            assignment,
            lock,
            ErrorPolicy(function, assignment, lock, events),
            self.counters,
            self._retry_counter,
            self._suspects,
            call_record,
            blocked_by=lambda: "paused" if self.paused else "" if lease.valid(clock()) else "no lease",
            left=lambda: self._left,
            on_progress=on_progress,
            clock=clock,
            wall=wall,
        )
        self._woken = threading.Event()

    # ------------------------------------------------------------ carrying out

    def run(self) -> None:
        """Works off what comes until `leave`; raises as `work`. It waits in this thread, because every other one between
        a record and the user's function would have to be woken first."""
        try:
            while not self._left:
                self._woken.clear()
                taken = self._ahead.take()
                patience = 0.0 if taken is not None else self.patience()
                if patience > 0:
                    self._woken.wait(patience)
                else:
                    self.work(*(taken or (None,)))
        finally:
            self._ahead.close()

    def wake(self) -> None:
        """From any thread: there may be something to work on."""
        self._woken.set()

    def work(self, fetched: FetchedBytes | None, unpacked: Iterator[Chunk] | None = None) -> None:
        """Decodes (as far as that was not done ahead) and processes one partition's bytes (None: what a linger held
        back long enough), then whatever else has come, until there is nothing more: to ask the loop for each would
        cost as much as to decode it. Partitions have their turns by time; one of which nothing was processed yet goes
        first, because it was just taken over from another worker.

        Raises `ProcessError`, or the named error of bytes that can't be read.
        """
        self.counters.work_begins(self._clock())
        try:
            while True:
                while not self._left and (newcomer := self._reader.take_newcomer()) is not None:
                    self._carry_out(self._in_turn(newcomer, None))
                self._carry_out(self._in_turn(fetched, unpacked))
                if self._left or (taken := self._ahead.take()) is None:
                    return
                fetched, unpacked = taken
        finally:
            self._turns.end()
            self.counters.work_ends(self._clock())

    def leave(self) -> None:
        """From any thread: `work` ends after the bytes that it is at, and `run` then."""
        self._left = True
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
                    answer = _failed(failure, span)

    async def work_async(self, fetched: FetchedBytes | TopicPartition) -> None:
        """As `work`, awaiting the user's function; given a partition, works off what a linger held back of it."""
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
                    if _cancelled():
                        raise asyncio.CancelledError from failure  # neither done nor failed
                    answer = _failed(failure, span)

    def lingering(self) -> dict[TopicPartition, float]:
        """When what is held back of each partition is to be processed."""
        rebatchers = list(self._rebatchers.items()) if self._linger_s else []
        return {p: due for (p, _), r in rebatchers if (due := r.next_due) is not None}

    def patience(self, busy: Container[TopicPartition] = ()) -> float:
        """How long there is nothing to do if nothing comes; what is held back of busy partitions does not count."""
        due = min((at for p, at in self.lingering().items() if p not in busy), default=None)
        return IDLE_S if due is None else max(0.0, min(IDLE_S, due - self._clock()))

    # ------------------------------------------------------------ what is done next

    def _in_turn(self, fetched: FetchedBytes | None, unpacked: Iterator[Chunk] | None) -> Steps:
        """What is overdue goes first: with records of others always at hand it would never have its turn."""
        for lingering, due in self.lingering().items():
            if due <= self._clock():
                yield from self._lingered(lingering)
        if fetched is not None:
            self._turns.begin(fetched.partition, self._clock())
            yield from self._steps(fetched, unpacked)

    def _steps(self, fetched: FetchedBytes, unpacked: Iterator[Chunk] | None) -> Steps:
        """A partition that drains, or halted, is left half way, and its position stays where its function got to."""
        partition, epoch = fetched.partition, fetched.epoch
        with self._lock:
            if not self._assignment.active(partition, epoch):
                return
            # Before any of it is consumed: what a linger holds back must not pass for the start of the partition.
            self._assignment.positioned(partition, fetched.fetch_offset)
            resets = self._assignment.held[partition].resets
        rebatcher, turn_over = self._rebatcher(partition, epoch), partial(self._turn_over, fetched)
        for chunk in self._reader.decode(fetched, unpacked):
            whole = CallBatch(chunk.batch, chunk.next_offset, chunk.leader_epoch, resets)
            for piece in rebatcher.add(whole, self._clock()):
                if not self._assignment.active(partition, epoch):
                    return
                # What a linger held back since before a reset has offsets of another log.
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
        """The partition got to this offset: whether its turn is over. The rest is handed out, and decoded, anew when its
        next one comes: to keep it decoded for every partition would take memory without bound."""
        if offset < fetched.fetch_offset:
            return False  # of what a linger held back of the bytes before
        partition = fetched.partition
        self._reader.consumed(fetched, offset)
        if not self._turns.over(
            self._clock(), newcomer=self._reader.newcomer, others=lambda: self._others_wait(partition)
        ):
            return False
        self._ahead.forget({partition})
        self._reader.put_back(partition)
        return True

    def _others_wait(self, partition: TopicPartition) -> bool:
        now = self._clock()
        overdue = (p for p, due in self.lingering().items() if due <= now)
        return any(p != partition for p in (*self._ahead.waiting(), *self._reader.waiting(), *overdue))

    def blocked(self, partition: TopicPartition) -> str:
        """Why nothing of it is processed; empty where that is not up to the bench."""
        return self.counters.blocked(partition) or self._turns.blocked(partition, self._clock())

    def look(self) -> None:
        """From any thread: notes which partitions wait for their turn."""
        self._turns.seen({*self._ahead.waiting(), *self._reader.waiting()}, self._clock())

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """They are others' now."""
        self.counters.forget(partitions)
        self._retry_counter.forget(partitions)
        self._suspects.forget(partitions)

    def suspect(self, calls: Iterable[DeathsInCall]) -> None:
        """Other workers died in these: they are made again as they were, and no other beside them."""
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


def _cancelled() -> bool:
    """Whether somebody wants this task to end; what only the user's function cancelled is an error of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failed(failure: CallFailed, span: Span | None) -> CallFailed:
    if span is not None:
        failed(span, failure.cause)
    return failure


def _next(steps: Steps, answer: CallFailed | None) -> Step | None:
    try:
        return steps.send(answer)
    except StopIteration:
        return None
