"""What becomes of records on which the user's function failed for good: the partition halts or goes on after them."""

from __future__ import annotations

import threading

import msgspec

from kafka_actors.base.batches import numbers
from kafka_actors.errors import KafkaActorsError, ProcessError
from kafka_actors.events import EventSink, RecordsDeadLettered, RecordsSkipped
from kafka_actors.job.messages import GrantEpoch
from kafka_actors.types import TopicPartition

from .machines.rebatch import CallBatch
from .machines.worker_assignment import WorkerAssignment
from .user_function import CallFailed, UserFunction

__all__ = ["ErrorPolicy"]


class ErrorPolicy:
    """As `on_error` says. `lock` guards `assignment`."""

    def __init__(
        self, function: UserFunction, assignment: WorkerAssignment, lock: threading.Lock, events: EventSink
    ) -> None:
        self._function = function
        self._on_error = function.spec.on_error
        self._assignment = assignment
        self._lock = lock
        self._events = events

    @property
    def takes_out(self) -> bool:
        """Whether the records at fault are taken out, and the partition goes on."""
        return self._on_error != "fail"

    def after(
        self,
        partition: TopicPartition,
        epoch: GrantEpoch,
        piece: CallBatch,
        failure: CallFailed,
        attempts: int,
    ) -> CallBatch:
        """After the last retry: what is left of the piece, to go on with; or halts the partition and raises
        `ProcessError`."""
        if self.takes_out:
            return self._taken_out(partition, epoch, piece, failure)
        with self._lock:
            self._assignment.halt(partition, epoch, failure.first, piece.resets)
        if isinstance(failure.cause, ProcessError):
            raise failure.cause  # a pipeline's stage has said where and why
        raise ProcessError(
            topic=partition.topic,
            partition=partition.partition,
            first_offset=failure.first,
            last_offset=failure.last,
            attempts=attempts,
            message=f"{type(failure.cause).__name__}: {failure.cause}",
        ) from failure.cause

    def _taken_out(
        self, partition: TopicPartition, epoch: GrantEpoch, piece: CallBatch, failure: CallFailed
    ) -> CallBatch:
        """Skips what failed, or sends it to the dead-letter topic; raises what keeps it from being sent."""
        error = f"{type(failure.cause).__name__}: {failure.cause}"
        span = (partition.topic, partition.partition, failure.first, failure.last)
        rest = int((numbers(piece.batch["offset"]) <= failure.last).sum())
        topic = self._function.outputs.dead_letter_topic
        if topic is None:
            self._events(RecordsSkipped(*span, error))
        else:
            try:
                self._function.outputs.dead_letter(piece.batch.slice(0, rest), failure.cause)
            except KafkaActorsError:
                with self._lock:
                    self._assignment.halt(partition, epoch, failure.first, piece.resets)
                raise
            self._events(RecordsDeadLettered(*span, rest, topic, error))
        with self._lock:  # what is in hand of a partition that drains holds it up
            self._assignment.done(partition, epoch, failure.last + 1, piece.leader_epoch, piece.resets)
        return msgspec.structs.replace(piece, batch=piece.batch.slice(rest))
