"""What an error code in answer to Produce means for the batch."""

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
    """What becomes of a batch."""

    WRITTEN = "it is in the log"
    RETRY = "it is sent again"
    GAP = "the broker misses what came before it: it was not written"
    SPLIT = "it is sent again in two halves"
    FAILED = "it is given up"


_GAP = (OutOfOrderSequenceNumberError, UnknownProducerIdError, InvalidProducerEpochError)


def verdict(error: KafkaError | None, *, records: int, idempotent: bool) -> ProduceErrorAction:
    """The verdict on a batch of so many records; `error` None is success.

    A sequence that the broker calls a duplicate is in the log; only the offset isn't known any more (KIP-98).
    """
    if error is None or isinstance(error, DuplicateSequenceNumberError):
        return ProduceErrorAction.WRITTEN
    if isinstance(error, _GAP) and idempotent:
        return ProduceErrorAction.GAP
    if isinstance(error, (MessageTooLargeError, RecordListTooLargeError)) and records > 1:
        return ProduceErrorAction.SPLIT
    return ProduceErrorAction.RETRY if error.retriable else ProduceErrorAction.FAILED
