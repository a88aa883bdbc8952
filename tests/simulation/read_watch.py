"""A watch over the partitions of a scenario: each that is owned is read, or waits for a reason that is told."""

from __future__ import annotations

from collections.abc import Hashable


class ReadWatch:
    """Notes since when each partition of an owner is neither read nor says why. `limit_s`: what is normal, such as a request that
    is not answered."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._position: dict[Hashable, object] = {}
        self._since: dict[Hashable, float] = {}

    def overdue(self, key: Hashable, position: object, waits: bool, now: float) -> float:
        """Looks at one. `position`: where its reader is; `waits`: whether there is nothing to read, or a reason. Returns for how many
        seconds nothing was read without a reason, once they are too many; else 0."""
        moved = self._position.get(key, self) != position
        self._position[key] = position
        if moved or waits:
            self._since[key] = now
        unread_s = now - self._since.setdefault(key, now)
        return unread_s if unread_s > self._limit_s else 0.0

    def only(self, keys: set[Hashable]) -> None:
        """Forgets all others: who gets one back begins anew."""
        for key in self._position.keys() - keys:
            self._position.pop(key, None)
            self._since.pop(key, None)
