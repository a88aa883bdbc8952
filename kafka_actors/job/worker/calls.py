"""Calls of the user's function: one batch until it returned for it, or until somebody else has to decide.

The generators say what is to be done next, as calls and waits; the bench carries these out, so that a function and an
async function are treated alike.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator

import msgspec
import pyarrow as pa

from kafka_actors.base.batches import numbers
from kafka_actors.base.bisect import Bisection
from kafka_actors.errors import WorkerDiedError
from kafka_actors.job.machines.deaths import SuspectCalls
from kafka_actors.job.messages import DeathsInCall, GrantEpoch
from kafka_actors.types import TopicPartition

from .call_record import CallRecord
from .counters import WorkerCounters
from .error_policy import ErrorPolicy
from .machines.rebatch import CallBatch, split
from .machines.retries import RetryCounter
from .machines.worker_assignment import WorkerAssignment
from .user_function import CallFailed, FunctionSpec

__all__ = ["CallFunction", "FunctionCalls", "Step", "Steps", "WaitFor"]

logger = logging.getLogger(__name__)

RECHECK_S = 0.02


class CallFunction(msgspec.Struct, frozen=True):
    """Call the user's function on this batch; the answer is None or the `CallFailed`."""

    batch: pa.RecordBatch


class WaitFor(msgspec.Struct, frozen=True):
    """Come back after so many seconds."""

    seconds: float


Step = CallFunction | WaitFor
Steps = Generator[Step, CallFailed | None, None]


class FunctionCalls:
    """`lock` guards `assignment`. `blocked_by`: why no call is begun now, empty if nothing speaks against it; `left`: whether
    the bench is to end."""

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
        blocked_by: Callable[[], str],
        left: Callable[[], bool],
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
        self._alone: TopicPartition | None = (
            None  # a call of it is made, or waits to be, with no other beside it
        )
        self._blocked_by = blocked_by
        self._left = left
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
        """Calls the function until it returned for the whole piece. False where the partition is not ours to work on, or
        `turn_over`, asked before a call from this offset on is tried again, to another one."""
        while True:
            planned = self._suspects.next(partition, numbers(piece.batch["offset"]))
            head, rest = split(piece, planned.rows)
            if planned.given_up is not None:
                done = yield from self._after_deaths(partition, epoch, head, planned.given_up)
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
        """While no other call is in hand: should the process end, it is clear in which one."""
        while self._alone is not None:
            yield WaitFor(RECHECK_S)
        self._alone = partition
        try:
            while self._counters.calls and not self._left():
                yield WaitFor(RECHECK_S)
            return (yield from self._called(partition, epoch, piece, turn_over))
        finally:
            self._alone = None

    def _after_deaths(
        self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch, died: DeathsInCall
    ) -> Generator[Step, CallFailed | None, bool]:
        """The records in whose call so many workers died. Raises what ends the job."""
        if not (yield from self._permission(partition, epoch)) or not self._begin(partition, epoch):
            return False
        self._counters.ends(partition, self._clock(), None)
        first, last = _first(piece), piece.batch["offset"][-1].as_py()
        failure = CallFailed(WorkerDiedError(died.times, died.how), first, last, final=True)
        left = self._error_policy.after(partition, epoch, piece, failure, died.times)
        return self._done(partition, epoch, left)

    def _called(
        self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch, turn_over: Callable[[int], bool]
    ) -> Generator[Step, CallFailed | None, bool]:
        while piece.batch.num_rows:
            if wait_s := self._retry_counter.wait_s(partition, _first(piece), self._clock()):
                yield WaitFor(wait_s)
            if not (yield from self._permission(partition, epoch)) or not self._begin(partition, epoch):
                return False
            failure = yield from self._call(partition, piece.batch)
            if failure is None:
                break
            if failure.first > _first(piece):
                piece = self._done_until(partition, epoch, piece, failure.first)
            attempts = self._retry_counter.failed(partition, failure.first, self._clock())
            if attempts > self._spec.retries or failure.final:
                left = yield from self._given_up(partition, epoch, piece, failure, attempts)
                if left is None:
                    return False
                piece = left
                continue
            self._retry(partition, failure, attempts)
            with self._lock:
                self._assignment.given_up(partition, epoch)
            if turn_over(failure.first):
                return False
        self._retry_counter.forget([partition])
        self._counters.did(partition, piece.batch, self._wall())
        return self._done(partition, epoch, piece)

    def _done(self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch) -> bool:
        with self._lock:
            ended = self._assignment.done(
                partition, epoch, piece.next_offset, piece.leader_epoch, piece.resets
            )
        self._on_progress(ended)
        return True

    def _call(
        self, partition: TopicPartition, batch: pa.RecordBatch
    ) -> Generator[Step, CallFailed | None, CallFailed | None]:
        if self._call_record is not None:
            self._call_record.call_began(partition, batch["offset"][0].as_py(), batch["offset"][-1].as_py())
        failure = yield CallFunction(batch)
        if self._call_record is not None:
            self._call_record.call_ended(partition)
        self._counters.ends(partition, self._clock(), failure)
        return failure

    def _given_up(
        self,
        partition: TopicPartition,
        epoch: GrantEpoch,
        piece: CallBatch,
        failure: CallFailed,
        attempts: int,
    ) -> Generator[Step, CallFailed | None, CallBatch | None]:
        """After the last try: what is left of the piece, once the records at fault are found by halves and taken out; None
        where the partition is not ours to work on. Raises what ends the job."""
        if failure.final or not self._error_policy.takes_out or failure.first == failure.last:
            return self._error_policy.after(partition, epoch, piece, failure, attempts)
        batch, halving = piece.batch, Bisection(piece.batch.num_rows)
        bad: CallFailed | None = None
        while (part := halving.part) is not None:
            with self._lock:
                self._assignment.given_up(partition, epoch)
            if not (yield from self._permission(partition, epoch)) or not self._begin(partition, epoch):
                return None
            again = yield from self._call(partition, batch.slice(*part))
            settled = again is None or halving.failed()
            if bad is not None and settled and not (again is not None and bad.goes_on(again)):
                piece, bad = self._error_policy.after(partition, epoch, piece, bad, attempts), None
            if again is None:
                halving.succeeded()
                behind = batch["offset"][sum(part) - 1].as_py() + 1
                piece = self._done_until(partition, epoch, piece, behind)
            elif settled:
                bad = again if bad is None else CallFailed(bad.cause, bad.first, again.last)
        return piece if bad is None else self._error_policy.after(partition, epoch, piece, bad, attempts)

    def _permission(
        self, partition: TopicPartition, epoch: GrantEpoch
    ) -> Generator[Step, CallFailed | None, bool]:
        """Waits while the job is paused or the lease has run out: no new call then, whatever is in the buffers. False
        where the bench was left meanwhile."""
        while self._assignment.active(partition, epoch) and (reason := self._reason(partition)):
            if self._left():
                return False
            self._counters.waits(partition, reason)
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
        self._counters.begins(partition, self._clock())
        return True

    def _done_until(
        self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch, offset: int
    ) -> CallBatch:
        """Message by message: those before the failing one are done; the rest of the piece is returned."""
        before = int((numbers(piece.batch["offset"]) < offset).sum())
        self._counters.did(partition, piece.batch.slice(0, before), self._wall())
        with self._lock:
            self._assignment.done(partition, epoch, offset, piece.leader_epoch, piece.resets)
        return msgspec.structs.replace(piece, batch=piece.batch.slice(before))

    def _retry(self, partition: TopicPartition, failure: CallFailed, attempt: int) -> None:
        self._counters.repeats(partition, failure)
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


def _first(piece: CallBatch) -> int:
    offset: int = piece.batch["offset"][0].as_py()
    return offset
