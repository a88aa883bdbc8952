"""`ProducerBatch`: records of one partition on their way to the broker."""

from __future__ import annotations

from typing import Any

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
        "charge",
        "content",
        "created",
        "doubtful",
        "first",
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
        self.maybe_whole = False
        """Whether the batch that it was split off may have been written as a whole."""
        self.attempts = 0
        self.last_error: Exception | None = None

    @property
    def maybe_written(self) -> bool:
        """Whether its records may be in the log already."""
        return self.doubtful or self.maybe_whole

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
