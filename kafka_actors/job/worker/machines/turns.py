"""Turns of a worker's partitions: by time, so that a long backlog of one partition doesn't hold up the others.

Theory of operation. The processing thread works on one partition at a time. A turn begins with an item of a partition and ends
between two calls of the user's function: at once if a newcomer waits, a partition of which nothing was processed under its
grant; else after `TURN_S`, if another partition has items. A call is never cut short. Partitions that wait for long are named,
with the one that is in their way, in the status.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kafka_actors.types import TopicPartition

__all__ = ["TURN_S", "Turns"]

TURN_S = 0.25
"""Shortest time of a turn while other partitions wait, in seconds."""

LONG_S = 1.0
"""Wait after which `blocked` names a reason: shorter ones are normal."""


class Turns:
    """Tracks whose turn it is, and which partitions wait. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._at: TopicPartition | None = None
        self._since = 0.0
        self._waiting: dict[TopicPartition, float] = {}

    def begin(self, partition: TopicPartition, now: float) -> None:
        """Begins a partition's turn."""
        self._at, self._since = partition, now
        self._waiting.pop(partition, None)

    def end(self) -> None:
        """Ends the turn: there are no items."""
        self._at = None
        self._waiting.clear()

    def over(self, now: float, *, newcomer: bool, others: Callable[[], bool]) -> bool:
        """Whether the turn ends, between two calls. `newcomer`: one waits. `others`: whether another partition has items; called
        only once the turn has lasted long enough."""
        return self._at is not None and (newcomer or (now - self._since >= TURN_S and others()))

    def seen(self, waiting: Collection[TopicPartition], now: float) -> None:
        """Takes the partitions that have items."""
        self._waiting = {p: self._waiting.get(p, now) for p in waiting if p != self._at}

    def blocked(self, partition: TopicPartition, now: float) -> str:
        """Returns, in words, behind which partition this one has waited for long; empty if it hasn't."""
        since, ahead = self._waiting.get(partition), self._at
        if since is None or ahead is None or now - since < LONG_S:
            return ""
        others = len(self._waiting) - 1
        rest = f" and {others} {'other' if others == 1 else 'others'}" if others else ""
        return f"waits for its turn: behind {ahead.topic}-{ahead.partition}{rest}"
