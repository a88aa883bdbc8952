"""`Cursor`: one partition's fetched bytes on their way to the user, chunk by chunk, row by row."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kafka_actors.errors import UsageError
from kafka_actors.fetch import FetchedBytes, Fetcher
from kafka_actors.group.commit_metadata import pack
from kafka_actors.records import Chunk
from kafka_actors.types import OffsetAndMetadata, TopicPartition


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
        "item",
        "row",
        "topic_id",
    )

    def __init__(self, fetcher: Fetcher, item: FetchedBytes, unpacked: Iterator[Chunk]) -> None:
        self._fetcher = fetcher
        self._chunks: Iterator[Chunk] = fetcher.decode(item, unpacked)
        self.item = item
        self.topic_id = fetcher.topic_id(item.partition)  # from before anything of it is known to be valid
        self.batch: pa.RecordBatch | None = None
        self.row = 0  # of the next record to hand out
        self.end = item.fetch_offset  # behind the present chunk: where the fetcher's position is
        self.begun = 0  # the first of the rows in hand
        self._start = self.end  # in front of it
        self._epoch = -1  # leader epoch of all its records
        self._before = -1  # and of those before it

    @property
    def partition(self) -> TopicPartition:
        return self.item.partition

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
            try:
                self._before = self._fetcher.position_epoch(self.partition)
            except UsageError:  # it was taken away this very moment
                break
            # Before it counts as consumed: an interrupt in between must not lose it.
            self.batch, self.row, self.begun, self._epoch = chunk.batch, 0, 0, chunk.leader_epoch
            self._start, self.end = self.end, chunk.next_offset
            if not self._fetcher.consumed(self.item, chunk.next_offset):
                break
            if chunk.batch.num_rows:
                return True
        self.batch = None
        self._fetcher.consumed(self.item)
        return False
