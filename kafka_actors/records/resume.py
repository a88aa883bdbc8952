"""Where reading can go on behind a batch that can't be read."""

from __future__ import annotations

import struct

from kafka_actors.records.batch import LOG_OVERHEAD, MAGIC_AT, MAX_BASE_OFFSET, MIN_LENGTH_V0

_COUNT_AT = 57


def _header(view: memoryview, pos: int) -> tuple[int, int, int] | None:
    """(base offset, end, magic) of what may be a batch at `pos`; None when it can't be one."""
    if len(view) - pos <= MAGIC_AT:
        return None
    base, length = struct.unpack_from(">qi", view, pos)
    if length < MIN_LENGTH_V0 or not 0 <= base <= MAX_BASE_OFFSET:
        return None
    return base, pos + LOG_OVERHEAD + length, view[pos + MAGIC_AT]


def resume_offset(view: memoryview, start: int, position: int) -> tuple[int, int | None]:
    """(first offset not read, offset behind the bad batch at `start` or None where it can't be known).

    The batch's own last offset is inside what may be corrupt, so the base offset of the batch that follows is
    asked first: to go on too far would lose records without a word.
    """
    bad = _header(view, start)
    if bad is None:
        return position, None
    base, end, magic = bad
    if magic < 2:  # the offset of a message, or of the last message in a compressed one
        return position, base + 1 if base >= position else None
    offset = max(position, base)
    following = _header(view, end)
    if following is not None and following[2] == 2 and following[0] > offset:
        return offset, following[0]
    if magic > 2 or end > len(view) or end < start + _COUNT_AT + 4:
        return offset, None
    (delta,) = struct.unpack_from(">i", view, start + 23)
    (count,) = struct.unpack_from(">i", view, start + _COUNT_AT)
    plausible = 0 <= count <= delta + 1 and base + delta + 1 > offset
    return offset, base + delta + 1 if plausible else None
