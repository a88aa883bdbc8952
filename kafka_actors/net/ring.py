"""The memory that responses are received into, used again and again.

Memory that went back to the system has to be zeroed by it before it is used again, which costs as much as receiving
into it; and allocators give back what lay idle for some milliseconds.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

SMALL = 256 * 1024  # below, an allocator's own reuse is as good
KEPT_BYTES = 64 * 1024 * 1024
IDLE_S = 10.0
SLACK = 8
"""An eighth more is made than is asked for: the next response may be a little larger."""
FITS = 2
"""So many times larger may a piece be than what is lent of it."""
FADES = 0.99
"""A large response is forgotten after some hundred others."""

Bytes = npt.NDArray[np.uint8]


def _of_this_process(size: int) -> Bytes:
    return np.empty(size, np.uint8)


class Ring:
    """Lends memory; it is free again when no view of it is left. Used by one thread. What is large comes from `allocate`,
    which may raise `MemoryError`."""

    def __init__(self, allocate: Callable[[int], Bytes] = _of_this_process) -> None:
        self._allocate = allocate
        # The memory, and the array that was lent of it: each view keeps that alive. The one lent last is last.
        self._kept: list[tuple[Bytes, weakref.ref[Any]]] = []
        self._used = 0.0
        self._most = 0.0

    def lend(self, size: int, now: float) -> memoryview:
        """Memory for `size` bytes, whatever is in it. Raises `MemoryError`."""
        if size < SMALL:
            if now - self._used > IDLE_S:
                self._kept.clear()
                self._most = 0.0
            return np.empty(size, np.uint8).data
        self._used = now
        memory = self._free(size)
        if memory is None:
            room = size + size // SLACK
            self._trim(size, room)
            memory = self._allocate(room)
        lent = memory[:size]
        self._kept.append((memory, weakref.ref(lent)))
        self._trim(0, 0)
        return lent.data

    def _free(self, size: int) -> Bytes | None:
        """The one that fits best. What is much too large would be lent whole, and the borrower counts what it asked for."""
        fitting = [
            (len(memory), at)
            for at, (memory, lent) in enumerate(self._kept)
            if lent() is None and size <= len(memory) <= FITS * size
        ]
        return self._kept.pop(min(fitting)[1])[0] if fitting else None

    def _trim(self, size: int, room: int) -> None:
        """Lets go of what was lent longest ago, until with `room` for `size` more bytes no more is kept than was lent at
        the same time lately. What is in use still lives on until its user is done."""
        in_use = sum(len(view) for _, lent in self._kept if (view := lent()) is not None)
        self._most = max(in_use + size, self._most * FADES)
        kept = room + sum(len(memory) for memory, _ in self._kept)
        for entry in [e for e in self._kept if e[1]() is None]:
            if kept <= self._most * (1 + 1 / SLACK):
                break
            kept -= len(entry[0])
            self._kept = [e for e in self._kept if e is not entry]
        while kept > KEPT_BYTES and len(self._kept) > 1:
            kept -= len(self._kept.pop(0)[0])
