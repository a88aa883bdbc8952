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


class Verdict(Enum):
    """What becomes of a batch."""

    WRITTEN = "it is in the log"
    RETRY = "it is sent again"
    GAP = "the broker misses what came before it: it was not written"
    SPLIT = "it is sent again in two halves"
    FAILED = "it is given up"


_GAP = (OutOfOrderSequenceNumberError, UnknownProducerIdError, InvalidProducerEpochError)


def verdict(error: KafkaError | None, *, records: int, idempotent: bool) -> Verdict:
    """The verdict on a batch of so many records; `error` None is success.

    A sequence that the broker calls a duplicate is in the log; only the offset isn't known any more (KIP-98).
    """
    if error is None or isinstance(error, DuplicateSequenceNumberError):
        return Verdict.WRITTEN
    if isinstance(error, _GAP) and idempotent:
        return Verdict.GAP
    if isinstance(error, (MessageTooLargeError, RecordListTooLargeError)) and records > 1:
        return Verdict.SPLIT
    return Verdict.RETRY if error.retriable else Verdict.FAILED
