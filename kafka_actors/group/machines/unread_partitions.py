"""Owned partitions that nobody reads: those still to be taken on by the listener, and a watch over all of them.

Heartbeats keep a member in its group whether or not it reads, so a listener that hangs, or a partition that its owner forgot, would
go unnoticed. The shell says which partitions are owned and not read (`observe`); one that stays so for `limit_s` is reported, once, until
it is read or gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Never

from kafka_actors.base.machine import Ready, earliest
from kafka_actors.types import TopicPartition

from .member_events import Partitions


class UntakenPartitions:
    """Assigned partitions that the listener has not taken on yet, each with the number of its assignment.

    A call that was cut off is made again for what is still here; one that was made for an earlier assignment of a
    partition says nothing about a later one.
    """

    def __init__(self) -> None:
        self._of: dict[TopicPartition, int] = {}
        self._last = 0

    def assigned(self, partitions: Partitions) -> int:
        """Notes an assignment. Returns its number."""
        self._last += 1
        self._of |= dict.fromkeys(partitions, self._last)
        return self._last

    def gone(self, partitions: Iterable[TopicPartition]) -> None:
        """Notes that these were revoked or lost."""
        for tp in partitions:
            self._of.pop(tp, None)

    def up_to(self, number: int) -> dict[TopicPartition, int]:
        """Returns the partitions of that assignment and those before it that are not taken on yet, for `taken`."""
        return {tp: of for tp, of in self._of.items() if of <= number}

    def taken(self, taken: Mapping[TopicPartition, int]) -> None:
        """Notes that the listener has taken these on."""
        for tp, of in taken.items():
            if self._of.get(tp) == of:
                del self._of[tp]

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._of


class PartitionUnread(NamedTuple):
    """An owned partition has not been read for `seconds`."""

    partition: TopicPartition
    seconds: float


class UnreadWatch:
    """Reports each partition that stays unread for `limit_s` seconds, once."""

    def __init__(self, limit_s: float = 30.0) -> None:
        self._limit_s = limit_s
        self._since: dict[TopicPartition, float] = {}
        self._reported: set[TopicPartition] = set()

    def observe(self, unread: Partitions, now: float) -> None:
        """Takes the partitions that are owned and not read at `now`."""
        self._reported &= unread
        self._since = {tp: self._since.get(tp, now) for tp in unread}

    def poll(self, now: float) -> Ready[Never, PartitionUnread]:
        """Reports the partitions that have reached the limit; next wakes when the next one does if nothing changes."""
        waiting = {tp: since for tp, since in self._since.items() if tp not in self._reported}
        due = {tp: now - since for tp, since in waiting.items() if now >= since + self._limit_s}
        self._reported |= due.keys()
        wakes = [since + self._limit_s for tp, since in waiting.items() if tp not in due]
        events = tuple(PartitionUnread(tp, seconds) for tp, seconds in sorted(due.items()))
        return Ready(events=events, next_wake=earliest(wakes))
