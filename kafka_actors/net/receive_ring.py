"""`ReceiveRing`: memory that responses are received into, and that is used again.

The system zeroes memory that was given back to it before it is used again, which costs as much as receiving into it; and
allocators give back memory that was idle for some milliseconds.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

SMALL = 256 * 1024  # below, an allocator's own reuse is as good
SPACE_BYTES = 256 * 1024 * 1024
"""Addresses of a ring. Only those that were received into have memory behind them."""
IDLE_S = 10.0
STEPS = 4
"""The number of sizes between a power of two and its half that parts are rounded up to, so that they fit into each other's places."""
MARGIN = 33 / 32
"""The factor by which a part of the largest size gets more room than it needs, so that one that is slightly larger fits there, too."""
ALIKE = 0.8
"""The part of that room from which on a part gets it as a whole."""
SHRINKS = 0.6
"""The part of that room below which the largest size has to fall until a new one is chosen."""
RESERVE = 1.4
"""The factor by which more is used than is lent at the same time, because parts of many sizes leave gaps."""
FADES = 0.99
"""The factor by which the largest use and the largest size fall with each response: a large one is forgotten after some hundred others."""

Bytes = npt.NDArray[np.uint8]


def _of_this_process(size: int) -> Bytes:
    return np.empty(size, np.uint8)


class _Lent(NamedTuple):
    """A lent part of the space: its start and end, and its array, which each view keeps alive."""

    start: int
    end: int
    array: weakref.ref[Any]


class ReceiveRing:
    """Lends parts of one space, each from the lowest place where it fits, so that memory is used again for parts of any size; a
    part is free again when no view of it is left. Used by one thread. Spaces come from `allocate`, which may raise `MemoryError`;
    a part that fits nowhere in the space is allocated by itself. `give_back(space, start, end)` gives memory of a space back to the system;
    without it a space is given back only as a whole."""

    def __init__(
        self,
        allocate: Callable[[int], Bytes] = _of_this_process,
        give_back: Callable[[Bytes, int, int], None] | None = None,
    ) -> None:
        self._allocate = allocate
        self._give_back = give_back
        self._space: Bytes | None = None
        self._lent: list[_Lent] = []  # in the order of their places
        self._beside: list[weakref.ref[Any]] = []  # parts that fitted nowhere in the space
        self._touched = 0  # up to here the space has memory behind its addresses
        self._used = 0.0
        self._most = 0.0  # bytes that were lent at the same time lately
        self._largest = 0.0  # size that was lent lately
        self._full = 0  # room for a part of about that size

    def lend(self, size: int, now: float) -> memoryview:
        """Lends memory for `size` bytes, not cleared. `now` is seconds. Raises `MemoryError`."""
        if size < SMALL:
            if self._space is not None and now - self._used > IDLE_S:
                self.trim(now)
            return np.empty(size, np.uint8).data
        self._used = now
        room = self._room(size)
        self._count(room)
        limit = int(self._most * RESERVE)
        space = self._space_for(room, limit)
        start = self._gap(room, min(limit, len(space)))
        if start is None:
            lent = self._allocate(size)
            self._beside.append(weakref.ref(lent))
            return lent.data
        lent = space[start : start + size]
        self._lent = sorted([*self._lent, _Lent(start, start + room, weakref.ref(lent))])
        self._touched = max(self._touched, start + size)
        return lent.data

    def gives_back_in_s(self, now: float) -> float:
        """Returns the seconds after which a small part has memory given back to the system; infinite where there is none."""
        return float("inf") if self._space is None else max(0.0, self._used + IDLE_S - now)

    def trim(self, now: float) -> None:
        """Gives memory back to the system that is not lent. `now` is seconds."""
        self._used = now
        self._lent = [lent for lent in self._lent if lent.array() is not None]
        if not self._lent:
            self._space, self._touched, self._most = None, 0, 0.0
        elif self._space is not None and self._give_back is not None:
            end = 0
            for start, behind in [*((lent.start, lent.end) for lent in self._lent), (self._touched, 0)]:
                if start > end:
                    self._give_back(self._space, end, start)
                end = behind
            self._touched = self._lent[-1].end

    def _room(self, size: int) -> int:
        """Returns the bytes to set aside for a part. The responses of a backlog are nearly alike, whatever their size is: each gets as much
        room as the largest, so that it fits into any other's place."""
        self._largest = max(size, self._largest * FADES)
        if size > self._full or self._largest < SHRINKS * self._full:
            self._full = int(MARGIN * self._largest)
        return self._full if size > ALIKE * self._full else _rounded(size)

    def _count(self, size: int) -> None:
        """Counts the bytes that are lent now, with `size` more."""
        self._lent = [lent for lent in self._lent if lent.array() is not None]
        self._beside = [array for array in self._beside if array() is not None]
        beside = sum(len(view) for array in self._beside if (view := array()) is not None)
        in_use = sum(lent.end - lent.start for lent in self._lent) + beside + size
        self._most = max(in_use, self._most * FADES)

    def _space_for(self, size: int, limit: int) -> Bytes:
        """Returns the space: a new one if nothing of the old is lent and that is too small, or has twice the memory that may be used."""
        space = self._space
        if space is None or (not self._lent and (size > len(space) or self._touched > 2 * limit)):
            self._space = None  # freed before the next one is allocated
            space = self._space = self._allocate(max(SPACE_BYTES, limit))
            self._touched = 0
        return space

    def _gap(self, size: int, limit: int) -> int | None:
        """The lowest start at which `size` bytes fit below the limit; None where there is none."""
        end = 0
        for lent in self._lent:
            if lent.start - end >= size:
                break
            end = lent.end
        return end if end + size <= limit else None


def _rounded(size: int) -> int:
    """Rounds a size up, so that there are few different ones."""
    step = (1 << (size - 1).bit_length()) // (2 * STEPS)
    return -(-size // step) * step
