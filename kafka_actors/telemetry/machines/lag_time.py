"""Lag in seconds: how long ago the end of a partition was where the group is now.

Ends are seen now and then, each with the moment; between two of them the partition is taken to have grown evenly, as
kafka-lag-exporter does. So no clock but one's own is asked, and no record's timestamp, which may be anything.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable

__all__ = ["LagTimes"]

SAMPLES = 120
SPACING_S = 1.0


class LagTimes:
    """Remembers how the ends of partitions grew.

    `samples` points a partition: when there are more, every other one is dropped and they lie twice as far apart, so
    that the oldest stay.
    """

    def __init__(self, samples: int = SAMPLES, spacing_s: float = SPACING_S) -> None:
        self._most = samples
        self._spacing = spacing_s
        self._seen: dict[Hashable, _Line] = {}

    def observe(self, partition: Hashable, end: int, now: float) -> None:
        """The partition's end is here now."""
        line = self._seen.get(partition)
        if line is None or end < line.ends[-1]:  # or it was made anew
            line = self._seen[partition] = _Line(self._spacing)
        line.observe(end, now, self._most)

    def behind(self, partition: Hashable, position: int, now: float) -> float | None:
        """Seconds since the partition ended at `position`; 0 at its end, None while nothing is known.

        What lies before all that was seen is reckoned from how the partition grew since; if it did not grow, the
        answer is for how long it was seen: it is that much at least.
        """
        line = self._seen.get(partition)
        if line is None:
            return None
        return max(0.0, now - line.when(position)) if position < line.ends[-1] else 0.0

    def end(self, partition: Hashable) -> int | None:
        """The end that was seen last."""
        line = self._seen.get(partition)
        return None if line is None else line.ends[-1]

    def forget(self, partition: Hashable) -> None:
        """It is another's now."""
        self._seen.pop(partition, None)


class _Line:
    """Ends and when they were seen, both rising."""

    def __init__(self, spacing: float) -> None:
        self.spacing = spacing
        self.times: list[float] = []
        self.ends: list[int] = []

    def observe(self, end: int, now: float, most: int) -> None:
        if len(self.times) > 1 and (
            self.ends[-2] == self.ends[-1] == end or now - self.times[-2] < self.spacing
        ):
            # The last point follows the present until it is far enough from the one before; a rest is two points.
            self.times[-1], self.ends[-1] = now, end
            return
        self.times.append(now)
        self.ends.append(end)
        if len(self.times) > most:
            last = self.times[-1], self.ends[-1]
            self.times, self.ends = self.times[:-1:2], self.ends[:-1:2]
            self.times.append(last[0])
            self.ends.append(last[1])
            self.spacing *= 2

    def when(self, position: int) -> float:
        """The last moment at which the partition ended at `position` or before."""
        place = bisect_left(self.ends, position + 1)  # the first end behind it
        if place == 0:
            grown, took = self.ends[-1] - self.ends[0], self.times[-1] - self.times[0]
            return self.times[0] - ((self.ends[0] - position) * took / grown if grown else 0.0)
        before, after = self.ends[place - 1], self.ends[place]
        share = (position - before) / (after - before)
        return self.times[place - 1] + share * (self.times[place] - self.times[place - 1])
