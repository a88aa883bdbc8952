"""`ProducerBatch`, records of one partition on their way to the broker, and `Accumulator`, the batches that still take records.

Theory of operation. There is one open batch for each partition. A batch is due `linger` seconds after its first record
(`linger_ms`). All batches linger for the same time, so the order in which they were begun is the order in which they get due:
looking for due ones ends at the first that isn't. A batch that is full is closed by its caller before it is due. `action_for` says
what becomes of a batch by the error in the answer to Produce, `with_advice` and `too_late` make the errors of one that fails.

States of a batch. It is open while the `Accumulator` has it, then closed, and `ready` once its content is
final; its `PartitionQueue` gives it producer id, epoch and sequence when it is sent for the first time. From
then on these stay, because they are what the broker knows it by, unless it is known not to be in the log and
its queue begins a new epoch. `doubtful` is set by an attempt without a clear outcome, and taken back only by
a gap: another refusal says nothing about the earlier attempt. A batch that was too large is split in halves,
which share its ticket and are as doubtful as it was (`maybe_whole`).

Three errors mean a gap (`_GAP`): the broker misses a batch before this one, or doesn't know the producer.
They say that this batch was not written, which is what makes a new epoch possible.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from enum import Enum
from typing import Any

from kafka_actors.errors import (
    DeliveryTimeoutError,
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    InvalidTimestampError,
    KafkaActorsError,
    KafkaError,
    MessageTooLargeError,
    NotEnoughReplicasAfterAppendError,
    OutOfOrderSequenceNumberError,
    RecordListTooLargeError,
    RequestTimedOutError,
    UnknownProducerIdError,
)
from kafka_actors.records.batch import KernelWriter
from kafka_actors.types import TopicPartition

NO_SEQUENCE = -1
NO_PRODUCER = -1


class ProducerBatch:
    """One batch. `created` is the time of its first record, in seconds of the producer's clock.

    `ticket` gets the outcome (`futures.BatchResult`); the batch's first record is the `first`-th of the ticket's, because a
    batch that was too large is split. `ready` says that its content is final.
    """

    __slots__ = (
        "attempts",
        "chained",
        "charge",
        "content",
        "created",
        "denied",
        "doubtful",
        "first",
        "followed",
        "last_error",
        "maybe_whole",
        "number",
        "on_wire",
        "partition",
        "producer_epoch",
        "producer_id",
        "ready",
        "sequence",
        "split_off",
        "ticket",
        "unanswered",
    )

    def __init__(
        self,
        partition: TopicPartition,
        content: KernelWriter,
        created: float,
        ticket: Any = None,
        first: int = 0,
    ) -> None:
        self.partition = partition
        self.content = content
        self.created = created
        self.ticket = ticket
        self.first = first
        self.split_off = 0
        """Number of records of the batch that it was split off; 0 where it wasn't."""
        self.charge = 0
        """Bytes of `buffer_memory` that it takes."""
        self.ready = False
        self.sequence = NO_SEQUENCE
        self.producer_id = NO_PRODUCER
        self.producer_epoch = NO_PRODUCER
        self.number = 0
        """Position among the batches issued to its partition."""
        self.on_wire = False
        self.doubtful = False
        """Whether an earlier attempt without a clear outcome may have been written."""
        self.denied = False
        """Whether it was doubtful until a leader said that it lacks it: a replica that leads next may have it nevertheless."""
        self.chained = False
        """Whether it was sent to a leader that knows the producer, which takes it only behind what comes before it."""
        self.followed = False
        """Whether one behind it was acknowledged, so that it is in the log, too; its offset is not known."""
        self.unanswered = False
        """Whether an earlier attempt was never answered: a copy of it may still be on its way."""
        self.maybe_whole = False
        """Whether it may be in the log without being recognised: within the batch that it was split off, or before one that was split."""
        self.attempts = 0
        self.last_error: Exception | None = None

    @property
    def maybe_written(self) -> bool:
        """Whether its records may be in the log already."""
        return self.doubtful or self.denied or self.maybe_whole

    @property
    def records(self) -> int:
        """Number of its records."""
        return self.content.count

    @property
    def total(self) -> int:
        """Number of records that its ticket is for."""
        return self.split_off or self.content.count

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return self.content.used

    def __repr__(self) -> str:
        topic, partition = self.partition
        return f"<Batch {topic}-{partition} of {self.records} at {self.producer_epoch}:{self.sequence}>"


class Accumulator:
    """Open batches in the order in which they were begun; `linger` in seconds."""

    def __init__(self, linger: float) -> None:
        self._linger = linger
        self._open: dict[TopicPartition, ProducerBatch] = {}

    def __len__(self) -> int:
        return len(self._open)

    def get(self, partition: TopicPartition) -> ProducerBatch | None:
        """Returns the partition's open batch, None if it has none."""
        return self._open.get(partition)

    def begin(self, partition: TopicPartition, make: Callable[[], ProducerBatch]) -> ProducerBatch:
        """Adds a new batch, made by `make`, for a partition that has none open."""
        assert partition not in self._open
        batch = self._open[partition] = make()
        return batch

    def close(self, partition: TopicPartition) -> ProducerBatch:
        """Removes and returns the partition's batch, which takes no more records."""
        return self._open.pop(partition)

    def due(self, now: float) -> list[TopicPartition]:
        """Returns the partitions whose batches are due."""
        found = []
        for partition, batch in self._open.items():
            if batch.created + self._linger > now:
                break  # those behind it are younger
            found.append(partition)
        return found

    def all(self) -> list[TopicPartition]:
        """Returns the partitions that have an open batch."""
        return list(self._open)

    def next_due(self) -> float | None:
        """Returns when the next batch is due; None without any."""
        for batch in self._open.values():
            return batch.created + self._linger
        return None


class ProduceErrorAction(Enum):
    """Fates of a batch."""

    WRITTEN = "it is in the log"
    RETRY = "it is sent again"
    GAP = "the broker misses what came before it: it was not written"
    SPLIT = "it is sent again in two halves"
    FAILED = "it is given up"


_GAP = (OutOfOrderSequenceNumberError, UnknownProducerIdError, InvalidProducerEpochError)


BEHIND_AN_APPEND = (RequestTimedOutError, NotEnoughReplicasAfterAppendError)
"""Errors that a leader answers when it has appended a batch, and replicas are missing (`DelayedProduce`, `Partition.checkEnoughReplicasReachOffset`)."""


def action_for(error: KafkaError | None, *, records: int, idempotent: bool) -> ProduceErrorAction:
    """Returns the action for a batch of so many records; `error` None is success.

    A batch whose sequence the broker calls a duplicate is in the log; only its offset isn't known any more (KIP-98). One that is too
    large is split as long as it has more than one record (KIP-126). Other errors are retried if Kafka calls them retriable.
    """
    if error is None or isinstance(error, DuplicateSequenceNumberError):
        return ProduceErrorAction.WRITTEN
    if isinstance(error, _GAP) and idempotent:
        return ProduceErrorAction.GAP
    if isinstance(error, (MessageTooLargeError, RecordListTooLargeError)) and records > 1:
        return ProduceErrorAction.SPLIT
    return ProduceErrorAction.RETRY if error.retriable else ProduceErrorAction.FAILED


CLOCKS_DIFFER = (
    "timestamps that aren't given are this machine's time: check its clock and the broker's, or raise the topic's "
    "message.timestamp.after.max.ms or message.timestamp.before.max.ms"
)


_IN_DOUBT = "an earlier attempt had no clear outcome: the records may have been written"


def with_advice(error: KafkaActorsError | None, batch: ProducerBatch) -> KafkaActorsError | None:
    """Returns the error of a failed batch, with advice; where its records may be in the log, a copy of it that says so: other batches may
    have the same error."""
    if isinstance(error, (MessageTooLargeError, RecordListTooLargeError)):
        error.message = "the record is larger than the topic's max.message.bytes: raise that, or send less"
    if isinstance(error, InvalidTimestampError):
        error.message = f"{error.message or 'a timestamp is refused'}; {CLOCKS_DIFFER}"
    if error is None or not batch.maybe_written:
        return error
    error = copy(error)
    if isinstance(error, KafkaError):
        error.message = f"{error.message}; {_IN_DOUBT}" if error.message else _IN_DOUBT
    else:
        error.args = (f"{error}; {_IN_DOUBT}",)
    return error


def too_late(batch: ProducerBatch, delivery_timeout: float, obstacle: str) -> DeliveryTimeoutError:
    """Returns the error of a batch that was not acknowledged within so many seconds. `obstacle`: why nothing can be sent to its partition,
    empty where it can; of a batch that was sent the last error says more."""
    topic, partition = batch.partition
    return DeliveryTimeoutError(
        topic,
        partition,
        batch.records,
        round(delivery_timeout * 1000),
        batch.maybe_written or batch.on_wire,
        str(batch.last_error or obstacle),
    )
