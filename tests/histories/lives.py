"""The logs that one partition had one after the other. Without IO.

An unclean election, or a topic that is deleted and made anew, begins another log: readers that were in the one before go on where the two part.
Records that were deleted from the front are part of the log that had them, and gone from a moment on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import inf

from .history import DELETED, RECREATED, Gone, Log


class Life:
    """One log of a partition: all that was ever in it. `since` is the earliest moment at which it may have begun, `parts` the first offset
    that it does not share with the log before, `topic_id` that of its topic, if it is known."""

    def __init__(self, values: dict[int, str], end: int, topic_id: str) -> None:
        self.values = dict(sorted(values.items()))
        self.offsets: Sequence[int] = list(self.values)
        self.end = end
        self.topic_id = topic_id
        self.since = 0.0
        self.parts = 0
        self.deletions: list[tuple[float, int]] = []
        """Each with the moment from which on the records before an offset may be gone."""

    def deleted(self, at: float) -> int:
        """The offset before which all may be gone at that moment."""
        return max((before for since, before in self.deletions if since <= at), default=0)

    def between(self, first: int, end: int, at: float) -> list[int]:
        """The offsets of records that a reader at `end` jumps over, or returns to, where `first` was next. Without those that were gone."""
        low, high = sorted((first, end))
        low = min(max(low, self.deleted(at)), high)
        return list(self.offsets[bisect_left(self.offsets, low) : bisect_left(self.offsets, high)])


class Lives:
    """The logs of one partition, from the first to the last."""

    def __init__(self, log: Log, gone: Sequence[Gone]) -> None:
        values, end = dict(zip(log.offsets, log.values, strict=True)), log.end
        later = Life(values, end, log.topic_id)
        found = [later]
        for loss in sorted(gone, key=lambda g: g.at, reverse=True):
            lost = dict(zip(loss.offsets, loss.values, strict=True))
            if loss.how == DELETED:
                earlier = Life(later.values | lost, later.end, later.topic_id)
                earlier.since, earlier.parts = later.since, later.parts
                earlier.deletions = [*later.deletions, (loss.since, loss.offset)]
                found[0] = later = earlier
            elif loss.how == RECREATED or lost:
                shared = (
                    {}
                    if loss.how == RECREATED
                    else {o: v for o, v in later.values.items() if o < loss.offset}
                )
                later.since, later.parts = loss.since, loss.offset
                later = Life(shared | lost, max(lost, default=-1) + 1, loss.topic_id or later.topic_id)
                found.insert(0, later)
        self.all = found

    @property
    def last(self) -> Life:
        return self.all[-1]

    def holding(self, offset: int, value: str, at: float = inf) -> list[int]:
        """The numbers of the logs that have the value there, and may have begun by a moment."""
        return [n for n, life in enumerate(self.all) if life.since <= at and life.values.get(offset) == value]

    def land(self, offset: int, before: int, after: int) -> int:
        """Where a reader at an offset of one log goes on in a later one."""
        return min([offset, *(life.parts for life in self.all[before + 1 : after + 1])])

    def begun(self, at: float, topic_id: str = "") -> list[int]:
        """The numbers of the logs that may have begun by a moment, of this topic if its id is known."""
        return [
            n
            for n, life in enumerate(self.all)
            if life.since <= at and topic_id in ("", life.topic_id or topic_id)
        ]

    def undone(self, high: int, low: int, at: float, topic_id: str = "") -> bool:
        """Whether a reader's offset may have gone from `high` to `low` because records had gone by that moment: a log ended behind
        `high`, and the next one parts from it at `low` or before."""
        known = self.begun(at, topic_id)
        return any(
            life.parts <= low and high <= before.end
            for number, (before, life) in enumerate(zip(self.all, self.all[1:], strict=False))
            if number in known and number + 1 in known
        )
