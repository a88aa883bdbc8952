"""Calls of the user's function with one batch: retries, halving, and the error policy, until the batch is done.

The generators of `FunctionCalls` yield what to do next, calls and waits, and are sent the result of each call. The processing
thread carries them out, so that a function and an async function share all of this. `error_policy.py` decides after the last retry.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Generator

import msgspec
import pyarrow as pa

from kafka_actors.base.batches import first_and_last_offset, numbers
from kafka_actors.base.bisect import Bisection
from kafka_actors.errors import WorkerDiedError
from kafka_actors.job.machines.retries import RetryCounter, SuspectCalls
from kafka_actors.job.messages import DeathsInCall, GrantEpoch
from kafka_actors.types import TopicPartition

from .call_record import CallRecord
from .counters import WorkerCounters
from .error_policy import ErrorPolicy, behind_all, log_retry
from .machines.rebatch import CallBatch, split
from .machines.worker_assignment import WorkerAssignment
from .user_function import CallFailed, FunctionSpec

__all__ = ["LOST", "CallFunction", "Cut", "FunctionCalls", "Lost", "Step", "Steps", "WaitFor"]


RECHECK_S = 0.02


class WaitFor(msgspec.Struct, frozen=True):
    """Resume the generator after this time."""

    seconds: float


class Lost(enum.Enum):
    """The results of a call count no more: its partition was taken away meanwhile."""

    LOST = "lost"


LOST = Lost.LOST


class Cut:
    """The place between calls where results and offsets meet. Here, for at least once, each call writes its results by itself, and
    nothing has to wait; with transactions it is a `ProducerSessions`."""

    def enter(self) -> Generator[WaitFor, None, None]:
        yield from ()

    def leave(self) -> None: ...

    def put_out(
        self,
        partition: TopicPartition,
        epoch: GrantEpoch,
        resets: int,
        failure: CallFailed | None,
        *,
        partly: bool = True,
    ) -> CallFailed | Lost | None:
        return failure

    def may_write(self, partition: TopicPartition, epoch: GrantEpoch, resets: int) -> bool:
        return True

    def spoiled(self, error: BaseException) -> None: ...


class CallFunction(msgspec.Struct, frozen=True):
    """Call the user's function with this batch; the generator is sent None, or the `CallFailed`."""

    batch: pa.RecordBatch


Step = CallFunction | WaitFor
Steps = Generator[Step, CallFailed | None, None]


class FunctionCalls:
    """Makes the calls of one worker.

    `lock` guards `assignment`. `suspects`: calls in which other workers died. `blocked_by`: why no call may begin now, empty if
    it may. `stopped`: whether the processing thread is to end. `on_progress(ended)` is called after each batch; `ended`: a
    bounded partition got to its end.
    """

    def __init__(
        self,
        spec: FunctionSpec,
        assignment: WorkerAssignment,
        lock: threading.Lock,
        error_policy: ErrorPolicy,
        counters: WorkerCounters,
        retry_counter: RetryCounter,
        suspects: SuspectCalls,
        call_record: CallRecord | None,
        *,
        cut: Cut,
        blocked_by: Callable[[], str],
        stopped: Callable[[], bool],
        on_progress: Callable[[bool], None],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._spec = spec
        self._assignment = assignment
        self._lock = lock
        self._error_policy = error_policy
        self._counters = counters
        self._retry_counter = retry_counter
        self._suspects = suspects
        self._call_record = call_record
        self._alone: TopicPartition | None = None
        """The partition whose call is made, or waits to be made, with no other call beside it."""
        self._cut = cut
        self._blocked_by = blocked_by
        self._stopped = stopped
        self._on_progress = on_progress
        self._clock = clock
        self._wall = wall

    def until_done(
        self,
        partition: TopicPartition,
        epoch: GrantEpoch,
        piece: CallBatch,
        turn_over: Callable[[int], bool] = lambda offset: False,
    ) -> Generator[Step, CallFailed | None, bool]:
        """Calls the function until it has returned for the whole piece. Returns False if the worker lost the partition
        meanwhile, or its turn ended: `turn_over(offset)` is asked before a call from this offset on is repeated."""
        while True:
            if partition not in self._suspects:
                return (yield from self._called(partition, epoch, piece, turn_over))
            planned = self._suspects.next(partition, numbers(piece.batch["offset"]))
            head, rest = split(piece, planned.rows)
            if planned.too_many_deaths is not None:
                done = yield from self._after_deaths(partition, epoch, head, planned.too_many_deaths)
            elif planned.alone:
                done = yield from self._called_alone(partition, epoch, head, turn_over)
            else:
                done = yield from self._called(partition, epoch, head, turn_over)
            if not done or rest is None:
                return done
            piece = rest

    def _called_alone(
        self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch, turn_over: Callable[[int], bool]
    ) -> Generator[Step, CallFailed | None, bool]:
        """Makes a call while no other is in hand: should the process die, it is clear in which call."""
        while self._alone is not None:
            yield WaitFor(RECHECK_S)
        self._alone = partition
        try:
            while self._counters.calls and not self._stopped():
                yield WaitFor(RECHECK_S)
            return (yield from self._called(partition, epoch, piece, turn_over))
        finally:
            self._alone = None

    def _after_deaths(
        self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch, died: DeathsInCall
    ) -> Generator[Step, CallFailed | None, bool]:
        """Applies the error policy to records in whose call too many workers died. Raises what ends the job."""
        if not (yield from self._permission(partition, epoch)) or not self._begin(partition, epoch):
            return False
        self._counters.call_ended(partition, self._clock(), None)
        first, last = first_and_last_offset(piece.batch)
        failure = CallFailed(WorkerDiedError(died.times, died.how), first, last, final=True)
        left = yield from self._after_failure(partition, epoch, piece, failure, died.times)
        return self._done(partition, epoch, left)

    def _after_failure(
        self,
        partition: TopicPartition,
        epoch: GrantEpoch,
        piece: CallBatch,
        failure: CallFailed,
        attempts: int,
    ) -> Generator[Step, CallFailed | None, CallBatch]:
        yield from self._cut.enter()
        try:
            return self._error_policy.after(partition, epoch, piece, failure, attempts)
        finally:
            self._cut.leave()

    def _called(
        self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch, turn_over: Callable[[int], bool]
    ) -> Generator[Step, CallFailed | None, bool]:
        while piece.batch.num_rows:
            first, last = first_and_last_offset(piece.batch)
            if wait_s := self._retry_counter.wait_s(partition, first, self._clock()):
                yield WaitFor(wait_s)
            if not (yield from self._permission(partition, epoch)) or not self._begin(partition, epoch):
                return False
            failure = yield from self._call(partition, piece.batch, first, last)
            yield from self._cut.enter()
            try:
                written = self._cut.put_out(partition, epoch, piece.resets, failure)
                if isinstance(written, Lost):
                    return self._goes_on(partition, epoch)
                if (failure := written) is None:
                    return self._succeeded(partition, epoch, piece)
                if failure.first > first:
                    piece = self._done_until(partition, epoch, piece, failure.first)
            finally:
                self._cut.leave()
            attempts = self._retry_counter.failed(partition, failure.first, self._clock())
            if attempts > self._spec.retries or failure.final:
                left = yield from self._after_last_try(partition, epoch, piece, failure, attempts)
                if left is None:
                    return False
                piece = left
                continue
            self._retry(partition, failure, attempts)
            with self._lock:
                self._assignment.call_failed(partition, epoch)
            if turn_over(failure.first):
                return False
        return self._succeeded(partition, epoch, piece)

    def _goes_on(self, partition: TopicPartition, epoch: GrantEpoch) -> bool:
        """Closes a call whose results count no more. Returns whether only the position was reset meanwhile, and the partition is still
        the worker's: then the records behind these are processed."""
        with self._lock:
            self._assignment.call_failed(partition, epoch)
            return self._assignment.active(partition, epoch)

    def _succeeded(self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch) -> bool:
        self._retry_counter.forget([partition])
        self._counters.processed(partition, piece.batch, self._wall())
        return self._done(partition, epoch, piece)

    def _done(self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch) -> bool:
        with self._lock:
            ended = self._assignment.done(
                partition, epoch, piece.next_offset, piece.leader_epoch, piece.resets
            )
        self._on_progress(ended)
        return True

    def _call(
        self, partition: TopicPartition, batch: pa.RecordBatch, first: int, last: int
    ) -> Generator[Step, CallFailed | None, CallFailed | None]:
        if self._call_record is not None:
            self._call_record.call_began(partition, first, last)
        failure = yield CallFunction(batch)
        if self._call_record is not None:
            self._call_record.call_ended(partition)
        self._counters.call_ended(partition, self._clock(), failure)
        return failure

    def _after_last_try(
        self,
        partition: TopicPartition,
        epoch: GrantEpoch,
        piece: CallBatch,
        failure: CallFailed,
        attempts: int,
    ) -> Generator[Step, CallFailed | None, CallBatch | None]:
        """Finds the records at fault by halving, and applies the error policy to them. Returns what is left of the piece; None
        if the worker lost the partition. Raises what ends the job."""
        if failure.final or not self._error_policy.takes_out or failure.first == failure.last:
            return (yield from self._after_failure(partition, epoch, piece, failure, attempts))
        batch, halving = piece.batch, Bisection(piece.batch.num_rows)
        bad: CallFailed | None = None
        while (part := halving.part) is not None:
            with self._lock:
                self._assignment.call_failed(partition, epoch)
            if not (yield from self._permission(partition, epoch)) or not self._begin(partition, epoch):
                return None
            tried = batch.slice(*part)
            again = yield from self._call(partition, tried, *first_and_last_offset(tried))
            yield from self._cut.enter()
            try:
                written = self._cut.put_out(partition, epoch, piece.resets, again, partly=False)
                if isinstance(written, Lost):
                    return behind_all(piece) if self._goes_on(partition, epoch) else None
                again = written
                settled = again is None or halving.failed()
                if bad is not None and settled and not (again is not None and bad.continues_in(again)):
                    piece, bad = self._error_policy.after(partition, epoch, piece, bad, attempts), None
                if again is None:
                    halving.succeeded()
                    behind = batch["offset"][sum(part) - 1].as_py() + 1
                    piece = self._done_until(partition, epoch, piece, behind)
                elif settled:
                    bad = again if bad is None else CallFailed(bad.cause, bad.first, again.last)
            finally:
                self._cut.leave()
        if bad is None:
            return piece
        return (yield from self._after_failure(partition, epoch, piece, bad, attempts))

    def _permission(
        self, partition: TopicPartition, epoch: GrantEpoch
    ) -> Generator[Step, CallFailed | None, bool]:
        """Waits while no call may begin: the job is paused, or the lease has ended. Returns False if the processing thread is
        to stop."""
        while self._assignment.active(partition, epoch) and (reason := self._reason(partition)):
            if self._stopped():
                return False
            self._counters.waiting(partition, reason)
            yield WaitFor(RECHECK_S)
        return True

    def _reason(self, partition: TopicPartition) -> str:
        if self._alone not in (None, partition):
            return "waits for its turn: a call in which workers died is made alone"
        return self._blocked_by()

    def _begin(self, partition: TopicPartition, epoch: GrantEpoch) -> bool:
        with self._lock:
            if not self._assignment.begin(partition, epoch):
                return False
        self._counters.call_began(partition, self._clock())
        return True

    def _done_until(
        self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch, offset: int
    ) -> CallBatch:
        """Counts the records before `offset` as processed; returns the rest of the piece."""
        before = int((numbers(piece.batch["offset"]) < offset).sum())
        self._counters.processed(partition, piece.batch.slice(0, before), self._wall())
        with self._lock:
            self._assignment.done(partition, epoch, offset, piece.leader_epoch, piece.resets)
        return msgspec.structs.replace(piece, batch=piece.batch.slice(before))

    def _retry(self, partition: TopicPartition, failure: CallFailed, attempt: int) -> None:
        self._counters.retrying(partition, failure)
        log_retry(partition, failure, attempt, self._spec.retries)
