"""Partitions with records to read on which nothing happens: the heartbeat of one member says nothing about them."""

from __future__ import annotations

import msgspec

from kafka_actors.types import TopicPartition

__all__ = ["StallDetector"]


class LastMovement(msgspec.Struct):
    """How far a partition was, and since when."""

    worker: str
    processed: int | None
    since: float


class StallDetector:
    """Remembers when each partition last moved; one that lags and has not moved for `limit_s` is stalled."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._seen: dict[TopicPartition, LastMovement] = {}

    def observe(
        self, partition: TopicPartition, worker: str, processed: int | None, end: int | None, now: float
    ) -> float | None:
        """Takes in a report. Returns for how long the partition has stalled, once for each full limit."""
        seen = self._seen.get(partition)
        idle = end is not None and processed is not None and processed >= end
        if seen is None or idle or (seen.worker, seen.processed) != (worker, processed):
            self._seen[partition] = LastMovement(worker, processed, now)
            return None
        if now - seen.since < self.limit_s:
            return None
        stalled = now - seen.since
        seen.since = now
        return stalled

    def forget(self, partition: TopicPartition) -> None:
        self._seen.pop(partition, None)

    def restart(self, now: float) -> None:
        """A pause has ended: it was no stall."""
        for seen in self._seen.values():
            seen.since = now
