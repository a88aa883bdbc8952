"""`RecordWindow`: the records of one partition between the first that isn't done and the newest that was fetched.

Theory of operation. Calls overtake each other, so records are done in any order, while a group's offset says that all before it are.
Chunks of records are admitted in the order of their offsets; each has a mark for every record. The *watermark* is the offset of the
first record that isn't done: it passes a chunk when all its records are done, and then also offsets without records at its end
(transactions' ends, compacted records, empty batches), so that none of these holds it up. Only the watermark is committed as the
offset; what is done beyond it goes into the commit's metadata (`group/done_offsets.py`).

A window begins with what an earlier reader had done beyond its offset: those records are admitted as done already. They are, unless
the log was cut since and others have taken their place, which have a higher leader epoch: from the first of these on, nothing that was
told counts. A chunk without records says so, too: of a slice, all may be of others.

A window is of one grant and of one log: after a reset of the position there is another one, and what this one had is void.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_actors.base.batches import numbers, rows_of
from kafka_actors.base.bisect import PartCalls
from kafka_actors.group.done_offsets import NOTHING_DONE, DoneOffsets, ranges_of
from kafka_actors.job.lanes import SliceDone
from kafka_actors.job.messages import DeathsInCall, GrantEpoch
from kafka_actors.job.status import WindowStatus, key_text
from kafka_actors.job.worker.slice_records import KnownSlice
from kafka_actors.types import TopicPartition

__all__ = ["ConcurrentCall", "Hand", "RecordWindow", "WindowChunk"]


class Hand:
    """Number of calls in hand of one partition, also of those from before a reset, or of a grant before."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


class WindowChunk:
    """Records that were decoded together. `done` has a mark for each, `left` is the number of those without one, `cursor` the first row
    without one as far as is known. `lanes`: the records' lanes, where slices matter. `offsets`, `attempts`: of a retry partition, the places of
    its records there, and how many calls on each have failed; `origin`: the partition that the records of the batch say they are of."""

    __slots__ = (
        "attempts",
        "batch",
        "cursor",
        "done",
        "done_before",
        "keys",
        "lanes",
        "leader_epoch",
        "left",
        "next_offset",
        "offsets",
        "origin",
        "size",
        "suspects",
        "window",
    )

    def __init__(
        self,
        window: RecordWindow,
        batch: pa.RecordBatch,
        next_offset: int,
        leader_epoch: int,
        *,
        keyed: bool,
        lanes: npt.NDArray[np.int64] | None = None,
        offsets: npt.NDArray[np.int64] | None = None,
        attempts: list[int] | None = None,
    ) -> None:
        self.window = window
        self.batch = batch
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.offsets = numbers(batch["offset"]) if offsets is None else offsets
        self.attempts = attempts
        self.origin = window.partition
        if offsets is not None and batch.num_rows:
            self.origin = TopicPartition(batch["topic"][0].as_py(), batch["partition"][0].as_py())
        self.keys: list[Hashable] | None = batch["key"].to_pylist() if keyed else None
        self.lanes = lanes
        self.done = bytearray(batch.num_rows)
        self.done_before: Sequence[int] = ()
        """Rows that an earlier reader had done."""
        self.suspects: frozenset[int] = frozenset()
        """Rows in whose calls workers died, as the grant says."""
        self.left = batch.num_rows
        self.cursor = 0
        self.size = batch.nbytes

    def mark(self, rows: Sequence[int]) -> None:
        """Marks records as done."""
        done = self.done
        for row in rows:
            done[row] = 1
        self.left -= len(rows)

    def is_suspect(self, row: int) -> bool:
        """Whether workers died in a call with this record."""
        return row in self.suspects

    def suspect(self, calls: Iterable[DeathsInCall]) -> None:
        """Takes the calls in which workers died."""
        found = np.zeros(self.batch.num_rows, bool)
        for died in calls:
            found |= (died.first <= self.offsets) & (self.offsets <= died.last)
        self.suspects = frozenset(np.flatnonzero(found).tolist())

    def undone(self) -> list[int]:
        """Returns the rows without a mark."""
        return [] if not self.left else np.flatnonzero(np.frombuffer(self.done, np.uint8) == 0).tolist()


class RecordWindow:
    """One partition's window. `start`: the offset where reading began. `resets`: how often the position had been reset before. `told`: what
    an earlier reader had done beyond the start. `suspects`: calls in which workers died. `dealt`: which slice of how many the worker
    has; the chunks are without the records of others. None for a whole partition. `slices`: what earlier readers had done of slices.
    `leader_epoch`: of the record before the watermark, -1 if unknown."""

    def __init__(
        self,
        partition: TopicPartition,
        epoch: GrantEpoch,
        resets: int,
        hand: Hand,
        start: int,
        told: DoneOffsets = NOTHING_DONE,
        suspects: Sequence[DeathsInCall] = (),
        dealt: tuple[int, int] | None = None,
        slices: Sequence[SliceDone] = (),
        leader_epoch: int = -1,
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        self.resets = resets
        self.hand = hand
        self.told = told
        self.suspects = suspects
        self.dealt = dealt
        self.slices = [KnownSlice(each) for each in slices]
        self.watermark = start
        self.leader_epoch = leader_epoch
        self.chunks: deque[WindowChunk] = deque()
        self.rows = 0
        self.size = 0
        self.chains: dict[Hashable, deque[tuple[WindowChunk, int]] | None] = {}
        """Keys with a record that is ready or in hand, and the records that wait behind it."""
        self.closed = False
        self.behind_another = False
        """Whether it took the place of a window of this partition: from before a reset, or of a grant before."""
        self.full_since: float | None = None
        self.moved_at = 0.0
        """When the watermark moved last."""
        self.parked = 0
        """Calls that failed and wait to be made again."""

    @property
    def waits(self) -> bool:
        """Whether calls from before a reset, or of a grant before, are in hand: they may be of the keys, or records, that are called next."""
        self.behind_another = self.behind_another and self.hand.calls > 0
        return self.behind_another

    @property
    def in_flight(self) -> int:
        """Records from the watermark to the newest."""
        return self.rows - (self.chunks[0].cursor if self.chunks else 0)

    @property
    def next_offset(self) -> int:
        """The offset behind what was admitted."""
        return self.chunks[-1].next_offset if self.chunks else self.watermark

    def add(self, chunk: WindowChunk) -> bool:
        """Admits a chunk. Returns whether what an earlier reader had done turned out to be of another log."""
        if self.told:  # also of records that a compaction has removed since, which matters no more
            self.told = self.told.behind(int(chunk.offsets[0]) if chunk.batch.num_rows else chunk.next_offset)
        void = bool(self.told) and chunk.leader_epoch > self.told.leader_epoch
        if void:
            self.told = NOTHING_DONE
        elif (self.told or self.slices) and chunk.batch.num_rows:
            done = self.told.has(chunk.offsets, chunk.leader_epoch)
            for known in self.slices:
                assert chunk.lanes is not None  # a window with slices gets chunks with lanes
                done |= known.has(chunk.offsets, chunk.lanes, chunk.leader_epoch)
            chunk.done_before = np.flatnonzero(done).tolist()
            chunk.mark(chunk.done_before)
        if self.told:
            self.told = self.told.behind(chunk.next_offset)
        if self.slices:
            self.slices = [known for known in self.slices if known.end > chunk.next_offset]
        if self.suspects:
            chunk.suspect(self.suspects)
        self.chunks.append(chunk)
        self.rows += chunk.batch.num_rows
        self.size += chunk.size
        return void

    def takes_key(self, chunk: WindowChunk, row: int) -> bool:
        """Whether a record may be called next, and its key is taken for it; else it waits behind others of its key."""
        key = chunk.keys[row] if chunk.keys is not None else None
        if key is None:
            return True
        if key in self.chains:
            waiting = self.chains[key]
            if waiting is None:
                self.chains[key] = deque(((chunk, row),))
            else:
                waiting.append((chunk, row))
            return False
        self.chains[key] = None
        return True

    def following(self, chunk: WindowChunk, row: int, most: int) -> list[int]:
        """Takes the records of a chunk that wait behind one of their key, up to one that is called alone."""
        key = chunk.keys[row] if chunk.keys is not None else None
        waiting = None if key is None else self.chains.get(key)
        rows: list[int] = []
        while waiting and len(rows) < most and waiting[0][0] is chunk:
            if chunk.is_suspect(waiting[0][1]):
                break
            rows.append(waiting.popleft()[1])
        return rows

    def free(self, keys: set[Hashable]) -> Iterator[tuple[WindowChunk, int]]:
        """Frees keys. Yields the next record of each."""
        for key in keys:
            if waiting := self.chains.get(key):
                yield waiting.popleft()
            elif key is not None:
                del self.chains[key]

    def advance(self) -> list[WindowChunk]:
        """Moves the watermark as far as records are done. Returns the chunks that it has passed."""
        passed: list[WindowChunk] = []
        while self.chunks and not self.chunks[0].left:
            chunk = self.chunks.popleft()
            self.rows -= chunk.batch.num_rows
            self.size -= chunk.size
            self.watermark, self.leader_epoch = chunk.next_offset, chunk.leader_epoch
            passed.append(chunk)
        if self.chunks:
            chunk = self.chunks[0]
            first = chunk.done.find(0, chunk.cursor)
            if first > chunk.cursor or self.dealt is not None:  # of a slice there may be none before it
                chunk.cursor = first
                self.watermark, self.leader_epoch = int(chunk.offsets[first]), chunk.leader_epoch
        return passed

    def beyond(self) -> DoneOffsets:
        """Returns what is done beyond the watermark."""
        if self.dealt:
            return self._beyond_of_a_slice()
        filled = [chunk for chunk in self.chunks if chunk.batch.num_rows]
        if not filled:
            return self.told
        offsets = np.concatenate([chunk.offsets for chunk in filled])
        done = np.concatenate([np.frombuffer(chunk.done, np.uint8) for chunk in filled])
        ranges = ranges_of(offsets, done)
        ranges = ranges[ranges[:, 1] > self.watermark]
        if not len(ranges):
            return self.told
        newest = int(ranges[-1, 1]) - 1
        epoch = next(chunk.leader_epoch for chunk in filled if newest < chunk.next_offset)
        return DoneOffsets(ranges, epoch).joined(self.told)

    def _beyond_of_a_slice(self) -> DoneOffsets:
        """Returns what is done beyond the watermark, and the offsets of other slices' records, on which this one waits for nothing."""
        if not self.chunks:
            return self.told
        undone = [chunk.offsets[np.frombuffer(chunk.done, np.uint8) == 0] for chunk in self.chunks]
        behind = np.append(np.concatenate(undone), self.next_offset)
        ranges = np.stack((behind[:-1] + 1, behind[1:]), axis=1)
        found = DoneOffsets(ranges[ranges[:, 0] < ranges[:, 1]], self.chunks[-1].leader_epoch)
        return found.joined(self.told.behind(self.next_offset))

    def status(self, now: float, *, redact_keys: bool = True) -> WindowStatus:
        """Returns the window in numbers. `redact_keys`: the key of the record that holds it up is told by a digest only."""
        first = self.first_undone()
        held: tuple[float | None, str] = (None, "")
        if first is not None:
            held = now - self.moved_at, f"offset {first[0]}, {key_text(first[1], redact=redact_keys)}"
        return WindowStatus(self.in_flight, self.hand.calls, self.parked, len(self.chains), *held)

    def first_undone(self) -> tuple[int, Hashable] | None:
        """Returns offset and key of the record that holds the watermark; None where there is none."""
        for chunk in self.chunks:
            row = chunk.done.find(0, chunk.cursor)
            if row >= 0:
                return int(chunk.offsets[row]), chunk.batch["key"][row].as_py()
        return None


class ConcurrentCall:
    """Call of the function with some rows of a chunk. `attempts`: how often it has failed. `halves`: rows to call it with afterwards, because
    the call with all of them failed for good. `taken`: the rows whose keys it has. `alone`: no other call is in hand. `began`: when.
    `parts`: the calls on parts of the one that this is a part of, None where it is whole. `begun`: of several messages, how many have begun."""

    __slots__ = ("alone", "attempts", "began", "begun", "chunk", "halves", "parts", "rows", "taken")

    def __init__(self, chunk: WindowChunk, rows: list[int], *, alone: bool = False) -> None:
        self.chunk = chunk
        self.rows = self.taken = rows
        self.attempts = 0
        self.halves: list[list[int]] = []
        self.parts: PartCalls | None = None
        self.alone = alone
        self.began = 0.0
        self.begun = 0

    @property
    def window(self) -> RecordWindow:
        return self.chunk.window

    def next_row(self) -> int | None:
        """Begins with the next message. Returns its row; None where all have begun."""
        if self.begun == len(self.rows):
            return None
        self.begun += 1
        return self.rows[self.begun - 1]

    def shorten(self) -> list[int]:
        """Takes out the rows of messages that it hasn't begun with, all but the first one. Returns them."""
        begun = max(1, self.begun)
        self.rows, behind = self.rows[:begun], self.rows[begun:]
        self.taken = sorted(set(self.taken).difference(behind))
        return behind

    def split(self) -> list[ConcurrentCall]:
        """Returns two calls with half of the keys each, and of each key all its rows; none for one key. A row without a key is by itself."""
        rows_by_key: dict[Hashable, list[int]] = {}
        for row in self.rows:
            key = None if self.chunk.keys is None else self.chunk.keys[row]
            rows_by_key.setdefault(row if key is None else key, []).append(row)
        keys = list(rows_by_key.values())
        if len(keys) == 1:
            return []
        if not self.has_parts_to_call():
            return []
        half = len(keys) // 2
        halves = [ConcurrentCall(self.chunk, sorted(chain(*part))) for part in (keys[:half], keys[half:])]
        for call in halves:
            call.parts, call.attempts = self.parts, self.attempts
        halves[0].taken = halves[0].rows + sorted(set(self.taken).difference(self.rows))
        return halves

    def has_parts_to_call(self) -> bool:
        """Takes that it failed. Returns whether calls on parts of it may find which records are at fault."""
        self.parts = self.parts or PartCalls()
        return self.parts.failed()

    @property
    def batch(self) -> pa.RecordBatch:
        """The records of the call."""
        first, rows = self.rows[0], len(self.rows)
        if self.rows[-1] - first == rows - 1:
            return self.chunk.batch.slice(first, rows)
        return rows_of(self.chunk.batch, self.rows)

    @property
    def origin(self) -> TopicPartition:
        """The partition that its records say they are of."""
        return self.chunk.origin

    @property
    def first(self) -> int:
        return int(self.chunk.offsets[self.rows[0]])

    @property
    def last(self) -> int:
        return int(self.chunk.offsets[self.rows[-1]])
