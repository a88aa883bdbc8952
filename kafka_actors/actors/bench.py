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
from collections.abc import Callable, Container, Generator, Iterator
from typing import Protocol

import msgspec
import pyarrow as pa
from opentelemetry.trace import Span

from kafka_actors.batches import numbers
from kafka_actors.events import EventSink
from kafka_actors.fetch import Ahead, FetchedBytes
from kafka_actors.protocol.types import TopicPartition
from kafka_actors.records import Chunk
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.telemetry.spans import ProcessSpans, failed

from .giving_up import GivingUp
from .machines.holdings import Holdings
from .machines.lease import Lease
from .machines.regroup import Piece, Regrouper
from .messages import Epoch
from .process import CallFailed, Processor
from .progress import Progress

__all__ = ["Bench"]

logger = logging.getLogger(__name__)

PATIENCE_S = 0.02
IDLE_S = 0.25
BACKOFF_S = 0.1
BACKOFF_MAX_S = 2.0


class Reader(Protocol):
    """What the bench needs of the fetcher, from any thread."""

    def unpack(self, fetched: FetchedBytes) -> Iterator[Chunk]: ...
    def decode(self, fetched: FetchedBytes, unpacked: Iterator[Chunk] | None) -> Iterator[Chunk]: ...
    def take(self) -> FetchedBytes | None: ...
    def take_more(self) -> FetchedBytes | None: ...
    def take_newcomer(self) -> FetchedBytes | None: ...
    def consumed(self, fetched: FetchedBytes) -> object: ...


class Call(msgspec.Struct, frozen=True):
    """Call the user's function on this batch; the answer is None or the `CallFailed`."""

    batch: pa.RecordBatch


class Wait(msgspec.Struct, frozen=True):
    """Come back after so many seconds."""

    seconds: float


class Between(msgspec.Struct, frozen=True):
    """Between two calls: the moment for a partition that was just taken over from a dead worker."""


Step = Call | Wait | Between
Steps = Generator[Step, CallFailed | None, None]


class Bench:
    """Works through fetched bytes. `lock` guards `holdings`, which the control loop changes too."""

    def __init__(
        self,
        processor: Processor,
        holdings: Holdings,
        lease: Lease,
        reader: Reader,
        *,
        lock: threading.Lock,
        batch_rows: int | None,
        linger_s: float,
        events: EventSink,
        on_progress: Callable[[bool], None],
        recorder: Recorder | None = None,
        group: str | None = None,
        spans: ProcessSpans | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,  # wall clock: record timestamps are times of day
    ) -> None:
        self._processor = processor
        self._spec = processor.spec
        self._holdings = holdings
        self._lease = lease
        self._reader = reader
        self._ahead = Ahead(reader)
        self._lock = lock
        self._batch_rows = batch_rows
        self._linger_s = linger_s
        self._on_progress = on_progress
        self._spans = spans or ProcessSpans(group, "")
        self._clock = clock
        self._wall = wall
        self._regroupers: dict[tuple[TopicPartition, Epoch], Regrouper] = {}
        self._giving_up = GivingUp(processor, holdings, lock, events)
        self.progress = Progress(group, recorder or Recorder())
        self.paused = False
        self._left = False
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
        cost as much as to decode it.

        Raises `ProcessError`, or the named error of bytes that can't be read.
        """
        self.progress.work_begins(self._clock())
        try:
            while True:
                self._carry_out(self._in_turn(fetched, unpacked))
                if fetched is not None:
                    self._consumed(fetched)
                if self._left or (taken := self._ahead.take()) is None:
                    return
                fetched, unpacked = taken
        finally:
            self.progress.work_ends(self._clock())

    def leave(self) -> None:
        """From any thread: `work` ends after the bytes that it is at, and `run` then."""
        self._left = True
        self.wake()

    def _carry_out(self, steps: Steps) -> None:
        answer: CallFailed | None = None
        while (step := _next(steps, answer)) is not None:
            answer = None
            if isinstance(step, Wait):
                time.sleep(step.seconds)
                continue
            if isinstance(step, Between):
                self._serve_newcomers()
                continue
            with self._spans.call(step.batch, self._spec.unit) as span:
                try:
                    self._processor.call(step.batch)
                except CallFailed as failure:
                    answer = _failed(failure, span)

    async def work_async(self, fetched: FetchedBytes | TopicPartition) -> None:
        """As `work`, awaiting the user's function; given a partition, works off what a linger held back of it."""
        steps = self._lingered(fetched) if isinstance(fetched, TopicPartition) else self._steps(fetched, None)
        self.progress.work_begins(self._clock())
        try:
            await self._carry_out_async(steps)
        finally:
            self.progress.work_ends(self._clock())
        if isinstance(fetched, FetchedBytes):
            self._consumed(fetched)

    async def _carry_out_async(self, steps: Steps) -> None:
        answer: CallFailed | None = None
        while (step := _next(steps, answer)) is not None:
            answer = None
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
                continue
            if isinstance(step, Between):
                continue  # partitions overlap: a newcomer waits for nobody
            with self._spans.call(step.batch, self._spec.unit) as span:
                try:
                    await self._processor.call_async(step.batch)
                except CallFailed as failure:
                    if _cancelled():
                        raise asyncio.CancelledError from failure  # neither done nor failed
                    answer = _failed(failure, span)

    def _serve_newcomers(self) -> None:
        while (fetched := self._reader.take_newcomer()) is not None:
            self._carry_out(self._steps(fetched, None))
            self._consumed(fetched)

    def _consumed(self, fetched: FetchedBytes) -> None:
        """The work on these bytes is over. A partition that drains, or halted, is left half way, and its position
        stays where its function got to."""
        with self._lock:
            whole = self._holdings.active(fetched.partition, fetched.epoch)
        if whole:
            self._reader.consumed(fetched)

    def lingering(self) -> dict[TopicPartition, float]:
        """When what is held back of each partition is to be processed."""
        regroupers = list(self._regroupers.items())
        return {p: due for (p, _), r in regroupers if (due := r.next_due) is not None}

    def patience(self, busy: Container[TopicPartition] = ()) -> float:
        """How long there is nothing to do if nothing comes; what is held back of busy partitions does not count."""
        due = min((at for p, at in self.lingering().items() if p not in busy), default=None)
        return IDLE_S if due is None else max(0.0, min(IDLE_S, due - self._clock()))

    # ------------------------------------------------------------ what is done next

    def _in_turn(self, fetched: FetchedBytes | None, unpacked: Iterator[Chunk] | None) -> Steps:
        """What is overdue goes first: with records of others always at hand it would never have its turn."""
        for lingering in self.lingering():
            yield from self._lingered(lingering)
        if fetched is not None:
            yield from self._steps(fetched, unpacked)

    def _steps(self, fetched: FetchedBytes, unpacked: Iterator[Chunk] | None) -> Steps:
        partition, epoch = fetched.partition, fetched.epoch
        with self._lock:
            if not self._holdings.active(partition, epoch):
                return
            # Before any of it is consumed: what a linger holds back must not pass for the start of the partition.
            self._holdings.positioned(partition, fetched.fetch_offset)
            resets = self._holdings.held[partition].resets
        regrouper = self._regrouper(partition, epoch)
        for chunk in self._reader.decode(fetched, unpacked):
            whole = Piece(chunk.batch, chunk.next_offset, chunk.leader_epoch, resets)
            for piece in regrouper.add(whole, self._clock()):
                if not self._holdings.active(partition, epoch):
                    return
                yield from self._piece(partition, epoch, piece)

    def _lingered(self, partition: TopicPartition) -> Steps:
        for (of, epoch), regrouper in list(self._regroupers.items()):
            piece = regrouper.due(self._clock()) if of == partition else None
            if piece is not None:
                yield from self._piece(partition, epoch, piece)

    def _regrouper(self, partition: TopicPartition, epoch: Epoch) -> Regrouper:
        key = (partition, epoch)
        if key not in self._regroupers:
            held = self._holdings.held
            for old in [k for k in self._regroupers if k[0] not in held or k[0] == partition]:
                del self._regroupers[old]
            self._regroupers[key] = Regrouper(self._batch_rows, self._linger_s)
        return self._regroupers[key]

    def _piece(self, partition: TopicPartition, epoch: Epoch, piece: Piece) -> Steps:
        """Calls the function until it returned for the whole piece, or the partition is not ours to work on."""
        attempt = 0
        while piece.batch.num_rows:
            yield Between()
            if not (yield from self._permission(partition, epoch)) or not self._begin(partition, epoch):
                return
            failure = yield Call(piece.batch)
            self.progress.ends(partition, self._clock(), failure)
            if failure is None:
                break
            if failure.first > piece.batch["offset"][0].as_py():
                piece, attempt = self._done_until(partition, epoch, piece, failure.first), 0
            attempt += 1
            if attempt <= self._spec.retries and not failure.final:
                self._retry(partition, failure, attempt)
                with self._lock:
                    self._holdings.given_up(partition, epoch)
                yield Wait(min(BACKOFF_S * 2 ** (attempt - 1), BACKOFF_MAX_S))
                continue
            piece, attempt = self._giving_up.after(partition, epoch, piece, failure, attempt), 0
        self.progress.did(partition, piece.batch, self._wall())
        with self._lock:
            ended = self._holdings.done(partition, epoch, piece.next_offset, piece.leader_epoch, piece.resets)
        self._on_progress(ended)

    def _permission(
        self, partition: TopicPartition, epoch: Epoch
    ) -> Generator[Step, CallFailed | None, bool]:
        """Waits while the job is paused or the lease has run out: no new call then, whatever is in the buffers. False
        where the bench was left meanwhile."""
        while self._holdings.active(partition, epoch) and (
            self.paused or not self._lease.valid(self._clock())
        ):
            if self._left:
                return False
            self.progress.waits(partition, "paused" if self.paused else "no lease")
            yield Wait(PATIENCE_S)
        return True

    def _begin(self, partition: TopicPartition, epoch: Epoch) -> bool:
        with self._lock:
            if not self._holdings.begin(partition, epoch):
                return False
        self.progress.begins(partition, self._clock())
        return True

    def _done_until(self, partition: TopicPartition, epoch: Epoch, piece: Piece, offset: int) -> Piece:
        """Message by message: those before the failing one are done; the rest of the piece is returned."""
        before = int((numbers(piece.batch["offset"]) < offset).sum())
        self.progress.did(partition, piece.batch.slice(0, before), self._wall())
        with self._lock:
            self._holdings.done(partition, epoch, offset, piece.leader_epoch, piece.resets)
        return msgspec.structs.replace(piece, batch=piece.batch.slice(before))

    def _retry(self, partition: TopicPartition, failure: CallFailed, attempt: int) -> None:
        self.progress.repeats(partition, failure)
        logger.warning(
            "process failed for %s-%d offsets %d to %d (%s: %s); retry %d of %d",
            partition.topic,
            partition.partition,
            failure.first,
            failure.last,
            type(failure.cause).__name__,
            failure.cause,
            attempt,
            self._spec.retries,
            extra={"fields": {"topic": partition.topic, "partition": partition.partition}},
        )


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
