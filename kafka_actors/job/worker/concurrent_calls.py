"""`ConcurrentCalls`: many calls of the user's function at once, over records whose order holds by key only, or not at all.

One thread admits fetched records into `RecordsInFlight`; callers, threads or asyncio tasks that last as long as the worker, take calls from it
and make them (`thread_callers.py`, `task_callers.py`). Nothing is started for a record: that alone would cost more than a call of a fast
function.

The worker's lock guards `RecordsInFlight` and the assignment: that an offset moves, and that a partition is still the worker's when a call
begins, are one step each.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from opentelemetry.trace import Span

from kafka_actors.base.batches import first_and_last_offset
from kafka_actors.base.message import MessageBlocks
from kafka_actors.config import JobConfig
from kafka_actors.errors import KafkaActorsError, WorkerDiedError
from kafka_actors.events import EventSink
from kafka_actors.job.machines.lease import Lease
from kafka_actors.job.messages import DeathsInCall
from kafka_actors.job.status import WindowStatus
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.telemetry.spans import ProcessSpans, tracing
from kafka_actors.types import TopicPartition

from .admission import Admission
from .call_record import MOST_CALLS, CallRecord
from .calls import RECHECK_S, Cut
from .counters import WorkerCounters
from .error_policy import ErrorPolicy, log_retry
from .machines.record_window import ConcurrentCall, RecordWindow
from .machines.records_in_flight import RecordsInFlight
from .machines.worker_assignment import WorkerAssignment
from .processing_thread import MovableRecords
from .retry_partitions import NoRetryPartitions, RetryPartitions
from .user_function import CallFailed, UserFunction

__all__ = ["Callers", "ConcurrentCalls"]

NEVER = float("inf")
LATE_S = 0.01  # after which a call over several messages ends with the one that it has begun with


class Callers(Protocol):
    """Threads or tasks that make the calls, and the one that admits records."""

    def run(self) -> None: ...
    def wake(self) -> None: ...
    def wake_callers(self, ready: int) -> None: ...


class ConcurrentCalls:
    """The records in flight of one worker, and what the end of a call means. `lock` guards `assignment`. `on_progress(ended)` is called when
    an offset may have moved; `ended`: a bounded partition got to its end. `on_failure(error)` is called, in any thread, with what ends the job
    while calls may be in hand. `make_callers(calls)` makes those who take and make the calls."""

    def __init__(
        self,
        function: UserFunction,
        assignment: WorkerAssignment,
        lease: Lease,
        reader: MovableRecords,
        config: JobConfig,
        make_callers: Callable[[ConcurrentCalls], Callers],
        *,
        lock: threading.Lock,
        events: EventSink,
        on_progress: Callable[[bool], None],
        on_failure: Callable[[BaseException], None],
        recorder: Recorder | None = None,
        spans: ProcessSpans | None = None,
        call_record: CallRecord | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,  # wall clock: record timestamps are times of day
    ) -> None:
        self.function, self._spec = function, function.spec
        self._assignment = assignment
        self._lease = lease
        self._reader = reader
        self._lock = lock
        self._events = events
        self._on_progress = on_progress
        self.on_failure = on_failure
        self._call_record = call_record if config.concurrency <= MOST_CALLS else None
        self._clock, self._wall = clock, wall
        self.messages = MessageBlocks() if self._spec.unit == "message" else None
        self.in_flight = RecordsInFlight(
            config.ordering,
            config.concurrency,
            messages=self.messages is not None,
            by_record=self._spec.by_record,
            batch_rows=config.batch_rows,
            retries=self._spec.retries,
            most_rows=config.max_in_flight_records,
            most_bytes=config.worker_buffer_bytes,
            may_begin=self._may_begin,
            redact_keys=config.redact_keys,
        )
        self._spans = spans or ProcessSpans(config.group_id, "")
        self.counters = WorkerCounters(config.group_id, recorder or Recorder(), config.concurrency)
        self._error_policy = ErrorPolicy(function, assignment, lock, events, Cut())
        self._retries = NoRetryPartitions()
        if function.outputs.tiers:
            self._retries = RetryPartitions(
                assignment, lock, reader, function.outputs, events, config.lanes_per_partition, wall
            )
        self._admission = Admission(
            self.in_flight,
            assignment,
            lock,
            reader,
            self._retries,
            events,
            lanes=config.lanes_per_partition,
            may_begin=self._may_begin,
            advanced=self._advanced,
            on_progress=on_progress,
            clock=clock,
        )
        self.paused = self.stopped = False
        self._several: dict[ConcurrentCall, None] = {}  # in hand, over several messages; the oldest first
        self.callers = make_callers(self)

    # ------------------------------------------------------------ admitting, in one thread

    def admit_some(self) -> bool:
        """Admits what was fetched next of one partition. Returns whether there was anything. Raises the error of a partition that failed."""
        admitted = self._admission.next()
        if admitted is None:
            return False
        for ready in admitted:
            self.callers.wake_callers(ready)
        return True

    def look(self, longest_s: float) -> float:
        """Has callers begin what has become due, or may begin again. Returns after how many seconds to look again."""
        with self._lock:
            now = self._clock()
            self._shorten_late(now)
            ready = 0 if self.blocked_by() else self.in_flight.ready(now)
            self.counters.overlap(now, more=ready > 0)
            due = self.in_flight.next_due()
            longest_s = min(longest_s, self._retries.idle_s(), LATE_S if self._several else longest_s)
        if ready:
            self.callers.wake_callers(ready)
        return longest_s if due is None else min(longest_s, max(0.0, due - now) or RECHECK_S)

    def _shorten_late(self, now: float) -> None:
        """Takes messages out of calls that take long, though calls took no time before."""
        while self._several and now - (call := next(iter(self._several))).began >= LATE_S:
            del self._several[call]
            if self.in_flight.shorten(call):
                self._note(call)

    def follow(self, watermarks: Iterable[tuple[TopicPartition, int]]) -> None:
        """Takes below which offsets partitions are done that are dealt in slices: their windows may go on from there."""
        with self._lock:
            room = self.in_flight.follow(watermarks)
        if room:
            self.callers.wake()

    # ------------------------------------------------------------ calls, for any thread

    def take(self) -> ConcurrentCall | None:
        """Begins the next call, None while there is none. It ends with `ended`. Raises as `ended`, for records in whose call too many
        workers died."""
        while True:
            with self._lock:
                if self.blocked_by() or self.stopped or (call := self._taken()) is None:
                    return None
                died = self.in_flight.too_many_deaths(call)
                if died is None and not self._retries.keep_order:
                    return self._begun(call)
            if died is not None:
                error, at = WorkerDiedError(died.times, died.how), first_and_last_offset(call.batch)
                self.ended(call, CallFailed(error, *at, final=True), called=False)
            elif not self._follows(call):
                with self._lock:
                    return self._begun(call)

    def next_row(self, call: ConcurrentCall) -> int | None:
        """Begins with the next message of a call, for any thread. Returns its row; None where none is left to this call."""
        with self._lock:
            return call.next_row()

    def span(self, call: ConcurrentCall) -> AbstractContextManager[Span | None]:
        """Returns a context manager for one call, as `ProcessSpans.call`; its batch is made only where somebody traces."""
        return self._spans.call(call.batch, self._spec.unit) if tracing() else nullcontext()

    def _taken(self) -> ConcurrentCall | None:
        now = self._clock()
        if (call := self.in_flight.take(now)) is not None:
            window = call.window
            if window.hand.calls == 1:
                self._assignment.begin(window.partition, window.epoch)
            self.counters.call_began(window.partition, now, call, more=bool(self.in_flight.ready_records))
        return call

    def _begun(self, call: ConcurrentCall) -> ConcurrentCall:
        """Takes that a call is handed out. Not before: while records of it are written elsewhere nobody may take some of them out."""
        call.began = self._clock()
        if self.messages is not None and len(call.rows) > 1:
            self._several[call] = None
        self._note(call)
        return call

    def _note(self, call: ConcurrentCall) -> None:
        if self._call_record is not None:
            self._call_record.call_began(call.window.partition, call.first, call.last, call)

    def _may_begin(self, window: RecordWindow) -> bool:
        """Whether a window's records are still to be worked on: of the present grant, of the log as it is, and not draining."""
        if window.closed or not self._assignment.active(window.partition, window.epoch):
            return False
        return self._assignment.held[window.partition].resets == window.resets

    def ended(self, call: ConcurrentCall, failure: CallFailed | None, *, called: bool = True) -> None:
        """Takes the end of a call, for any thread. `called`: its records were not passed over without one. Raises `ProcessError` where its
        failure ends the job, or what keeps a dead letter from being written."""
        if failure is not None:
            if self.messages is not None and len(call.rows) > 1:
                with self._lock:
                    counts = self._may_end(call.window)
                    before, made = self.in_flight.cut(call, failure.first)
                    self._advanced(call.window)
                    if counts:
                        self.counters.call_done(call.window.partition, call.chunk.batch, made, self._wall())
                if counts:
                    self._retries.done(call.chunk, before)
            if not self._settled(call, failure):
                return
        window, ended = call.window, False
        with self._lock:
            now = self._clock()
            if called:
                self.in_flight.pace.took(now - call.began, len(call.rows))
            if called and failure is None and call.parts is not None:
                call.parts.succeeded()
            counts = self._may_end(window)
            if called and failure is None and counts:
                self.counters.call_done(window.partition, call.chunk.batch, call.rows, self._wall())
            over = not self.in_flight.next_half(call)
            if over:
                if self.in_flight.finished(call, now):
                    self.counters.count()  # or the chunk's memory would be kept for it
                ended = self._advanced(window)
            self._closed(call, failure)
            if failure is not None:
                self.counters.over(window.partition)
            ready = self.in_flight.ready(now)
            room = window.full_since is not None and self.in_flight.roomy(window.partition)
        self._on_progress(ended)
        if over and counts and self._retries.keep_order:
            self._retries.done(call.chunk, call.taken)
        if ready:
            self.callers.wake_callers(ready)
        if room:
            self.callers.wake()

    def _settled(self, call: ConcurrentCall, failure: CallFailed) -> bool:
        """Whether a failed call is over: its records were skipped, or are dead letters. Otherwise it is made again."""
        attempts, window, partition = call.attempts + 1, call.window, call.window.partition
        if attempts <= self._spec.retries and not failure.final:
            self.counters.retrying(partition, failure)
            log_retry(call.origin, failure, attempts, self._spec.retries)
            with self._lock:
                if not self.in_flight.split(call):
                    call.attempts, wait_s = attempts, self._spec.backoff.wait_s(attempts, random.random)
                    self.in_flight.again(call, self._clock() + wait_s)
                self._closed(call, failure)
            self.callers.wake()  # which looks when it is due
            return False
        if self._error_policy.takes_out and len(call.rows) > 1 and not failure.final:
            with self._lock:
                if halved := self.in_flight.halve(call):
                    call.attempts = self._spec.retries
                    self._closed(call, failure)
            if halved:
                self.callers.wake_callers(1)
                return False
        with self._lock:
            if not self._may_end(window):
                return True
        with self._halting(call, failure):
            if not self._retries.retry_later(call, failure, attempts):
                self._error_policy.put_aside(call.origin, call.batch, failure, attempts)
        return True

    @contextmanager
    def _halting(self, call: ConcurrentCall, failure: CallFailed | None = None) -> Iterator[None]:
        """Halts the partition of a call whose records can't be written where they belong, and raises why."""
        window = call.window
        try:
            yield
        except KafkaActorsError:
            with self._lock:
                self._assignment.halt(window.partition, window.epoch, window.watermark, window.resets)
                if self._spec.is_async:  # others in hand are cancelled
                    self._assignment.call_failed(window.partition, window.epoch)
                self.in_flight.again(call, NEVER)
                self._closed(call, failure)
            raise

    def _follows(self, call: ConcurrentCall) -> bool:
        """Writes records of a call, of whose keys earlier ones wait in a retry topic, into that one. Returns whether none is left to call."""
        behind = self._retries.behind(call)
        if not behind:
            return False
        with self._lock:
            counts = self._may_end(call.window)
        if counts:
            with self._halting(call):
                self._retries.follow(call, behind)
        if not counts or behind.keys() >= set(call.rows):
            self.ended(call, None, called=False)
            return True
        with self._lock:
            self.in_flight.leave_out(call, behind)
        return False

    def _may_end(self, window: RecordWindow) -> bool:
        """Whether the end of a call counts: its partition is held since then, draining or not, and was not reset."""
        held = self._assignment.held.get(window.partition)
        return held is not None and (held.begun_under, held.resets) == (window.epoch, window.resets)

    def _advanced(self, window: RecordWindow) -> bool:
        """Moves the offset to commit to the watermark. Returns whether a bounded partition ended."""
        return self._assignment.advance(
            window.partition, window.epoch, window.watermark, window.leader_epoch, window.resets
        )

    def _closed(self, call: ConcurrentCall, failure: CallFailed | None) -> None:
        now, window = self._clock(), call.window
        self._several.pop(call, None)
        if window.hand.calls == 0:
            self._assignment.call_failed(window.partition, window.epoch)
        self.counters.call_ended(
            window.partition, now, failure, call, more=bool(self.in_flight.ready_records)
        )
        if self._call_record is not None:
            self._call_record.call_ended(window.partition, call)

    # ------------------------------------------------------------ the worker's side

    def run(self) -> None:
        """Makes calls until `stop`; raises what ends the job. For a plain function."""
        self.callers.run()

    def wake(self) -> None:
        """Has fetched records admitted. For any thread."""
        self.callers.wake()

    def stop(self) -> None:
        """Ends all calls after those in hand. For any thread."""
        self.stopped = True
        self.callers.wake()

    def blocked_by(self) -> str:
        """Returns why no call may begin now; empty if it may."""
        return "paused" if self.paused else "" if self._lease.valid(self._clock()) else "no lease"

    def blocked(self, partition: TopicPartition) -> str:
        """Returns why nothing of a partition is processed; empty if the reason lies elsewhere. Call it with the lock held."""
        reason = self.blocked_by() or self.counters.blocked(partition) or self._retries.blocked(partition)
        return reason or self.in_flight.blocked(partition, self._clock())

    def window(self, partition: TopicPartition) -> WindowStatus | None:
        """Returns the window of a partition in numbers; None where it has none. Call it with the lock held."""
        return self.in_flight.status(partition, self._clock())

    def note_waiting(self) -> None:
        """Partitions have no turns here: what is noted is how many records are done."""
        with self._lock:
            self.counters.count()

    def note_done(self) -> None:
        """Notes in the assignment what is done beyond the offsets to commit. Call it with the lock held."""
        for window in self.in_flight.windows:
            if self._may_end(window):
                self._assignment.note_done(window.partition, window.beyond())

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drops partitions that other workers have now."""
        with self._lock:
            self.in_flight.drop(partitions)
        self._admission.forget(partitions)
        self.counters.forget(partitions)

    def suspect(self, calls: Iterable[DeathsInCall]) -> None:
        """Takes calls in which other workers died: their records are called one by one, and alone."""
        with self._lock:
            self.in_flight.suspect(calls)
