"""Cuts and joins the chunks of one partition into batches of `batch_rows`, held back for at most `batch_linger_ms`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

__all__ = ["CallBatch", "Rebatcher", "split"]


class CallBatch(msgspec.Struct, frozen=True):
    """What one call of the user's function gets; `next_offset` is where its partition is after it, `leader_epoch` that of
    all its records, `resets` how often its position had been reset before."""

    batch: pa.RecordBatch
    next_offset: int
    leader_epoch: int = -1
    resets: int = 0


class Rebatcher:
    """One partition's batches. Without `rows` chunks pass as they are; without a linger nothing is held back."""

    def __init__(self, rows: int | None, linger_s: float = 0.0) -> None:
        self.rows = rows
        self.linger_s = linger_s if rows is not None else 0.0
        self._held: list[CallBatch] = []
        self._held_rows = 0
        self._due = float("inf")

    def add(self, piece: CallBatch, now: float) -> Iterator[CallBatch]:
        """Yields what is ready once `piece` has come in, in order."""
        if self.rows is None:
            yield piece
            return
        if self._held and _kind(self._held[-1]) != _kind(piece):
            yield self._take()  # other offsets of another log, or read again; or committed with another leader epoch
        for part in _cut(piece, self.rows - self._held_rows, self.rows):
            if not self._held:
                self._due = now + self.linger_s
            self._held.append(part)
            self._held_rows += part.batch.num_rows
            if self._held_rows >= self.rows or self.linger_s == 0:
                yield self._take()

    def due(self, now: float) -> CallBatch | None:
        """What has been held back for long enough."""
        return self._take() if self._held and now >= self._due else None

    @property
    def next_due(self) -> float | None:
        return self._due if self._held else None

    def _take(self) -> CallBatch:
        held, self._held, self._held_rows = self._held, [], 0
        self._due = float("inf")
        last = held[-1]
        if len(held) == 1:
            return last
        filled = [p.batch for p in held if p.batch.num_rows] or [last.batch]
        joined = filled[0] if len(filled) == 1 else pa.concat_batches(filled)
        return msgspec.structs.replace(last, batch=joined)


def _kind(piece: CallBatch) -> tuple[int, int]:
    return piece.resets, piece.leader_epoch


def split(piece: CallBatch, rows: int) -> tuple[CallBatch, CallBatch | None]:
    """The first rows, and the rest if there is any."""
    if rows >= piece.batch.num_rows:
        return piece, None
    head, *_ = _cut(piece, rows, piece.batch.num_rows)
    return head, msgspec.structs.replace(piece, batch=piece.batch.slice(rows))


def _cut(piece: CallBatch, first: int, rest: int) -> Iterator[CallBatch]:
    """Slices of at most `first`, then `rest` rows. Only the last one moves past offsets that have no rows."""
    batch, start, size = piece.batch, 0, first
    while batch.num_rows - start > size:
        after = batch["offset"][start + size - 1].as_py() + 1
        yield CallBatch(batch.slice(start, size), after, piece.leader_epoch, piece.resets)
        start, size = start + size, rest
    yield msgspec.structs.replace(piece, batch=batch.slice(start)) if start else piece
