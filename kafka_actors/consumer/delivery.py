"""`Delivery`: records on their way from the fetcher to the user, and the offsets that may be committed of them.

A `Cursor` goes through one partition's fetched bytes, chunk by chunk and row by row. Records that were handed out last are *in
hand*: the user may still be working on them, until the next call. So each partition has two positions. `positions` are behind
everything handed out: `commit` commits those. `safe_positions` are in front of the records in hand: auto-commit, revocations and
`close` commit those.

For one thread at a time; the fetcher that it takes from has a lock of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa

from kafka_actors.errors import KafkaActorsError, UsageError
from kafka_actors.fetch import DecodeAhead, FetchedBytes, Fetcher
from kafka_actors.group.commit_metadata import pack
from kafka_actors.records import Chunk
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .telemetry import ConsumerTelemetry


class Cursor:
    """Goes through one `FetchedBytes`. The fetcher's position runs ahead to the end of the present chunk; `at` returns the
    position of the user within it."""

    __slots__ = (
        "_before",
        "_chunks",
        "_epoch",
        "_fetcher",
        "_start",
        "batch",
        "begun",
        "end",
        "ended",
        "item",
        "partition",
        "row",
        "topic_id",
    )

    def __init__(self, fetcher: Fetcher, item: FetchedBytes, unpacked: Iterator[Chunk]) -> None:
        self._fetcher = fetcher
        self._chunks: Iterator[Chunk] = fetcher.decode(item, unpacked)
        self.item = item
        self.partition = item.partition
        self.topic_id = fetcher.topic_id(item.partition)  # from before anything of it is known to be valid
        self.batch: pa.RecordBatch | None = None
        self.row = 0  # of the next record to hand out
        self.end = item.fetch_offset  # behind the present chunk: where the fetcher's position is
        self.begun = 0  # the first of the rows in hand
        self.ended = False  # the present chunk is the last one
        self._start = self.end  # in front of it
        self._epoch = -1  # leader epoch of all its records
        self._before = -1  # and of those before it

    @property
    def current(self) -> bool:
        """False once the position was moved elsewhere: nothing more of this may be handed out."""
        return self._fetcher.holds(self.partition, self.item.epoch, self.end)

    @property
    def has_rows(self) -> bool:
        """Whether the present chunk has records left to hand out."""
        return self.batch is not None and self.row < self.batch.num_rows

    @property
    def has_begun(self) -> bool:
        """Whether records of the present chunk are in the user's hands."""
        return self.batch is not None and self.begun < self.row

    def take_rows(self) -> pa.RecordBatch:
        """Returns the rest of the present chunk, which is in hand from now on."""
        assert self.batch is not None  # after has_rows
        self.begun, self.row = self.row, self.batch.num_rows
        return self.batch.slice(self.begun) if self.begun else self.batch

    def at(self, row: int) -> OffsetAndMetadata:
        """Returns the position in front of a row of the present chunk, with the leader epoch of the records before it.

        In front of the first row that is the end of the chunk before: batches between may have a later epoch.
        """
        assert self.batch is not None  # a row is one of a chunk
        metadata = pack("", self.topic_id)
        if not row:
            return OffsetAndMetadata(self._start, metadata, self._before)
        offset: int = self.batch.column("offset")[row].as_py()
        return OffsetAndMetadata(offset, metadata, self._epoch)

    def advance(self) -> bool:
        """Goes to the next chunk that has records; False at the end, when the bytes are released."""
        for chunk in self._chunks:
            self._before = self._fetcher.position_epoch(self.partition)
            # Before it counts as consumed: an interrupt in between must not lose it.
            self.batch, self.row, self.begun, self._epoch = chunk.batch, 0, 0, chunk.leader_epoch
            self._start, self.end, self.ended = self.end, chunk.next_offset, chunk.last
            if not self._fetcher.consumed(self.item, chunk.next_offset):
                break
            if chunk.batch.num_rows:
                return True
        self.batch = None
        self._fetcher.consumed(self.item)
        return False


class Delivery:
    """Hands out batches and messages of one consumer, and knows their offsets."""

    def __init__(self, fetcher: Fetcher, observer: ConsumerTelemetry) -> None:
        self._fetcher = fetcher
        self._ahead = DecodeAhead(fetcher)
        self._observer = observer
        self._cursor: Cursor | None = None  # the one being handed out
        self._parked: dict[TopicPartition, deque[Cursor]] = {}  # of paused partitions, in order
        self._paused: frozenset[TopicPartition] = frozenset()
        self._in_hand: Cursor | None = None
        self.handed: set[TopicPartition] = set()
        """Partitions with records handed out since the last commit of them all."""
        self.begun: dict[TopicPartition, int] = {}
        """Offsets at which handing out began, of partitions that were assigned or moved since."""
        self._handed_ids: dict[TopicPartition, bytes | None] = {}  # topic ids of the records handed out last

    def close(self) -> None:
        """Stops decoding ahead; nothing is handed out any more."""
        self._ahead.close()

    # ------------------------------------------------------------ handing out

    def settle(self) -> None:
        """Counts the records in hand as done: the user asks for the next ones."""
        self._in_hand = None

    def finish(self) -> None:
        """Counts the records in hand as done: the user has committed them."""
        if self._in_hand is not None:
            self._in_hand.begun = self._in_hand.row
        self.handed.clear()

    def next_batch(self) -> pa.RecordBatch | None:
        """Returns the next records, all of one partition; None while there are none. Raises the typed error of a
        partition that can't be read, once everything before it was handed out."""
        self._in_hand = cursor = self._next_cursor()
        if cursor is None:
            return None
        self._hand(cursor)
        return cursor.take_rows()

    def next_cursor(self) -> Cursor | None:
        """Returns a cursor for taking the next records row by row: `begun` is the row in hand, `row` the next one."""
        self._in_hand = cursor = self._next_cursor()
        if cursor is not None:
            cursor.begun = cursor.row
            self._hand(cursor)
        return cursor

    def _hand(self, cursor: Cursor) -> None:
        tp = cursor.partition
        self.handed.add(tp)
        before = self._handed_ids.get(tp)
        if None not in (before, cursor.topic_id) and before != cursor.topic_id:
            self.begun.pop(tp, None)  # of the topic that was deleted
        self.begun.setdefault(tp, cursor.item.fetch_offset)
        self._handed_ids[tp] = cursor.topic_id

    def put_back(self) -> None:
        """Hands the records that were taken last out again: they did not reach the user."""
        if self._in_hand is not None:
            self._in_hand.row = self._in_hand.begun
        self._in_hand = None

    def _next_cursor(self) -> Cursor | None:
        """Returns the cursor with the next records. Those that an interrupt (or a lack of memory) kept from the user are
        fetched again: nobody has them, though they were taken."""
        try:
            return self._current_or_next()
        except KafkaActorsError:
            raise
        except BaseException:
            self._fetcher.rewind()
            raise

    def _current_or_next(self) -> Cursor | None:
        """Returns the current cursor, one that was parked, or a new one. Records count as consumed only while `_cursor` has
        them."""
        while True:
            cursor = self._cursor
            if cursor is not None and cursor.ended and not cursor.has_rows:
                cursor = self._cursor = None
            if cursor is None and self._parked:
                cursor = self._unpark()
            if cursor is None:
                taken = self._ahead.take()
                if taken is None:
                    return None
                cursor = Cursor(self._fetcher, *taken)
            elif not cursor.current:
                self._cursor = None
                continue
            if cursor.partition in self._paused:
                self._park(cursor)
                self._cursor = None
                continue
            self._cursor = cursor
            if cursor.has_rows or self._advances(cursor):
                return cursor
            self._cursor = None

    def _advances(self, cursor: Cursor) -> bool:
        """Whether the cursor has another batch, which is then counted as handed out."""
        if not cursor.advance():
            return False
        assert cursor.batch is not None  # advance() found one
        self._observer.delivered(cursor.partition, cursor.batch.num_rows)
        return True

    def _park(self, cursor: Cursor) -> None:
        """Keeps the cursor of a paused partition: one that was begun before the others, a new one behind them."""
        cursors = self._parked.setdefault(cursor.partition, deque())
        if cursor.batch is None:
            cursors.append(cursor)
        else:
            cursors.appendleft(cursor)

    def _unpark(self) -> Cursor | None:
        ready = next((tp for tp in self._parked if tp not in self._paused), None)
        if ready is None:
            return None
        cursors = self._parked[ready]
        cursor = cursors.popleft()
        if not cursors:
            del self._parked[ready]
        return cursor

    # ------------------------------------------------------------ pauses and moved positions

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops handing out these partitions until `resume`."""
        self._paused |= frozenset(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends `pause`."""
        self._paused -= frozenset(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return self._paused

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the records of partitions whose position was moved or that were revoked: none is handed out or committed."""
        gone = frozenset(partitions)
        if self._cursor is not None and self._cursor.partition in gone:
            self._cursor = None
        self._ahead.forget(gone)
        for tp in gone:
            self._parked.pop(tp, None)
        if self._in_hand is not None and self._in_hand.partition in gone:
            self._in_hand = None

    def sought(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the records of partitions that the user has moved: offsets committed from now on are of the topic as it is
        now."""
        partitions = list(partitions)
        self.forget(partitions)
        for tp in partitions:
            self._handed_ids.pop(tp, None)
            self.begun.pop(tp, None)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the records of partitions that are not assigned any more, and their pause."""
        gone = frozenset(partitions)
        self.forget(gone)
        self.lost(gone)

    def lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops what is kept of partitions beside their records: those that were taken before are void, and those taken since they were
        assigned anew are not."""
        gone = frozenset(partitions)
        self._paused -= gone
        self.handed -= gone
        for tp in gone:
            self.begun.pop(tp, None)

    # ------------------------------------------------------------ offsets

    def position(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        """Returns the position in front of the next record to hand out, as it is committed; None until it is known. Raises
        `UsageError` if unassigned."""
        cursor = self._cursor
        if cursor is None or cursor.partition != tp:
            cursor = next(iter(self._parked.get(tp, ())), None)
        if cursor is not None and cursor.has_rows and cursor.current:
            return cursor.at(cursor.row)
        known = self._fetcher.where(tp)
        return (
            None
            if known is None
            else OffsetAndMetadata(known.offset, pack("", known.topic_id), known.leader_epoch)
        )

    def topic_id(self, tp: TopicPartition) -> bytes | None:
        """Returns the id of the topic that the user's offsets of a partition are of: that of the records handed out last, else
        of those that are read; None if that isn't known."""
        return self._handed_ids.get(tp) or self._fetcher.topic_id(tp)

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the positions behind everything handed out, of partitions that are assigned and have one."""
        found = {}
        for tp in partitions:
            try:
                position = self.position(tp)
            except UsageError:
                continue
            if position is not None:
                found[tp] = position
        return found

    def safe_positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the positions in front of the records in hand."""
        found = self.positions(partitions)
        cursor = self._in_hand
        if cursor is not None and cursor.partition in found and cursor.has_begun and cursor.current:
            found[cursor.partition] = cursor.at(cursor.begun)
        return found
