"""Lag in seconds: how long ago the end of a partition was where the group is now.

Theory of operation. What arrives: ends of partitions, each with the time at which it was observed, and a group's position.
What is computed: the time at which the end passed that position. Between two observations a partition is assumed to grow
evenly, as kafka-lag-exporter does. So only the own clock counts: timestamps of records, which may be anything, play no part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable

__all__ = ["LagTimes"]

SAMPLES = 120
"""Points of each partition."""
SPACING_S = 1.0
"""Seconds between them, at first."""


class LagTimes:
    """Remembers how the ends of partitions grew.

    samples: points kept for each partition. When there are more, every other point is dropped and their spacing doubles,
    so that the oldest point stays.
    """

    def __init__(self, samples: int = SAMPLES, spacing_s: float = SPACING_S) -> None:
        self._most = samples
        self._spacing = spacing_s
        self._seen: dict[Hashable, _Line] = {}

    def observe(self, partition: Hashable, end: int, now: float) -> None:
        """Takes the partition's end at `now` (monotonic seconds)."""
        line = self._seen.get(partition)
        if line is None or end < line.ends[-1]:  # the topic was recreated
            line = self._seen[partition] = _Line(self._spacing)
        line.observe(end, now, self._most)

    def behind(self, partition: Hashable, position: int, now: float) -> float | None:
        """Seconds since the partition ended at `position`; 0 at its end, None if no end was observed.

        A position before the first observed end is extrapolated from the growth since. If the partition did not grow,
        the result is the time for which it was observed, which is a lower bound.
        """
        line = self._seen.get(partition)
        if line is None:
            return None
        return max(0.0, now - line.when(position)) if position < line.ends[-1] else 0.0

    def end(self, partition: Hashable) -> int | None:
        """The last observed end; None if there is none."""
        line = self._seen.get(partition)
        return None if line is None else line.ends[-1]

    def forget(self, partition: Hashable) -> None:
        """Drops what is known of a partition that has gone to another member."""
        self._seen.pop(partition, None)


class _Line:
    """Observed ends of one partition and their times, both ascending."""

    def __init__(self, spacing: float) -> None:
        self.spacing = spacing
        self.times: list[float] = []
        self.ends: list[int] = []

    def observe(self, end: int, now: float, most: int) -> None:
        if len(self.times) > 1 and (
            self.ends[-2] == self.ends[-1] == end or now - self.times[-2] < self.spacing
        ):
            # The last point follows the present until it is `spacing` away from the one before; standstill takes two points.
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
        """The last time at which the partition ended at `position` or before."""
        place = bisect_left(self.ends, position + 1)  # the first end behind it
        if place == 0:
            grown, took = self.ends[-1] - self.ends[0], self.times[-1] - self.times[0]
            return self.times[0] - ((self.ends[0] - position) * took / grown if grown else 0.0)
        before, after = self.ends[place - 1], self.ends[place]
        share = (position - before) / (after - before)
        return self.times[place - 1] + share * (self.times[place] - self.times[place - 1])
