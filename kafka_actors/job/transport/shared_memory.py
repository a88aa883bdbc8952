"""Memory that a connection actor receives into and a worker of its node reads in place.

Each piece is a file without a name (`memfd_create`, Linux): a descriptor of it is all that the other process needs, it is
gone with the last process that has it, and no limit of /dev/shm applies to it. Through Ray's object store every byte
would be copied once more, and lie in memory twice.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

__all__ = ["MappedMemory", "MemoryRegion", "SharedMemory"]

Bytes = npt.NDArray[np.uint8]


class MemoryRegion(Struct, frozen=True, gc=False):
    """Where the records of a response lie: in which piece of memory, and at which offset those of each partition.
    `lent` is its number, by which it is given back."""

    lent: int
    memory: int
    offsets: list[int]


class _Piece(NamedTuple):
    number: int
    address: int
    size: int


class SharedMemory:
    """The side that receives. `allocate` is for a `net.Ring`. Used by one thread, but for `give_back`."""

    def __init__(self) -> None:
        self._pieces: dict[int, _Piece] = {}
        self._untold: dict[int, int] = {}  # piece -> descriptor that was not handed on yet
        self._gone: deque[int] = deque()
        self._lent: dict[int, Sequence[bytes | memoryview]] = {}
        self._numbers = 0

    def allocate(self, size: int) -> Bytes:
        """Memory that can be mapped elsewhere. Raises `MemoryError`."""
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
        self._untold[number] = descriptor
        forgotten = weakref.finalize(memory, _forget, number, self._pieces, self._untold, self._gone)
        forgotten.atexit = False
        return memory

    def lend(self, views: Sequence[bytes | memoryview]) -> MemoryRegion | None:
        """Where these lie, which they do until `give_back`; None where they are not in this memory."""
        addresses = [pa.py_buffer(view).address if len(view) else 0 for view in views]
        piece = self._piece(max(addresses, default=0))
        if piece is None:
            return None
        number = self._number()
        self._lent[number] = views
        return MemoryRegion(number, piece.number, [at - piece.address if at else 0 for at in addresses])

    def give_back(self, numbers: Iterable[int]) -> None:
        """The other side has done with these; from any thread."""
        for number in numbers:
            self._lent.pop(number, None)

    def news(self) -> tuple[list[tuple[int, int]], list[int], list[int]]:
        """Since it was last asked: pieces that came, with their sizes; the descriptors of these, which the caller has to
        close; and pieces that are gone."""
        untold = dict(self._untold)
        self._untold.clear()
        came = [(number, self._pieces[number].size) for number in untold]
        gone = [self._gone.popleft() for _ in range(len(self._gone))]
        return came, list(untold.values()), gone

    def _piece(self, address: int) -> _Piece | None:
        for piece in tuple(self._pieces.values()):
            if piece.address <= address < piece.address + piece.size:
                return piece
        return None

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers


def _forget(number: int, pieces: dict[int, _Piece], untold: dict[int, int], gone: deque[int]) -> None:
    """In the thread that dropped the last view of a piece. It knows no `SharedMemory`: what that has lent keeps
    pieces, which keep this, so none of them would ever go."""
    del pieces[number]
    if (descriptor := untold.pop(number, None)) is None:
        gone.append(number)
    else:
        os.close(descriptor)


class MappedMemory:
    """The side that reads. Used by one thread, but for `released`."""

    def __init__(self) -> None:
        self._pieces: dict[int, Bytes] = {}
        self._released: deque[int] = deque()

    def learn(self, came: Sequence[tuple[int, int]], descriptors: Sequence[int], gone: Iterable[int]) -> None:
        """What `SharedMemory.news` said over there; closes the descriptors. Raises `OSError`."""
        try:
            for (number, size), descriptor in zip(came, descriptors, strict=True):
                self._pieces[number] = np.frombuffer(
                    mmap.mmap(descriptor, size, prot=mmap.PROT_READ), np.uint8
                )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        for number in gone:
            self._pieces.pop(number, None)

    def views(self, place: MemoryRegion, sizes: Iterable[int]) -> list[memoryview]:
        """The records of each partition, in place. When the last view is dropped, `released` has its number."""
        whole = self._pieces[place.memory][:]
        weakref.finalize(whole, self._released.append, place.lent).atexit = False
        view = whole.data
        return [view[at : at + size] for at, size in zip(place.offsets, sizes, strict=True)]

    def released(self) -> list[int]:
        """What nobody here reads any more, since it was last asked; from any thread, one at a time."""
        return [self._released.popleft() for _ in range(len(self._released))]
