"""How far Spark's checkpoint is, out of what Spark says where a stream is planned."""

from __future__ import annotations

from .stream_offsets import StreamOffsets


class CheckpointProgress:
    """Spark asks for the next batch when the last one has ended. Its end is in the checkpoint then, unless
    `asyncProgressTrackingEnabled` makes Spark keep one only now and then, and later.

    `commit` tells the two apart. Without that option it comes as a batch begins, with the offsets from which it begins.
    With it, it comes once the end of a later batch is safe: so if the last batch began where `commit` said last, its own
    end is in the checkpoint, too. What `commit` said before that is older than this end.
    """

    def __init__(self) -> None:
        self._safe: StreamOffsets | None = None
        self._told: StreamOffsets | None = None
        self._asked: StreamOffsets | None = None
        self._behind = False

    def told(self, end: StreamOffsets) -> None:
        """Spark said `commit`."""
        self._told = self._safe = end

    def at(self, base: StreamOffsets) -> StreamOffsets:
        """What is known to be in the checkpoint when Spark asks for a batch that begins at `base`. What the first batch began
        with is said by no `commit`, and its end is always kept."""
        begun, self._asked = self._asked, base
        if begun is not None and begun.by_partition != base.by_partition:
            told = self._told is not None and self._told.by_partition == begun.by_partition
            self._behind = not (told or begun.initial)
        if self._safe is None or not self._behind:
            self._safe = base
        return self._safe
