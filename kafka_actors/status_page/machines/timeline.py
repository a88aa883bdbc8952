"""What happened to a job, the last things of it, each with its moment and a number."""

from __future__ import annotations

from collections import deque

from kafka_actors.status_page.document import Entry

__all__ = ["KEEPS", "Timeline"]

KEEPS = 200


class Timeline:
    """Bounded: the oldest entries go. `now_s` is seconds since 1970."""

    def __init__(self, keeps: int = KEEPS) -> None:
        self._entries: deque[Entry] = deque(maxlen=keeps)
        self._last = 0

    def note(self, kind: str, text: str, now_s: float) -> None:
        """Something happened. The kinds are in `Entry`."""
        self._last += 1
        self._entries.append(Entry(number=self._last, at_s=now_s, kind=kind, text=text))

    def after(self, number: int = 0) -> list[Entry]:
        """Those with a higher number, the oldest first."""
        return [entry for entry in self._entries if entry.number > number]
