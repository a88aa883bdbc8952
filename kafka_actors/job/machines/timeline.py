"""The timeline of a job: the last things that happened to it, each with its moment and a number."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

__all__ = ["MOST_ENTRIES", "Timeline", "TimelineEntry"]

MOST_ENTRIES = 200


class TimelineEntry(Struct, frozen=True, kw_only=True):
    """Something that happened to a job. `number` counts from 1; `at_s` is in seconds since 1970.

    `kind`: state (of the job; with the reason where it failed), rebalance (what the group gave and took),
    restart (an actor was replaced), workers (their number was changed), move (a worker is to give up
    partitions), drain (it has drained them), forced (it had not by the deadline) or stall (a partition with
    records did not move).
    """

    number: int
    at_s: float
    kind: str
    text: str


class Timeline:
    """A bounded list of entries: the oldest go first."""

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self._entries: deque[TimelineEntry] = deque(maxlen=most)
        self._last = 0

    def note(self, kind: str, text: str, now_s: float) -> None:
        """Adds an entry; the kinds are those of `TimelineEntry`, and `now_s` is in seconds since 1970."""
        self._last += 1
        self._entries.append(TimelineEntry(number=self._last, at_s=now_s, kind=kind, text=text))

    def after(self, number: int = 0) -> list[TimelineEntry]:
        """Entries with a higher number, the oldest first."""
        return [entry for entry in self._entries if entry.number > number]
