"""Batches for calls of the user's function: chunks of one partition, cut and joined to `batch_rows` rows.

Theory of operation. Chunks come in the order of their offsets. Without `batch_rows` each is a batch. With it, chunks are cut and
joined to batches of exactly that many rows; what is left over waits for more records for up to `batch_linger_ms`, or is passed
on at once without a linger. Records from before and after a reset, or under different leader epochs, never share a batch: their
offsets are of different logs, or are committed with different epochs.

A batch moves the position as far as its last piece does. A cut piece moves it to behind its own last record,
and only the end of a chunk moves it over offsets without records (transactions' ends, compacted records), so
that none of these is committed before the records in front of it are processed. The linger begins with the
first row that is held, and holds for the batch as a whole: no record waits longer than that.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from kafka_actors.base.batches import numbers, rows_where
from kafka_actors.group.done_offsets import DoneOffsets

__all__ = ["CallBatch", "Rebatcher", "split", "without"]


class CallBatch(msgspec.Struct, frozen=True):
    """Batch of one call. `next_offset`: the partition's position after it. `leader_epoch`: of all its records. `resets`: how
    often the partition's position had been reset before."""

    batch: pa.RecordBatch
    next_offset: int
    leader_epoch: int = -1
    resets: int = 0


class Rebatcher:
    """Makes one partition's batches. `rows`: None passes chunks as they are. `linger_s`: 0 holds nothing back."""

    def __init__(self, rows: int | None, linger_s: float = 0.0) -> None:
        self.rows = rows
        self.linger_s = linger_s if rows is not None else 0.0
        self._held: list[CallBatch] = []
        self._held_rows = 0
        self._due = float("inf")

    def add(self, piece: CallBatch, now: float) -> Iterator[CallBatch]:
        """Takes the next piece. Yields the batches that are ready, in order."""
        if self.rows is None:
            yield piece
            return
        if self._held and _kind(self._held[-1]) != _kind(piece):
            yield self._take()  # after a reset, or with another leader epoch
        for part in _cut(piece, self.rows - self._held_rows, self.rows):
            if not self._held:
                self._due = now + self.linger_s
            self._held.append(part)
            self._held_rows += part.batch.num_rows
            if self._held_rows >= self.rows or self.linger_s == 0:
                yield self._take()

    def due(self, now: float) -> CallBatch | None:
        """Returns the batch whose linger is over, if there is one."""
        return self._take() if self._held and now >= self._due else None

    @property
    def next_due(self) -> float | None:
        return self._due if self._held else None

    def _take(self) -> CallBatch:
        """Joins what is held to one batch, and holds nothing more. It moves the position as far as its last piece does."""
        held, self._held, self._held_rows = self._held, [], 0
        self._due = float("inf")
        last = held[-1]
        if len(held) == 1:
            return last
        filled = [p.batch for p in held if p.batch.num_rows] or [last.batch]
        joined = filled[0] if len(filled) == 1 else pa.concat_batches(filled)
        return msgspec.structs.replace(last, batch=joined)


def without(batch: pa.RecordBatch, done: DoneOffsets, leader_epoch: int) -> pa.RecordBatch:
    """Returns a batch of this leader epoch without records that an earlier holder of the partition had done."""
    skipped = done.has(numbers(batch["offset"]), leader_epoch)
    return rows_where(batch, ~skipped) if skipped.any() else batch


def _kind(piece: CallBatch) -> tuple[int, int]:
    """Pieces of one kind may share a batch."""
    return piece.resets, piece.leader_epoch


def split(piece: CallBatch, rows: int) -> tuple[CallBatch, CallBatch | None]:
    """Splits a batch into its first rows and the rest, None if there is none."""
    if rows >= piece.batch.num_rows:
        return piece, None
    head, *_ = _cut(piece, rows, piece.batch.num_rows)
    return head, msgspec.structs.replace(piece, batch=piece.batch.slice(rows))


def _cut(piece: CallBatch, first: int, rest: int) -> Iterator[CallBatch]:
    """Yields slices of at most `first`, then `rest` rows. Only the last one moves past offsets without records."""
    batch, start, size = piece.batch, 0, first
    while batch.num_rows - start > size:
        after = batch["offset"][start + size - 1].as_py() + 1
        yield CallBatch(batch.slice(start, size), after, piece.leader_epoch, piece.resets)
        start, size = start + size, rest
    yield msgspec.structs.replace(piece, batch=batch.slice(start)) if start else piece
