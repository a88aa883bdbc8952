"""Failures that nobody looked at."""

from __future__ import annotations

from kafka_actors.errors import KafkaActorsError, UndeliveredError

from .futures import BatchResult


def take_unseen(failed: list[BatchResult]) -> UndeliveredError | None:
    """The error about all failed records whose futures nobody asked; each is told of once."""
    records = 0
    errors: dict[tuple[str, int], KafkaActorsError] = {}
    while failed:
        result = failed.pop(0)
        unseen = result.failed - result.seen
        if unseen > 0 and result.error is not None:
            records += unseen
            errors.setdefault(result.partition, result.error)
            result.seen = result.failed
    return UndeliveredError(records, errors) if records else None
