"""The action for each error in answer to Produce."""

from __future__ import annotations

from enum import Enum

from kafka_actors.errors import (
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    KafkaError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    RecordListTooLargeError,
    UnknownProducerIdError,
)


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
