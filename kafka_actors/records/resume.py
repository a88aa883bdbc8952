"""The offset at which reading can go on behind a batch that can't be read.

Going on too far would lose records silently; going on too early only brings the same batch again. So the end that a bad batch claims
counts in three cases only: its own checksum is right, it ends the log, or a sound batch follows it, up to that one's base offset.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from . import legacy
from .batch import (
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_BASE_OFFSET,
    MAX_MILLIS,
    MIN_LENGTH_V0,
    MIN_LENGTH_V2,
    ColumnField,
    Kernel,
    new_table,
)
from .record import MalformedError, read_message, read_record, timestamp_of

_DELTA_AT: Final = 23
_COUNT_AT: Final = 57
_NOTHING: Final = memoryview(b"")


class _Header(NamedTuple):
    """The header of what may be a batch. Its checksum covers neither `base` nor `end`, the position behind it."""

    base: int
    end: int
    magic: int
    claimed: int  # the offset behind it


def resume_offset(
    view: memoryview,
    start: int,
    position: int,
    kernel: Kernel,
    log_end: int | None = None,
    following: memoryview = _NOTHING,
) -> tuple[int, int | None]:
    """Returns the first offset that isn't read, and the offset behind the bad batch at `start`, None where it can't be known.

    All records before `position` are read. `log_end` is the end of the log for this reader (the high watermark, or
    the last stable offset), which no base offset lies behind; `following` are the bytes that follow those of `view`.
    """
    bad = _header(view, start)
    if bad is None:
        return position, None
    claimed = bad.claimed if bad.claimed > position else None
    if claimed is not None and _is_sound(view, start, bad, kernel):
        # If the position lies within the batch, its checksummed number of offsets leads behind it, not far beyond.
        behind = claimed if bad.base <= position or log_end is None or claimed <= log_end else None
    elif (
        claimed is not None and claimed == log_end and bad.end == len(view) and _is_complete(view, start, bad)
    ):
        behind = claimed
    else:
        after, pos = (following, 0) if bad.end == len(view) else (view, bad.end)
        behind = _before_the_next(after, pos, position, claimed, kernel)
        if behind is not None and log_end is not None and behind > log_end:
            behind = None
    if behind is None:
        return position, None
    return max(position, bad.base) if bad.magic == 2 and bad.base < behind else position, behind


def is_cut_off(view: memoryview, start: int, log_end: int | None, following: memoryview = _NOTHING) -> bool:
    """Whether the response ends within or in front of the batch behind the bad one at `start`. Arguments as of
    `resume_offset`."""
    bad = _header(view, start)
    if bad is None or bad.end > len(view):
        return False
    after, pos = (following, 0) if bad.end == len(view) else (view, bad.end)
    if len(after) == pos:
        return log_end is not None and bad.claimed < log_end
    behind = _header(after, pos)
    return len(after) - pos <= MAGIC_AT or (behind is not None and behind.end > len(after))


def _before_the_next(
    view: memoryview, pos: int, position: int, claimed: int | None, kernel: Kernel
) -> int | None:
    """Returns the offset to go on at if a sound batch, the next one, stands at `pos`: at most its base offset; else None."""
    following = _header(view, pos)
    if following is None or following.base <= position or not _is_sound(view, pos, following, kernel):
        return None
    if claimed is not None and claimed <= following.base:
        return claimed
    # The offset of an old message may be that of its last.
    return following.base if following.magic == 2 else None


def _header(view: memoryview, pos: int) -> _Header | None:
    """Returns the header of what may be a batch at `pos`; None if it can't be one."""
    if len(view) - pos <= MAGIC_AT:
        return None
    base, length = struct.unpack_from(">qi", view, pos)
    if length < MIN_LENGTH_V0 or not 0 <= base <= MAX_BASE_OFFSET:
        return None
    magic, claimed = view[pos + MAGIC_AT], base
    if magic == 2 and length >= MIN_LENGTH_V2 and len(view) - pos >= _DELTA_AT + 4:
        claimed = base + struct.unpack_from(">i", view, pos + _DELTA_AT)[0] + 1
    elif magic < 2:  # the offset of a message, or of the last message in a compressed one
        claimed = base + 1
    return _Header(base, pos + LOG_OVERHEAD + length, magic, claimed)


def _is_complete(view: memoryview, start: int, header: _Header) -> bool:
    """Whether the complete batch at `start` counts as many records as offsets, as all do that were not compacted: the
    last one of a log lies in the active segment, which is never."""
    return (
        header.magic != 2
        or struct.unpack_from(">i", view, start + _COUNT_AT)[0] == header.claimed - header.base
    )


def _is_sound(view: memoryview, pos: int, header: _Header, kernel: Kernel) -> bool:
    """Whether a batch with a right checksum and a possible header stands at `pos`."""
    if header.magic < 2:
        return legacy.complete_at(view, pos) and legacy.is_sound(view, pos)
    n, *_ = kernel.scan(view, pos, new_table(1), 1)
    return n == 1


def behind_bad_timestamps(data: memoryview, row: list[int]) -> tuple[int, int, int]:
    """Returns (offset, timestamp in milliseconds, offset behind the last) of records in a row whose timestamps can't be expressed.

    `row` is that of the batch, at the first of them. They are skipped at once, so that a producer whose clock is wrong doesn't
    cost a fetch for each record.
    """
    first, behind = None, row[ColumnField.BASE_OFFSET]
    pos, end = row[ColumnField.POS], row[ColumnField.END]
    for _ in range(row[ColumnField.COUNT]):
        try:
            record = (
                read_record(data, pos, end)
                if row[ColumnField.MAGIC] == 2
                else read_message(data, pos, end, row[ColumnField.MAGIC])
            )
        except MalformedError:
            break  # which is found again from there on
        offset, timestamp = row[ColumnField.BASE_OFFSET] + record.offset_delta, timestamp_of(row, record)
        if first is None:
            first = offset, timestamp
        elif -MAX_MILLIS <= timestamp <= MAX_MILLIS:
            break
        behind, pos = offset + 1, record.end
    else:
        behind = row[ColumnField.LAST_OFFSET] + 1
    assert first is not None  # the kernel has just read it
    return *first, behind
