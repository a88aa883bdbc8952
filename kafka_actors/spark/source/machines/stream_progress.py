"""Progress of a stream: its distance from the ends of the logs, and the offsets that are safe in Spark's checkpoint.

Theory of operation. With `commitOffsets` a consumer group's offsets follow the checkpoint and must never be ahead of it.
Spark does not say what is in the checkpoint: it asks for the next batch, and it calls `commit`. `CheckpointProgress`
derives it from the order of these calls. Spark asks for a batch when the last one has ended, and that end is in the
checkpoint then, unless `asyncProgressTrackingEnabled` makes Spark store one only now and then, and later. `commit`
distinguishes the two. Without that option it comes as a batch begins, with the offsets from which it begins. With it, it
comes once the end of a later batch is stored: so if the last batch began safe_at the offsets of the last `commit`, its own end is
in the checkpoint, too, and if not, only the offsets of `commit` are safe.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_actors.types import TopicPartition

from .stream_offsets import StreamOffsets


def offsets_behind(
    newest: Mapping[TopicPartition, int], reached: Mapping[TopicPartition, int]
) -> dict[str, str]:
    """The smallest, largest and average lag of partitions, in offsets, under the names of Spark's own metrics; empty without
    partitions."""
    behind = [max(end - reached.get(tp, 0), 0) for tp, end in newest.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


class CheckpointProgress:
    """Derives the offsets that are in Spark's checkpoint from Spark's calls; see the module."""

    def __init__(self) -> None:
        self._safe: StreamOffsets | None = None
        self._committed: StreamOffsets | None = None
        self._last_base: StreamOffsets | None = None
        self._stored_late = False

    def committed(self, end: StreamOffsets) -> None:
        """Takes the offsets of a `commit` of Spark's."""
        self._committed = self._safe = end

    def safe_at(self, base: StreamOffsets) -> StreamOffsets:
        """The offsets that are known to be in the checkpoint when Spark asks for a batch that begins safe_at `base`. No `commit` has
        the start of the first batch, whose end is always stored."""
        begun, self._last_base = self._last_base, base
        if begun is not None and begun.by_partition != base.by_partition:
            committed = self._committed is not None and self._committed.by_partition == begun.by_partition
            self._stored_late = not (committed or begun.initial)
        if self._safe is None or not self._stored_late:
            self._safe = base
        return self._safe
