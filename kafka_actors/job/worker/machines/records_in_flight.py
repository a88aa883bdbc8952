"""`RecordsInFlight`: which records a worker's next call has, where calls of one partition overtake each other.

Theory of operation. Records of each partition are admitted into its `RecordWindow`, in order. `ordering="key"`: a record waits until those of
its key in its partition that were admitted before it are done; records without a key wait for nothing. `ordering="unordered"`: none
waits. What needn't wait is *ready*, and `take` makes calls of it; a call ends with `finished`, or is made `again` later, and its keys
stay taken meanwhile: a failing record parks its key, and other keys go on. A call over a batch that fails with records of several keys is
made again at once in two, with half of the keys each (`split`), until it is known which keys have to wait.

A call of a function over batches has records of one chunk: at most `batch_rows`, by default an even share of what is ready for each caller.
One over messages has one record, or where calls take next to no time some of them, one after another: to begin and end each by
itself would take longer. None of these waits for another one, so where one of them fails (`cut`), or takes long after all (`shorten`), those
behind it are ready again. A pipeline that calls a function with single records (`by_record`) has batches, but of no more than it gets done
soon: an even share of many slow records would hold their keys, a drain and the watermark for their sum.

Records in whose call workers died (`SuspectCalls`) are called one by one, with no other call in hand, so that it is clear which of them
ends the process. A window is full at `most_rows` records, or when its share of `most_bytes` is used up, which is the same for each
partition: then nothing more of it is admitted.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from typing import Literal

from kafka_actors.base.batches import numbers
from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.job.lanes import SliceDone
from kafka_actors.job.machines.retries import exhausted
from kafka_actors.job.messages import DeathsInCall, GrantEpoch
from kafka_actors.job.status import WindowStatus
from kafka_actors.types import TopicPartition

from .ready_records import CallPace, ReadyRecords
from .record_window import ConcurrentCall, Hand, RecordWindow, WindowChunk

__all__ = ["Ordering", "RecordsInFlight"]

Ordering = Literal["partition", "key", "unordered"]

LEAST = 8
"""The fraction of its share, an eighth, that a window may have also where others, whose shares were larger before, have all bytes."""
LONG_S = 1.0
"""Time for which the watermark of a full window stands still before `blocked` says so."""


class RecordsInFlight:
    """The records in flight of one worker. `callers`: how many calls are made at once. `messages`: the function is one over messages; else
    `batch_rows` is the most of a call, None for an even share, and `by_record` says that it calls one with single records. `retries`: of
    a call. `may_begin(window)`: whether calls on its records may begin. `redact_keys`: keys are told by a digest only, because they may be
    personal."""

    def __init__(
        self,
        ordering: Ordering,
        callers: int,
        *,
        messages: bool = False,
        by_record: bool = False,
        batch_rows: int | None = None,
        retries: int,
        most_rows: int,
        most_bytes: int,
        may_begin: Callable[[RecordWindow], bool],
        redact_keys: bool = True,
    ) -> None:
        self.keyed = ordering == "key"
        self._callers = callers
        self._messages = messages
        self._batch_rows = batch_rows
        self.pace = CallPace.of(messages=messages, by_record=by_record)
        self._retries = retries
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._may_begin = may_begin
        self._redact_keys = redact_keys
        self._windows: dict[TopicPartition, RecordWindow] = {}
        self._suspects: dict[TopicPartition, list[DeathsInCall]] = {}
        self._watermarks: dict[TopicPartition, int] = {}
        """Offsets below which all slices of a partition are done."""
        self._hands: dict[TopicPartition, Hand] = {}
        """Also of partitions that were dropped: should one come back, its calls in hand end first."""
        self.ready_records = ReadyRecords()
        self._careful = ReadyRecords()
        """Ready records in whose call workers died."""
        self._again: deque[ConcurrentCall] = deque()
        self._parked: list[tuple[float, int, ConcurrentCall]] = []
        self._numbers = count()
        self._alone: ConcurrentCall | None = None
        self.calls = 0
        """Calls in hand."""

    # ------------------------------------------------------------ records

    def window(
        self,
        partition: TopicPartition,
        epoch: GrantEpoch,
        resets: int,
        start: int,
        told: DoneOffsets,
        dealt: tuple[int, int] | None = None,
        slices: Sequence[SliceDone] = (),
        leader_epoch: int = -1,
    ) -> RecordWindow:
        """Returns the window of a partition, a new one after a new grant or a reset; then what the former one had is void. Arguments as of
        `RecordWindow`."""
        known = self._windows.get(partition)
        if known is not None and (known.epoch, known.resets) == (epoch, resets):
            return known
        if known is not None:
            self._close(known)
        hand = self._hands.setdefault(partition, Hand())
        suspects = self._suspects.get(partition, ())
        made = RecordWindow(
            partition, epoch, resets, hand, start, told, suspects, dealt, slices, leader_epoch
        )
        made.behind_another = hand.calls > 0
        self._windows[partition] = made
        return made

    def admit(self, chunk: WindowChunk, now: float) -> tuple[list[WindowChunk], bool]:
        """Takes the next records of a partition. Returns the chunks that the watermark passed, and whether what was told is of another log."""
        window = chunk.window
        if not window.chunks:
            window.moved_at = now
        void = window.add(chunk)
        ready = [row for row in chunk.undone() if window.takes_key(chunk, row)]
        if careful := sorted(chunk.suspects.intersection(ready)):
            ready = sorted(set(ready).difference(careful))
        self.ready_records.append(chunk, ready)
        self._careful.append(chunk, careful)
        passed = window.advance()
        if self.full(window) and window.full_since is None:
            window.full_since = now
        return passed, void

    def _close(self, window: RecordWindow) -> None:
        """Takes that what a window has is void."""
        window.closed = True
        self.ready_records.drop(window)
        self._careful.drop(window)

    def full(self, window: RecordWindow) -> bool:
        """Whether no more records of a partition may be admitted now."""
        return self.room(window) <= 0 or self.room_bytes(window) <= 0

    def room(self, window: RecordWindow) -> int:
        """Returns how many records of a partition may be admitted now."""
        return self._most_rows - self._length(window)

    def _length(self, window: RecordWindow) -> int:
        """Returns how many records the window has; of a partition that is dealt in slices, as if each offset had one, from the first that
        isn't done in any slice."""
        watermark = self._watermarks.get(window.partition) if window.dealt else None
        return max(window.in_flight, 0 if watermark is None else window.next_offset - watermark)

    def room_bytes(self, window: RecordWindow) -> int:
        """Returns how many bytes of a partition may be admitted now, by its share and by what all windows have together."""
        left = self._most_bytes - sum(each.size for each in self._windows.values())
        return max(min(self._share - window.size, left), self._share // LEAST - window.size)

    @property
    def _share(self) -> int:
        return self._most_bytes // max(1, len(self._windows))

    def follow(self, watermarks: Iterable[tuple[TopicPartition, int]]) -> bool:
        """Takes below which offset all slices of each dealt partition are done. Returns whether a window that was full has room."""
        self._watermarks = dict(watermarks)
        return any(window.full_since is not None and self.room(window) > 0 for window in self.windows)

    def roomy(self, partition: TopicPartition) -> bool:
        """Whether a partition whose window was full may go on: half of it is free again, or what is in it is void."""
        window = self._windows.get(partition)
        if window is not None and self._may_begin(window):
            half = self._length(window) <= self._most_rows // 2 and window.size <= self._share // 2
            if window.waits or not half or self.room_bytes(window) <= 0:
                return False
        if window is not None:
            window.full_since = None
        return True

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops partitions that other workers have now. Calls in hand end without an effect."""
        for partition in partitions:
            self._suspects.pop(partition, None)
            if (window := self._windows.pop(partition, None)) is not None:
                self._close(window)

    def suspect(self, calls: Iterable[DeathsInCall]) -> None:
        """Takes what grants say of earlier deaths, before their records are admitted."""
        found: dict[TopicPartition, list[DeathsInCall]] = {}
        for died in calls:
            found.setdefault(died.partition, []).append(died)
        self._suspects.update(found)

    @property
    def windows(self) -> Collection[RecordWindow]:
        """The window of each partition."""
        return self._windows.values()

    # ------------------------------------------------------------ calls

    def ready(self, now: float) -> int:
        """Returns how many calls could begin now, at most."""
        if self._waits_for_one:
            return 0
        due = bool(self._parked) and self._parked[0][0] <= now
        return len(self._again) + len(self.ready_records) + bool(self._careful) + due

    @property
    def _waits_for_one(self) -> bool:
        """Whether no call may begin: one is made alone, or has to be, and others are in hand."""
        has_to_be = self._careful or (self._again and self._again[0].alone)
        return self._alone is not None or bool(has_to_be and self.calls)

    def next_due(self) -> float | None:
        """Returns when the next call is due again, None without one."""
        return self._parked[0][0] if self._parked else None

    def take(self, now: float) -> ConcurrentCall | None:
        """Begins the next call, None while there is none. Each has to end with `finished` or `again`."""
        while self._parked and self._parked[0][0] <= now:
            due = heapq.heappop(self._parked)[2]
            due.window.parked -= 1
            (self._again.appendleft if due.alone else self._again.append)(due)
        if self._waits_for_one:
            return None
        call = self._next()
        if call is not None:
            call.begun = 0
            self.calls += 1
            call.window.hand.calls += 1
            if call.alone:
                self._alone = call
        return call

    def _next(self) -> ConcurrentCall | None:
        while self._again:
            call = self._again.popleft()
            if self._may_begin(call.window):
                return call
        while self._careful:
            chunk, row = self._careful.popleft()
            if self._may_begin(chunk.window):
                return ConcurrentCall(chunk, [row], alone=True)
        while self.ready_records:
            chunk, row = self.ready_records.popleft()
            if self._may_begin(chunk.window):
                return ConcurrentCall(chunk, self._rows(chunk, row))
        return None

    def _rows(self, chunk: WindowChunk, row: int) -> list[int]:
        """Returns the rows of a call, of one chunk: those that are ready next, and of a call over a batch those of their keys behind them."""
        most = self._most_of_a_call
        rows = [row]
        while True:
            if not self._messages:
                rows += chunk.window.following(chunk, rows[-1], most - len(rows))
            left = most - len(rows)
            more = self.ready_records.next_of(chunk, left if self._messages else 1) if left > 0 else ()
            if not more:
                break
            rows += more
        rows.sort()
        return rows

    @property
    def _most_of_a_call(self) -> int:
        if self._messages:
            return self.pace.at_once
        return min(self._batch_rows or -(-(len(self.ready_records) + 1) // self._callers), self.pace.at_once)

    def too_many_deaths(self, call: ConcurrentCall) -> DeathsInCall | None:
        """Returns why a call is not to be made (again): too many workers died in it."""
        if not call.alone:
            return None
        of = (died for died in call.window.suspects if died.first == died.last == call.first)
        return next((died for died in of if exhausted(died, self._retries)), None)

    def finished(self, call: ConcurrentCall, now: float) -> list[WindowChunk]:
        """Ends a call: its records are done. Returns the chunks that the watermark has passed."""
        self._end(call)
        window, chunk = call.window, call.chunk
        if window.closed:
            return []
        self._done(call, call.rows, call.taken)
        if chunk is not window.chunks[0]:
            return []
        before = window.watermark
        passed = window.advance()
        if window.watermark != before:
            window.moved_at = now
        return passed

    def _done(self, call: ConcurrentCall, rows: list[int], taken: list[int]) -> None:
        chunk = call.chunk
        chunk.mark(rows)
        if chunk.keys is not None:
            for following, row in call.window.free({chunk.keys[row] for row in taken}):
                (self._careful if following.is_suspect(row) else self.ready_records).put_back(
                    following, [row]
                )

    def leave_out(self, call: ConcurrentCall, rows: Collection[int]) -> None:
        """Takes records out of a call that are done without it. Their keys stay taken until it ends."""
        rows = frozenset(rows)
        call.chunk.mark(list(rows))
        call.rows = [row for row in call.rows if row not in rows]

    def shorten(self, call: ConcurrentCall) -> bool:
        """Has messages be ready again that a call hasn't begun with. Returns whether there were any."""
        behind = call.shorten()
        if not call.window.closed:
            self.ready_records.put_back(call.chunk, behind)
        return bool(behind)

    def cut(self, call: ConcurrentCall, offset: int) -> tuple[list[int], list[int]]:
        """Cuts a call over messages down to the one that failed, by the offset that it told: those before it are done, those behind it are
        ready again, and the call goes on. Returns all rows that are done, and those for which the function has returned."""
        told = numbers(call.chunk.batch["offset"])
        at = next(index for index, row in enumerate(call.rows) if told[row] == offset)
        before, failed, behind = call.rows[:at], call.rows[at], call.rows[at + 1 :]
        left_out = sorted(set(call.taken) - set(call.rows))
        call.rows = call.taken = [failed]
        if call.window.closed:
            return before + left_out, before
        self._done(call, before, before + left_out)
        if call.chunk is call.window.chunks[0]:
            call.window.advance()  # which passes no chunk: one record of this one isn't done
        self.ready_records.put_back(call.chunk, behind)
        return before + left_out, before

    def again(self, call: ConcurrentCall, due: float) -> None:
        """Ends a call that failed; it is made again when it is due."""
        self._end(call)
        if not call.window.closed:
            heapq.heappush(self._parked, (due, next(self._numbers), call))
            call.window.parked += 1

    def split(self, call: ConcurrentCall) -> bool:
        """Ends a call that failed with records of several keys, which is made again in two at once. Returns False, and ends nothing, for one
        key, and where so many parts have failed, and none has succeeded, that their keys are hardly at fault."""
        halves = call.split()
        if halves:
            self._end(call)
            self._again.extend(halves)
        return bool(halves)

    def halve(self, call: ConcurrentCall) -> bool:
        """Ends a call with several records that failed for good: it is made with halves of them, one after the other, to find those at
        fault. The call itself becomes that of the first half. Returns False, and ends nothing, where they are hardly at fault, as in `split`."""
        if not call.has_parts_to_call():
            return False
        self._end(call)
        half = len(call.rows) // 2
        call.halves.append(call.rows[half:])
        call.rows = call.rows[:half]
        self._again.append(call)
        return True

    def next_half(self, call: ConcurrentCall) -> bool:
        """Goes on with the next half of a call whose rows are done but for that. Returns whether there is one; then the call is made again."""
        if not call.halves or call.window.closed:
            return False
        self._end(call)
        call.chunk.mark(call.rows)
        call.rows = call.halves.pop()
        self._again.append(call)
        return True

    def _end(self, call: ConcurrentCall) -> None:
        self.calls -= 1
        call.window.hand.calls -= 1
        if self._alone is call:
            self._alone = None

    # ------------------------------------------------------------ for people

    def status(self, partition: TopicPartition, now: float) -> WindowStatus | None:
        """Returns the window of a partition in numbers; None where it has none."""
        window = self._windows.get(partition)
        return None if window is None else window.status(now, redact_keys=self._redact_keys)

    def blocked(self, partition: TopicPartition, now: float) -> str:
        """Returns, in words, which record has held up a full window for long; empty if none has."""
        window = self._windows.get(partition)
        if window is not None and window.waits:
            return "calls from before a reset are not over"
        if window is None or window.full_since is None or now - window.moved_at < LONG_S:
            return ""
        full = window.status(now, redact_keys=self._redact_keys)
        if full.held_s is None:
            return f"its window is full: from offset {self._watermarks.get(partition, 0)} on, records of other workers are not done"
        return f"its window is full: {full.records:,} records, held for {full.held_s:.0f} s by {full.held_by}"
