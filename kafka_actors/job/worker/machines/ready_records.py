"""`ReadyRecords` and `CallPace`: the records whose calls may begin, and how many single records a call has."""

from __future__ import annotations

import heapq
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

from .record_window import RecordWindow, WindowChunk

__all__ = ["CallPace", "ReadyRecords"]

AT_ONCE_S = 0.0003
"""Longest time that messages are called one after another by one caller, however many are ready."""
MOST_AT_ONCE = 64
BY_RECORD_S = 0.01
"""Longest time of a batch of a pipeline that calls a function with single records: all its stages begin and end with each batch."""
MOST_BY_RECORD = 1_000
"""Records of such a batch at most: the next ones may take longer than those before did, and a batch is one call."""
MANY = 1 << 31


class _Run:
    """Rows of one chunk that were admitted together. `at`: where the first one stands that isn't taken."""

    __slots__ = ("at", "chunk", "rows")

    def __init__(self, chunk: WindowChunk, rows: Sequence[int]) -> None:
        self.chunk = chunk
        self.rows = array("i", rows)
        self.at = 0


class _WindowRecords:
    """Ready records of one window: `runs` as they were admitted, and `again`, a heap of those that had to wait or come a second time."""

    __slots__ = ("again", "runs")

    def __init__(self) -> None:
        self.runs: deque[_Run] = deque()
        self.again: list[tuple[int, int, WindowChunk]] = []

    def __len__(self) -> int:
        return len(self.again) + sum(len(run.rows) - run.at for run in self.runs)

    @property
    def first(self) -> WindowChunk:
        """The chunk of the record with the lowest offset."""
        return self.again[0][2] if self._again_first else self.runs[0].chunk

    @property
    def _again_first(self) -> bool:
        if not self.runs or not self.again:
            return not self.runs
        run, (end, row, _) = self.runs[0], self.again[0]
        return (end, row) < (run.chunk.next_offset, run.rows[run.at])

    def pop(self) -> tuple[WindowChunk, int]:
        """Takes the record with the lowest offset."""
        if self.again and self._again_first:
            _, row, chunk = heapq.heappop(self.again)
            return chunk, row
        run = self.runs[0]
        return run.chunk, self._pop(run, 1)[0]

    def pop_of(self, chunk: WindowChunk, most: int) -> Sequence[int]:
        """Takes the first rows if they are of this chunk, some at least and `most` at most; none where they are of others."""
        if self.again:
            return [self.pop()[1]] if self.first is chunk else []
        run = self.runs[0]
        return self._pop(run, most) if run.chunk is chunk else []

    def _pop(self, run: _Run, most: int) -> Sequence[int]:
        taken = run.rows[run.at : run.at + most]
        run.at += len(taken)
        if run.at == len(run.rows):
            self.runs.popleft()
        return taken


class ReadyRecords:
    """Queue of records that wait for no other one. Windows take turns, so that none waits until all that was fetched of another one is done;
    of a window the record with the lowest offset comes first, which holds the watermark. Of a record only the number of its row is kept:
    there may be many."""

    def __init__(self) -> None:
        self._windows: OrderedDict[RecordWindow, _WindowRecords] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, chunk: WindowChunk, rows: Sequence[int]) -> None:
        """Adds rows of a chunk that is admitted, in their order, behind all others of its window."""
        if rows:
            self._of(chunk.window).runs.append(_Run(chunk, rows))
            self._length += len(rows)

    def put_back(self, chunk: WindowChunk, rows: Iterable[int]) -> None:
        """Adds rows that were admitted before: they waited for others, or come again."""
        for row in rows:
            heapq.heappush(self._of(chunk.window).again, (chunk.next_offset, row, chunk))
            self._length += 1

    def popleft(self) -> tuple[WindowChunk, int]:
        """Takes the first row of the window whose turn it is. There has to be one."""
        window, records = next(iter(self._windows.items()))
        taken = records.pop()
        self._length -= 1
        if records.runs or records.again:
            self._windows.move_to_end(window)
        else:
            del self._windows[window]
        return taken

    def next_of(self, chunk: WindowChunk, most: int = 1) -> Sequence[int]:
        """Takes the first rows of a chunk's window if they are of this chunk, some at least and `most` at most; none where they are of others."""
        records = self._windows.get(chunk.window)
        if records is None:
            return []
        rows = records.pop_of(chunk, most)
        self._length -= len(rows)
        if not records.runs and not records.again:
            del self._windows[chunk.window]
        return rows

    def drop(self, window: RecordWindow) -> None:
        """Drops the records of a window."""
        self._length -= len(self._windows.pop(window, ()))

    def _of(self, window: RecordWindow) -> _WindowRecords:
        records = self._windows.get(window)
        if records is None:
            records = self._windows[window] = _WindowRecords()
        return records


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
        return cls(BY_RECORD_S, MOST_BY_RECORD) if by_record else cls(0.0, MANY)

    def took(self, seconds: float, records: int) -> None:
        """Takes how long a call with so many records took."""
        if self._seconds:
            self._one_s += (seconds / records - self._one_s) * 0.05
            self.at_once = max(1, min(self._most, int(self._seconds / max(self._one_s, 1e-9))))
