"""Retries of failed calls: how many there were, and when the next one is due.

Theory of operation. A call is identified by its partition and first offset. Each failure raises its count and sets when it is
due again, with exponential backoff. The count outlives a turn of the partition that ends between two tries, and the batch may
be cut differently then. A call from another offset counts from one; success, or the loss of the partition, drops the count.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kafka_actors.base.backoff import CALL_BACKOFF_MAX_S, CALL_BACKOFF_S, exponential_backoff
from kafka_actors.types import TopicPartition

__all__ = ["RetryCounter"]


class _Failing(msgspec.Struct, frozen=True):
    offset: int
    attempts: int
    due: float


class RetryCounter:
    """Counts failures in a row, by partition and first offset. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._failing: dict[TopicPartition, _Failing] = {}

    def failed(self, partition: TopicPartition, offset: int, now: float) -> int:
        """Takes that a call from this offset has failed. Returns how often so far."""
        attempts = self._attempts(partition, offset) + 1
        wait_s = exponential_backoff(attempts, CALL_BACKOFF_S, CALL_BACKOFF_MAX_S)
        self._failing[partition] = _Failing(offset, attempts, now + wait_s)
        return attempts

    def wait_s(self, partition: TopicPartition, offset: int, now: float) -> float:
        """Returns the seconds to wait before a call from this offset."""
        failing = self._failing.get(partition)
        return max(0.0, failing.due - now) if failing is not None and failing.offset == offset else 0.0

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the counts of partitions whose call succeeded, or that other workers have now."""
        for partition in partitions:
            self._failing.pop(partition, None)

    def _attempts(self, partition: TopicPartition, offset: int) -> int:
        failing = self._failing.get(partition)
        return failing.attempts if failing is not None and failing.offset == offset else 0
