"""Turns of a worker's partitions at its bench: by time, so that a long queue of one partition doesn't hold up the others."""

from __future__ import annotations

from collections.abc import Callable, Collection

from kafka_actors.types import TopicPartition

__all__ = ["TURN_S", "Turns"]

TURN_S = 0.25
"""A call that is under way is never cut short: a turn ends between two calls, when it has lasted so long."""

LONG_S = 1.0
"""Who has waited for so long is told why: shorter waits are every partition's, all the time."""


class Turns:
    """One partition has the turn, others wait. A partition that had no turn under its grant is a newcomer."""

    def __init__(self) -> None:
        self._at: TopicPartition | None = None
        self._since = 0.0
        self._waiting: dict[TopicPartition, float] = {}

    def begin(self, partition: TopicPartition, now: float) -> None:
        self._at, self._since = partition, now
        self._waiting.pop(partition, None)

    def end(self) -> None:
        """There is nothing to work on."""
        self._at = None
        self._waiting.clear()

    def over(self, now: float, *, newcomer: bool, others: Callable[[], bool]) -> bool:
        """Between two calls: whether another partition goes first from here on. A newcomer does at once; others do when
        the turn has lasted long enough."""
        return self._at is not None and (newcomer or (now - self._since >= TURN_S and others()))

    def seen(self, waiting: Collection[TopicPartition], now: float) -> None:
        """Which partitions have records that nobody works on."""
        self._waiting = {p: self._waiting.get(p, now) for p in waiting if p != self._at}

    def blocked(self, partition: TopicPartition, now: float) -> str:
        """Behind whom a partition has been waiting for long; empty for any other."""
        since, ahead = self._waiting.get(partition), self._at
        if since is None or ahead is None or now - since < LONG_S:
            return ""
        others = len(self._waiting) - 1
        rest = f" and {others} {'other' if others == 1 else 'others'}" if others else ""
        return f"waits for its turn: behind {ahead.topic}-{ahead.partition}{rest}"
