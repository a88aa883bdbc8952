"""`ProducerSessions`: a worker's results in transactions, cut between calls, and the producers that write them.

The results of a call are collected while it runs. Under the *cut*, a lock, they are written and the offset behind them is counted as
processed; a commit holds the same lock from the moment at which it takes the offsets until the transaction is ended. So a call's
results are wholly in one transaction, together with its offsets, and calls go on while it is committed.

The producer's id and epoch come with the coordinator's orders, as a session. Whatever goes wrong in a transaction ends the session: its
producer is discarded, all partitions are dropped with what was processed since the last commit, and the report says so. The
coordinator aborts what is open by its next fence, and grants the partitions anew from where the last transaction ended.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable, Generator

import pyarrow as pa

from kafka_actors.base.callables import error_text, type_and_text
from kafka_actors.config import JobConfig
from kafka_actors.errors import (
    DeliveryTimeoutError,
    KafkaActorsError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    OutOfOrderSequenceNumberError,
    ProcessError,
    SinkError,
    StageError,
    TransactionAbortedError,
    UsageError,
)
from kafka_actors.job.messages import CommitEntry, CommitReply, GrantEpoch, Orders
from kafka_actors.job.transactions import ProducerGrant, SessionNumber, TransactionReport
from kafka_actors.producer.machines.transaction_errors import OF_ONE_PRODUCER, REFUSED_MEMBERSHIP
from kafka_actors.sinks.kafka import producer_config
from kafka_actors.sinks.sink import TransactionBroken, origin_of
from kafka_actors.sinks.transactional import NOTHING_TAKEN, SessionProducer
from kafka_actors.telemetry.attributes import of_group
from kafka_actors.telemetry.instruments import TRANSACTIONS
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.types import TopicPartition

from .calls import LOST, Cut, Lost, WaitFor
from .machines.worker_assignment import AssignmentChanges, WorkerAssignment
from .user_function import CallFailed, UserFunction

__all__ = ["ProducerSession", "ProducerSessions"]

logger = logging.getLogger(__name__)

WAIT_S = 0.002
"""Time between two looks of an async function whether a commit is over; its other calls go on meanwhile."""
CLOSE_MS = 1_000

_PASSING = (
    *OF_ONE_PRODUCER,
    *REFUSED_MEMBERSHIP,
    DeliveryTimeoutError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    OutOfOrderSequenceNumberError,
    UsageError,
)
"""Errors that end a session, and that the next one need not have, beside those that are `retriable`."""


class ProducerSession:
    """One identity, with its producer. `opened_at`: when its transaction began; None while none is open."""

    def __init__(self, number: SessionNumber, producer: SessionProducer) -> None:
        self.number = number
        self.producer = producer
        self.opened_at: float | None = None


class ProducerSessions(Cut):
    """The sessions of one worker. `lock` guards `assignment`, and `present`, the session that it has, with it.

    `on_end(dropped)` is called, in any thread, when a session has ended by an error, and its partitions were dropped; `on_final(error)`
    where the next one would end alike.
    """

    def __init__(
        self,
        worker: str,
        config: JobConfig,
        function: UserFunction,
        assignment: WorkerAssignment,
        lock: threading.Lock,
        *,
        on_end: Callable[[list[TopicPartition]], None],
        on_final: Callable[[BaseException], None],
        recorder: Recorder,
        clock: Callable[[], float],
    ) -> None:
        slot = function.outputs.slot
        assert slot is not None  # the job has producer options
        self._worker = worker
        self._config = producer_config(config, function.spec.outputs.producer_options or {})
        self._function = function
        self._assignment = assignment
        self._lock = lock
        self._on_end = on_end
        self._on_final = on_final
        self._recorder = recorder
        self._group = config.group_id
        self._clock = clock
        self._slot = slot
        self._async = function.spec.is_async
        self.cut = threading.RLock()
        """Held while results are written and counted, and from the moment at which a commit takes its offsets to its end."""
        self.present: ProducerSession | None = None
        self._failed: SessionNumber | None = None
        self._cause = ""
        self._counts = dict.fromkeys(("committed", "aborted", "repeated", "lost"), 0)
        self._committed_at: float | None = None
        self._refused: dict[tuple[TopicPartition, int, int], BaseException] = {}
        """Errors of results of which a part was written before the rest was refused, by their partition, first and last offset. Results of
        these records are not begun again, nor those that have others as well: a partition that grows is read in other batches each time."""
        self._closing = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="discarded-producers")
        self._closing.submit(int)  # begins its thread: when a session ends, the system may have none to give

    # ------------------------------------------------------------ sessions

    def follow(self, orders: Orders, changes: AssignmentChanges) -> AssignmentChanges:
        """Takes the session that new orders name, under `lock`. Returns the changes that are left: without a session nothing begins,
        and all is dropped that was processed in another one."""
        if not changes.applied:
            return changes
        granted, present = orders.producer, self.present
        if present is not None and (granted is None or granted.session != present.number):
            self._end(present, "the coordinator has fenced its producer", changes.lost)
        elif present is not None and changes.lost:
            names = ", ".join(f"{topic}-{number}" for topic, number in sorted(changes.lost)[:3])
            self._end(present, f"partitions were taken from it: {names}", changes.lost)
        if self.present is None and granted is not None and granted.session != self._failed:
            self._adopt(granted)
        if present is not None and self.present is present:
            return changes
        begin = [] if self.present is None else changes.begin
        dropped = self._assignment.drop_all(but={grant.partition for grant in begin})
        return AssignmentChanges(begin, drop=[*changes.drop, *dropped], applied=True)

    def _adopt(self, granted: ProducerGrant) -> None:
        if granted.identity is not None:
            producer = SessionProducer(self._config, granted.identity)
            self.present = ProducerSession(granted.session, producer)

    def _end(self, session: ProducerSession, cause: str, lost: dict[TopicPartition, int]) -> None:
        """Ends a session, under `lock`, whose partitions are dropped by the caller. `lost`: partitions that are gone already, with
        their numbers of records."""
        self.present = None
        self._failed, self._cause = session.number, cause
        if session.opened_at is not None:
            records = sum({**self._assignment.repeated(), **lost}.values())
            self._count("aborted")
            self._counts["lost"] = records
            self._counts["repeated"] += records
            logger.warning("worker %s: its transaction is aborted: %s", self._worker, cause)
        self._closing.submit(session.producer.discard)

    def fail(self, session: ProducerSession | None, error: BaseException) -> None:
        """Ends a session after an error. For any thread."""
        with self._lock:
            if session is None or session is not self.present:
                return
            self._end(session, type_and_text(error), {})
            dropped = self._assignment.drop_all()
        self._on_end(dropped)
        if isinstance(error, KafkaActorsError) and not (error.retriable or isinstance(error, _PASSING)):
            self._on_final(error)

    def _count(self, outcome: str) -> None:
        self._counts[outcome] += 1
        self._recorder.add(TRANSACTIONS, 1, of_group(self._group, outcome=outcome))

    def report(self) -> TransactionReport:
        """Returns the state of the transactions, under `lock`."""
        session, now = self.present, self._clock()
        opened = None if session is None else session.opened_at
        return TransactionReport(
            session=None if session is None else session.number,
            failed=self._failed,
            cause=self._cause,
            open_s=None if opened is None else max(0.0, now - opened),
            open_records=0 if opened is None else sum(self._assignment.repeated().values()),
            ago_s=None if self._committed_at is None else max(0.0, now - self._committed_at),
            **self._counts,
        )

    def close(self) -> None:
        """Aborts what is open, and closes the producer. Blocks."""
        with self._lock:
            session, self.present = self.present, None
        if session is not None:
            try:
                session.producer.close(timeout_ms=CLOSE_MS)
            except KafkaActorsError as error:
                logger.warning("worker %s: its last transaction: %s", self._worker, error)
        self._closing.shutdown(wait=False)

    # ------------------------------------------------------------ the cut, for the processing thread

    def enter(self) -> Generator[WaitFor, None, None]:
        """Takes the cut; an async function waits without holding up its loop."""
        if not self._async:
            self.cut.acquire()
            return
        while not self.cut.acquire(blocking=False):
            yield WaitFor(WAIT_S)

    def leave(self) -> None:
        """Gives the cut back."""
        self.cut.release()

    def may_write(self, partition: TopicPartition, epoch: GrantEpoch, resets: int) -> bool:
        """Whether results of records that were read under this epoch count, within the cut. They are written to the session that the
        worker has now; should the partition be taken from here on, that is ended."""
        return self._opens(partition, epoch, resets) is not None

    def _opens(self, partition: TopicPartition, epoch: GrantEpoch, resets: int) -> ProducerSession | None:
        with self._lock:
            session = self.present
            if session is None or not self._assignment.opens_results(partition, epoch, resets):
                return None
        self._slot.producer = session.producer
        self._slot.begins = lambda: self.begin(session)
        self._slot.taken = False
        return session

    def put_out(
        self,
        partition: TopicPartition,
        epoch: GrantEpoch,
        resets: int,
        failure: CallFailed | None,
        *,
        partly: bool = True,
    ) -> CallFailed | Lost | None:
        """Writes the collected results of a call, within the cut; of a call that failed those of the messages before, unless `partly`
        is False. Returns the failure of the call, or of a result that can't be written; `LOST` if the results count no more."""
        results = self._function.take_results(partition)
        session = self._opens(partition, epoch, resets)
        if session is None:
            return LOST
        if failure is not None and not partly:
            return failure
        for result, batch in results:
            written = self._put_one(session, partition, result, batch, complete=partly)
            if written is not None:
                return written
        if (error := session.producer.failure) is not None:
            self.fail(session, error)
            return LOST
        return failure

    def _put_one(
        self,
        session: ProducerSession,
        partition: TopicPartition,
        result: object,
        batch: pa.RecordBatch,
        *,
        complete: bool,
    ) -> CallFailed | Lost | None:
        origin = origin_of(batch)
        first, last = origin.first_offset, origin.last_offset
        if (known := self._refusal(partition, first, last)) is not None and not self._slot.taken:
            return self._function.failure(known, first, last)
        try:
            self._function.write_result(result, batch)
        except TransactionBroken as broken:
            self.fail(session, broken.cause)
            return LOST
        except Exception as error:
            failed = session.producer.failure
            if failed is None and _is_of_the_result(error):
                if not self._slot.taken:
                    return self._function.failure(error, first, last)
                self._refused[partition, first, last] = error
                failed = TransactionAbortedError(f"a result was written in part: {error_text(error)}")
            self.fail(session, failed or error)
            return LOST
        if complete:
            self._slot.taken = False  # it counts as processed, whatever becomes of the next one
        return None

    def _refusal(self, partition: TopicPartition, first: int, last: int) -> BaseException | None:
        """Returns the error of a result for some or all of these records; None where there is none."""
        found = (
            error
            for (of, lowest, highest), error in self._refused.items()
            if of == partition and first <= lowest and highest <= last
        )
        return next(found, None)

    def spoiled(self, error: BaseException) -> None:
        """Takes that something was written in the cut whose offsets will not be committed."""
        self.fail(self.present, error)

    def begin(self, session: ProducerSession) -> None:
        """Begins a transaction where none is open. Within the cut."""
        if session.opened_at is None:
            session.producer.begin_transaction()
            session.opened_at = self._clock()

    def committed(self, session: ProducerSession, entries: list[CommitEntry]) -> None:
        """Takes that the transaction was committed, with these offsets. Within the cut."""
        session.opened_at = None
        ends = {entry.partition: entry.offset for entry in entries}
        for partition, first, last in list(self._refused):
            if last < ends.get(partition, 0):
                del self._refused[partition, first, last]
        with self._lock:
            if self.present is not session:
                return  # it was fenced meanwhile: what its last transaction became shows in the group's offsets
            self._committed_at = self._clock()
            self._count("committed")
            self._assignment.committed(CommitReply(0, entries, [], []))
            self._assignment.results_are_closed()


def _is_of_the_result(error: Exception) -> bool:
    """Whether a result can't be written as it is, whatever becomes of brokers and producers."""
    of_result = (*NOTHING_TAKEN, ProcessError, SinkError, StageError)
    return not isinstance(error, KafkaActorsError) or isinstance(error, of_result)
