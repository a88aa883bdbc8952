"""The memory that responses are received into, used again and again.

Memory that went back to the system has to be zeroed by it before it is used again, which costs as much as receiving
into it; and allocators give back what lay idle for some milliseconds.
"""

from __future__ import annotations

SMALL = 256 * 1024  # below, an allocator's own reuse is as good
KEPT_BYTES = 64 * 1024 * 1024
IDLE_S = 10.0


class Ring:
    """Lends buffers; one is free again when nothing refers to its memory any more. Used by one thread."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []  # the one lent last is last
        self._used = 0.0

    def lend(self, size: int, now: float) -> memoryview:
        """Memory for `size` bytes. Raises `MemoryError`."""
        if size < SMALL:
            if now - self._used > IDLE_S:
                self._buffers.clear()
            return memoryview(bytearray(size))
        self._used = now
        return memoryview(self._take(size))[:size]

    def _take(self, size: int) -> bytearray:
        fitting = (at for at, b in enumerate(self._buffers) if size <= len(b) <= 4 * size and _is_free(b))
        at = next(fitting, None)
        buffer = self._buffers.pop(at) if at is not None else bytearray(size + size // 8)
        self._buffers.append(buffer)
        self._trim()
        return buffer

    def _trim(self) -> None:
        """Lets go of those that were lent longest ago. One that is in use still lives on until its user is done."""
        kept = sum(map(len, self._buffers))
        while kept > KEPT_BYTES and len(self._buffers) > 1:
            kept -= len(self._buffers.pop(0))


def _is_free(buffer: bytearray) -> bool:
    """A bytearray changes its length only while no view of it exists."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
