"""Shared memory that a connection actor receives into and a worker of its node reads in place.

Each piece is an anonymous file (`memfd_create`, Linux). Another process needs only a descriptor of it, it vanishes with
the last process that has one, and the limit of /dev/shm does not apply. Through Ray's object store every byte would be
copied once more, and lie in memory twice.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

__all__ = ["MappedMemory", "MemoryRegion", "SharedMemory"]

Bytes = npt.NDArray[np.uint8]


class MemoryRegion(Struct, frozen=True, gc=False):
    """Place of a response's records: the number of the piece of memory, and the offset of each partition's bytes in it.
    `number` names the region when it is released."""

    number: int
    memory: int
    offsets: list[int]


class _Piece(NamedTuple):
    number: int
    address: int
    size: int


class SharedMemory:
    """Memory of the receiving side. `allocate` and `give_back` serve a `ReceiveRing`. For one thread, except `release`."""

    def __init__(self) -> None:
        self._pieces: dict[int, _Piece] = {}
        self._unsent: dict[int, int] = {}  # piece → descriptor that was not sent yet
        self._removed: deque[int] = deque()
        self._shared: dict[int, Sequence[bytes | memoryview]] = {}
        self._numbers = 0

    def allocate(self, size: int) -> Bytes:
        """Makes a piece of memory that another process can map. Raises `MemoryError`."""
        try:
            descriptor = os.memfd_create("kafka-actors", os.MFD_CLOEXEC)
            try:
                os.ftruncate(descriptor, size)
                memory = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise MemoryError(f"{size} bytes of shared memory: {error.strerror}") from error
        number = self._number()
        self._pieces[number] = _Piece(number, memory.ctypes.data, size)
        self._unsent[number] = descriptor
        forgotten = weakref.finalize(memory, _forget, number, self._pieces, self._unsent, self._removed)
        forgotten.atexit = False
        return memory

    @staticmethod
    def give_back(memory: Bytes, start: int, end: int) -> None:
        """Gives the whole pages between two places of a piece back to the system."""
        first, behind = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if first < behind:
            mapping: Any = memory.base  # the buffer that `allocate` made the array of
            with suppress(OSError):  # of pages that are locked, or of a sandbox's system: they stay
                mapping.obj.madvise(mmap.MADV_REMOVE, first, behind - first)

    def share(self, views: Sequence[bytes | memoryview]) -> MemoryRegion | None:
        """Keeps the views until `release`. Returns where they lie; None if that is not in this memory."""
        addresses = [pa.py_buffer(view).address if len(view) else 0 for view in views]
        piece = self._piece(max(addresses, default=0))
        if piece is None:
            return None
        number = self._number()
        self._shared[number] = views
        return MemoryRegion(number, piece.number, [at - piece.address if at else 0 for at in addresses])

    def release(self, numbers: Iterable[int]) -> None:
        """Drops the views of regions that the other side no longer reads. For any thread."""
        for number in numbers:
            self._shared.pop(number, None)

    def changes(self) -> tuple[list[tuple[int, int]], list[int], list[int]]:
        """Returns the changes since the last call: new pieces with their sizes; a descriptor for each, which the caller has to
        close; and the numbers of removed pieces."""
        unsent = dict(self._unsent)
        self._unsent.clear()
        added = [(number, self._pieces[number].size) for number in unsent]
        removed = [self._removed.popleft() for _ in range(len(self._removed))]
        return added, list(unsent.values()), removed

    def _piece(self, address: int) -> _Piece | None:
        for piece in tuple(self._pieces.values()):
            if piece.address <= address < piece.address + piece.size:
                return piece
        return None

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers


def _forget(number: int, pieces: dict[int, _Piece], unsent: dict[int, int], removed: deque[int]) -> None:
    """Runs in the thread that dropped the last view of a piece. Has no reference to `SharedMemory`, whose regions keep
    pieces alive, which keep this finalizer: then no piece would ever be freed."""
    del pieces[number]
    if (descriptor := unsent.pop(number, None)) is None:
        removed.append(number)
    else:
        os.close(descriptor)


class MappedMemory:
    """Memory of the reading side. For one thread, except `released`."""

    def __init__(self) -> None:
        self._pieces: dict[int, Bytes] = {}
        self._released: deque[int] = deque()

    def update(
        self, added: Sequence[tuple[int, int]], descriptors: Sequence[int], removed: Iterable[int]
    ) -> None:
        """Maps new pieces and drops removed ones, as `SharedMemory.changes` returned them. Closes the descriptors. Raises
        `OSError`."""
        try:
            for (number, size), descriptor in zip(added, descriptors, strict=True):
                self._pieces[number] = np.frombuffer(
                    mmap.mmap(descriptor, size, prot=mmap.PROT_READ), np.uint8
                )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        for number in removed:
            self._pieces.pop(number, None)

    def views(self, region: MemoryRegion, sizes: Iterable[int]) -> list[memoryview]:
        """Returns the bytes of each partition, in place. When the last view is dropped, `released` has the region's number."""
        piece = self._pieces[region.memory][:]
        weakref.finalize(piece, self._released.append, region.number).atexit = False
        view = piece.data
        return [view[at : at + size] for at, size in zip(region.offsets, sizes, strict=True)]

    def released(self) -> list[int]:
        """Returns the regions that this process stopped reading since the last call. For any thread, one at a time."""
        return [self._released.popleft() for _ in range(len(self._released))]
