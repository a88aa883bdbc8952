"""The action for each error in answer to Produce, and the errors of batches that fail."""

from __future__ import annotations

from enum import Enum

from kafka_actors.errors import (
    DeliveryTimeoutError,
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    KafkaError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    RecordListTooLargeError,
    UnknownProducerIdError,
)

from .batch import ProducerBatch


class ProduceErrorAction(Enum):
    """Fates of a batch."""

    WRITTEN = "it is in the log"
    RETRY = "it is sent again"
    GAP = "the broker misses what came before it: it was not written"
    SPLIT = "it is sent again in two halves"
    FAILED = "it is given up"


_GAP = (OutOfOrderSequenceNumberError, UnknownProducerIdError, InvalidProducerEpochError)


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


def with_advice(error: KafkaError | None, batch: ProducerBatch) -> KafkaError | None:
    """Returns the error of a failed batch, with advice, and whether its records may be in the log."""
    if error is None:
        return None
    if isinstance(error, (MessageTooLargeError, RecordListTooLargeError)):
        error.message = "the record is larger than the topic's max.message.bytes: raise that, or send less"
    if batch.maybe_written:
        why = f"{error.message}; " if error.message else ""
        error.message = f"{why}an earlier attempt had no clear outcome: the records may have been written"
    return error


def too_late(batch: ProducerBatch, delivery_timeout: float) -> DeliveryTimeoutError:
    """Returns the error of a batch that was not acknowledged within so many seconds."""
    topic, partition = batch.partition
    because = None if batch.last_error is None else str(batch.last_error)
    return DeliveryTimeoutError(
        topic,
        partition,
        batch.records,
        round(delivery_timeout * 1000),
        batch.maybe_written or batch.on_wire,
        because,
    )
