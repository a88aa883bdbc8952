"""Stalled partitions: those with records to read whose processed offset does not move.

Theory of operation. The group's broker sees heartbeats of the whole job, not the progress of each partition, so a partition that
hangs would stay unread. Each report of a worker is an observation: its partition's processed offset and the end of the log. A
partition that lags, and has kept its worker and its offset for `max_poll_interval_ms`, is stalled: the coordinator drains it
and grants it anew. It counts again from then on, so a lasting stall is reported once per interval. Pauses count for nothing, nor does time
in which its records wait to be due, or for a registry of schemas; where calls overtake each other, nor does time in which calls with its
records are in hand or wait to be made again: the first record that isn't done holds its offset, and each call has the whole interval for
itself.
"""

from __future__ import annotations

import msgspec

from kafka_actors.types import TopicPartition

__all__ = ["StallDetector"]


class LastMovement(msgspec.Struct):
    """Worker and processed offset of a partition, and since when they are the same (monotonic seconds)."""

    worker: str
    processed: int | None
    since: float


class StallDetector:
    """Remembers when each partition last moved. `limit_s`: seconds without movement after which a lagging one is stalled."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._seen: dict[TopicPartition, LastMovement] = {}

    def observe(
        self, partition: TopicPartition, worker: str, processed: int | None, end: int | None, now: float
    ) -> float | None:
        """Takes a reported partition. Returns the seconds for which it has stalled, once for each full limit; else None."""
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
        """Counts from `now` on for all partitions: a pause was no stall."""
        for seen in self._seen.values():
            seen.since = now
