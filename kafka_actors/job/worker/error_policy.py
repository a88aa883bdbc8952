"""`ErrorPolicy`: what becomes of records on which the user's function failed for good, as `on_error` says."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from kafka_actors.base.batches import numbers
from kafka_actors.base.callables import described
from kafka_actors.errors import KafkaActorsError, ProcessError
from kafka_actors.events import EventSink, RecordsDeadLettered, RecordsSkipped
from kafka_actors.job.messages import GrantEpoch
from kafka_actors.sinks.sink import TransactionBroken
from kafka_actors.types import TopicPartition

from .machines.rebatch import CallBatch
from .machines.worker_assignment import WorkerAssignment
from .user_function import CallFailed, UserFunction

if TYPE_CHECKING:
    from .calls import Cut

__all__ = ["ErrorPolicy", "behind_all", "log_retry"]

logger = logging.getLogger(__name__)


class ErrorPolicy:
    """Handles records on which the function failed for good, as `on_error` says: the partition halts, or goes on after them.
    `lock` guards `assignment`."""

    def __init__(
        self,
        function: UserFunction,
        assignment: WorkerAssignment,
        lock: threading.Lock,
        events: EventSink,
        cut: Cut,
    ) -> None:
        self._cut = cut
        self._function = function
        self._on_error = function.spec.on_error
        self._assignment = assignment
        self._lock = lock
        self._events = events

    @property
    def takes_out(self) -> bool:
        """Whether records at fault are taken out, and the partition goes on."""
        return self._on_error != "fail"

    def after(
        self,
        partition: TopicPartition,
        epoch: GrantEpoch,
        piece: CallBatch,
        failure: CallFailed,
        attempts: int,
    ) -> CallBatch:
        """Applies the policy after the last retry. Returns what is left of the piece, or halts the partition and raises
        `ProcessError`."""
        if self.takes_out:
            return self._taken_out(partition, epoch, piece, failure)
        with self._lock:
            self._halt(partition, epoch, piece, failure)
        raise self._error(partition, failure, attempts)

    def _halt(
        self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch, failure: CallFailed
    ) -> None:
        self._assignment.call_failed(partition, epoch)
        self._assignment.halt(partition, epoch, failure.first, piece.resets)

    def _error(self, partition: TopicPartition, failure: CallFailed, attempts: int) -> ProcessError:
        if isinstance(failure.cause, ProcessError):
            return failure.cause  # a pipeline's stage has named the place and the reason
        error = ProcessError(
            topic=partition.topic,
            partition=partition.partition,
            first_offset=failure.first,
            last_offset=failure.last,
            attempts=attempts,
            message=described(failure.cause),
        )
        error.__cause__ = failure.cause
        return error

    def put_aside(
        self, partition: TopicPartition, records: pa.RecordBatch, failure: CallFailed, attempts: int
    ) -> None:
        """Skips failed records, or sends them to the dead-letter topic, where calls overtake each other. Raises `ProcessError` where
        records at fault aren't taken out, and what keeps them from being sent."""
        if not self.takes_out:
            raise self._error(partition, failure, attempts)
        self._put_out(partition, records, failure)

    def _put_out(self, partition: TopicPartition, records: pa.RecordBatch, failure: CallFailed) -> None:
        error = described(failure.cause)
        span = (partition.topic, partition.partition, failure.first, failure.last)
        topic = self._function.outputs.dead_letter_topic
        if topic is None:
            self._events(RecordsSkipped(*span, error))
        else:
            self._function.outputs.dead_letter(records, failure.cause)
            self._events(RecordsDeadLettered(*span, records.num_rows, topic, error))

    def _taken_out(
        self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch, failure: CallFailed
    ) -> CallBatch:
        """Skips failed records, or sends them to the dead-letter topic. Raises what keeps them from being sent."""
        rest = int((numbers(piece.batch["offset"]) <= failure.last).sum())
        if not self._cut.may_write(partition, epoch, piece.resets):
            return msgspec.structs.replace(piece, batch=piece.batch.slice(rest))
        try:
            self._put_out(partition, piece.batch.slice(0, rest), failure)
        except TransactionBroken as broken:
            self._cut.spoiled(broken.cause)
            return behind_all(piece)
        except KafkaActorsError as failed:
            self._cut.spoiled(failed)
            with self._lock:
                self._halt(partition, epoch, piece, failure)
            raise
        with self._lock:  # a call in hand would hold up a drain
            self._assignment.done(partition, epoch, failure.last + 1, piece.leader_epoch, piece.resets)
        return msgspec.structs.replace(piece, batch=piece.batch.slice(rest))


def log_retry(partition: TopicPartition, failure: CallFailed, attempt: int, retries: int) -> None:
    """Logs that a failed call is made again."""
    logger.warning(
        "process failed for %s-%d offsets %d to %d (%s); retry %d of %d",
        partition.topic,
        partition.partition,
        failure.first,
        failure.last,
        described(failure.cause),
        attempt,
        retries,
        extra={"fields": {"topic": partition.topic, "partition": partition.partition}},
    )


def behind_all(piece: CallBatch) -> CallBatch:
    """Returns the piece without its records."""
    return msgspec.structs.replace(piece, batch=piece.batch.slice(piece.batch.num_rows))
