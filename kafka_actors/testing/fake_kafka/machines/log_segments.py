"""Segments of a log, and which of them retention deletes.

Theory of operation. A log is cut into segments: a batch that would make one too large, or whose timestamp is too far behind the
segment's first one, begins the next. Retention deletes whole segments, the oldest first: those whose newest record is older than
`retention.ms`, and those without which the log has still `retention.bytes`. The last segment goes too when it is too old, or no bytes are
to be kept.

Source: Kafka's `UnifiedLog.deleteOldSegments`, `LogSegment.shouldRoll`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from .record_batches import StoredBatch

_UNLIMITED = -1


class Retention(Struct, frozen=True):
    """Settings of a topic that decide when its records go; names and meanings are Kafka's. `deletes` is whether `cleanup.policy` has `delete`."""

    deletes: bool = True
    retention_ms: int = 604_800_000
    retention_bytes: int = _UNLIMITED
    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000


class _LogSegment:
    def __init__(self, first: StoredBatch) -> None:
        self.base_offset = first.base_offset
        self.first_timestamp = first.max_timestamp
        self.newest = first.max_timestamp
        self.size = 0
        self.end_offset = first.base_offset

    def takes(self, batch: StoredBatch, retention: Retention) -> bool:
        return (
            self.size + batch.size <= retention.segment_bytes
            and batch.max_timestamp - self.first_timestamp <= retention.segment_ms
        )

    def add(self, batch: StoredBatch) -> None:
        self.size += batch.size
        self.newest = max(self.newest, batch.max_timestamp)
        self.end_offset = batch.last_offset + 1


class LogSegments:
    """The segments of one log."""

    def __init__(self) -> None:
        self._segments: list[_LogSegment] = []
        self._retention = Retention()

    def set_retention(self, retention: Retention) -> None:
        """Notes the topic's settings, by which segments are cut from now on."""
        self._retention = retention

    def add(self, batch: StoredBatch) -> None:
        """Takes in a batch at the end of the log."""
        if not self._segments or not self._segments[-1].takes(batch, self._retention):
            self._segments.append(_LogSegment(batch))
        self._segments[-1].add(batch)

    def drop_before(self, offset: int) -> None:
        """Forgets the segments whose records are all before an offset."""
        self._segments = [segment for segment in self._segments if segment.end_offset > offset]

    def rebuild(self, batches: Iterable[StoredBatch]) -> None:
        """Forgets all, and takes in these batches."""
        self._segments.clear()
        for batch in batches:
            self.add(batch)

    def start_after_retention(self, now_ms: int) -> int:
        """Returns the offset at which the log begins when retention has deleted what it does at a time; 0 where it deletes nothing."""
        found, excess = 0, sum(segment.size for segment in self._segments) - self._retention.retention_bytes
        if not self._retention.deletes:
            return found
        for segment in self._segments:
            if not self._too_old(segment, now_ms):
                break
            found, excess = segment.end_offset, excess - segment.size
        for segment in self._segments:
            if segment.end_offset <= found:
                continue
            if self._retention.retention_bytes < 0 or excess < segment.size:
                break
            found, excess = segment.end_offset, excess - segment.size
        return found

    def _too_old(self, segment: _LogSegment, now_ms: int) -> bool:
        return self._retention.retention_ms >= 0 and now_ms - segment.newest > self._retention.retention_ms
