"""`ReadyRecords` and `CallPace`: the records whose calls may begin, and how many single records a call has."""

from __future__ import annotations

from collections import deque

from .record_window import WindowChunk

__all__ = ["CallPace", "ReadyRecords"]

AT_ONCE_S = 0.0003
"""Longest time that messages are called one after another by one caller, however many are ready."""
MOST_AT_ONCE = 64
BY_RECORD_S = 0.01
"""Longest time of a batch of a pipeline that calls a function with single records: all its stages begin and end with each batch."""
MANY = 1 << 31


class ReadyRecords:
    """Queue of records that wait for no other one. Of a chunk's rows that follow each other only the numbers are kept: there may be many."""

    def __init__(self) -> None:
        self._runs: deque[tuple[WindowChunk, deque[int]]] = deque()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, chunk: WindowChunk, row: int) -> None:
        """Adds a row at the end."""
        if not self._runs or self._runs[-1][0] is not chunk:
            self._runs.append((chunk, deque()))
        self._runs[-1][1].append(row)
        self._length += 1

    def put_back(self, chunk: WindowChunk, rows: list[int]) -> None:
        """Adds rows at the front, in their order."""
        if rows:
            self._runs.appendleft((chunk, deque(rows)))
            self._length += len(rows)

    def popleft(self) -> tuple[WindowChunk, int]:
        """Takes the first row. Raises `IndexError` where there is none."""
        chunk, rows = self._runs[0]
        row = rows.popleft()
        self._length -= 1
        if not rows:
            self._runs.popleft()
        return chunk, row

    def next_of(self, chunk: WindowChunk) -> int | None:
        """Takes the first row if it is one of this chunk; else returns None."""
        return self.popleft()[1] if self._runs and self._runs[0][0] is chunk else None


class CallPace:
    """Size of calls with single records, by how long they take: `at_once` records take `seconds`, and are `most` at most."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self.at_once = 1 if seconds else most
        self._one_s = 1.0
        """Seconds that a call takes for each record: an average in which the last 20 calls count most."""

    @classmethod
    def of(cls, *, messages: bool, by_record: bool) -> CallPace:
        """Makes that of a function over messages, of a pipeline that calls one (`by_record`), or of any other function, which has none."""
        if messages:
            return cls(AT_ONCE_S, MOST_AT_ONCE)
        return cls(BY_RECORD_S if by_record else 0.0, MANY)

    def took(self, seconds: float, records: int) -> None:
        """Takes how long a call with so many records took."""
        if self._seconds:
            self._one_s += (seconds / records - self._one_s) * 0.05
            self.at_once = max(1, min(self._most, int(self._seconds / max(self._one_s, 1e-9))))
