"""Tries of a call that fails: how many there were, and when the next one is due."""

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
    """Counts by partition and first offset of the call: they outlive a turn of the partition that ends between two tries."""

    def __init__(self) -> None:
        self._failing: dict[TopicPartition, _Failing] = {}

    def failed(self, partition: TopicPartition, offset: int, now: float) -> int:
        """A call that begins here has failed; returns how often so far."""
        attempts = self._attempts(partition, offset) + 1
        wait_s = exponential_backoff(attempts, CALL_BACKOFF_S, CALL_BACKOFF_MAX_S)
        self._failing[partition] = _Failing(offset, attempts, now + wait_s)
        return attempts

    def wait_s(self, partition: TopicPartition, offset: int, now: float) -> float:
        """How long to wait before a call that begins here."""
        failing = self._failing.get(partition)
        return max(0.0, failing.due - now) if failing is not None and failing.offset == offset else 0.0

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They got past it, or are others' now."""
        for partition in partitions:
            self._failing.pop(partition, None)

    def _attempts(self, partition: TopicPartition, offset: int) -> int:
        failing = self._failing.get(partition)
        return failing.attempts if failing is not None and failing.offset == offset else 0
