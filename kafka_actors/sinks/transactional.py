"""Sinks of a job that delivers exactly once: all of a worker's Kafka sinks and its dead letters write by one producer, which has the
producer id and epoch that the job's coordinator gave to the worker, and never asks for one itself.

`ProducerSlot` is what the writers share. Who calls them puts the producer of the present session into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from msgspec.structs import asdict

from kafka_actors.base.io_thread import ended_within
from kafka_actors.config import ProducerConfig
from kafka_actors.errors import (
    KafkaTimeoutError,
    MessageTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from kafka_actors.producer.send_steps import GRACE_S, closed_before
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, ProducerIdentity, TopicPartition

from .kafka import SINK_TOPIC, TargetProducer, check_target
from .sink import Origin, TransactionBroken

__all__ = ["ProducerSlot", "SessionProducer", "TransactionalWriter", "transactional_writer"]

NOTHING_TAKEN = (
    UsageError,
    MessageTooLargeError,
    UnknownTopicOrPartitionError,
    TopicAuthorizationFailedError,
)
"""Errors of `send_batch` after which no row of the batch is sent, unless the transaction has failed before."""
STEP_MS = 5_000.0
"""Time of one wait for the end of a transaction, which goes on until it is known."""


class SessionProducer(TargetProducer):
    """Producer with an identity that somebody else got (InitProducerId). It may be discarded at any time, by any thread; what it has
    open is for the next fence to abort."""

    def __init__(self, config: ProducerConfig, identity: ProducerIdentity) -> None:
        self._identity = identity
        self._adopted = False
        super().__init__(config={**asdict(config), "transactional_id": identity.transactional_id})

    def _make(self) -> None:
        super()._make()
        self._adopted = False

    def begin_transaction(self) -> None:
        """Begins a transaction, the first one with the identity that it was made with."""
        if not self._adopted:
            _, producer_id, epoch = self._identity
            self._transact("adopt", lambda t, limit_s: t.adopt(producer_id, epoch, limit_s))
            self._adopted = True
        super().begin_transaction()

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Adds offsets to the transaction. A membership that the group's coordinator refuses is raised (`REFUSED_MEMBERSHIP`), and the
        transaction is as before. Waits until it is known."""
        self._until_known(
            "send_offsets_to_transaction",
            lambda: self._transact(
                "send_offsets_to_transaction",
                lambda t, limit_s: t.send_offsets(offsets, group, limit_s, again=True),
                None,
            ),
        )

    def commit_until_known(self) -> None:
        """Commits the transaction, and waits until it is known whether that was done. Raises what ended it otherwise."""
        self._until_known("commit_transaction", lambda: self.commit_transaction(timeout_ms=STEP_MS))

    def _until_known(self, verb: str, wait: Callable[[], None]) -> None:
        while True:
            try:
                wait()
                return
            except KafkaTimeoutError:
                self._check_open()
                if self.failure is not None:
                    raise

    def discard(self) -> None:
        """Closes all connections. Nothing is sent any more, and nobody waits on."""
        with self._starting:
            if self._closed:
                return
            self._closed = True
            io = self._io
        if io is not None:
            closing = io.submit(self._core.close(closed_before()))
            if not ended_within(closing, GRACE_S):
                closing.cancel()
            io.stop()


class ProducerSlot:
    """The producer of the present session, which all writers of a worker share. `taken`: something was sent since it was set to
    False."""

    def __init__(self) -> None:
        self.producer: SessionProducer | None = None
        self.taken = False
        self.begins: Callable[[], None] = lambda: None
        """Called before each batch; begins the transaction where none is open."""

    def send(self, batch: pa.RecordBatch, topic: str | None) -> None:
        """Sends rows in the transaction. Raises what is wrong with these rows (`NOTHING_TAKEN`), and else `TransactionBroken`."""
        producer = self.producer
        if producer is None:
            raise UsageError("the worker has no producer now")
        try:
            self.begins()
            producer.send_batch(batch, topic)
        except Exception as error:
            nothing_taken = isinstance(error, NOTHING_TAKEN)
            self.taken = self.taken or not nothing_taken
            if nothing_taken and producer.failure is None:
                raise
            raise TransactionBroken(producer.failure or error) from error
        except BaseException:
            self.taken = True
            raise
        self.taken = True


class TransactionalWriter:
    """Open Kafka sink whose rows are in the transactions of a `ProducerSlot`, and durable once these are committed."""

    def __init__(self, slot: ProducerSlot, topic: str | None) -> None:
        self._slot = slot
        self._topic = topic

    def write(self, batch: pa.RecordBatch, origin: Origin) -> None:
        """Waits for room in `buffer_memory`. Raises as `ProducerSlot.send`."""
        self._slot.send(batch, self._topic)

    def flush(self) -> None:
        """Returns at once: the transaction's end waits for all rows."""

    def close(self) -> None:
        """Does nothing: the producer is the worker's."""

    def __repr__(self) -> str:
        return f"<TransactionalWriter to {self._topic or 'the column topic'}>"


def transactional_writer(
    slot: ProducerSlot, config: ProducerConfig, topic: str | None
) -> TransactionalWriter:
    """Opens a Kafka sink in a slot, once its topic is found. Raises as `check_target`."""
    check_target(config, topic, SINK_TOPIC)
    return TransactionalWriter(slot, topic)
