"""Which rows of a batch a call fails for: found by calls on its halves, and on theirs."""

from __future__ import annotations

__all__ = ["Bisection"]

MAX_FAILED_CALLS = 64
"""So many calls on parts of a batch may fail while none succeeds: a service is down then, and the parts that are left
are tried once, and go as a whole. Where some do succeed, only the rows at fault go, however many they are."""


class Bisection:
    """After a call on all rows of a batch has failed. Parts come in the order of their rows, each settled before the next:
    so what comes out is in order, too."""

    def __init__(self, rows: int) -> None:
        self._left: list[tuple[int, int]] = [(0, rows)]
        self._failed = 0
        self._succeeded = False
        self.failed()

    @property
    def part(self) -> tuple[int, int] | None:
        """(first row, rows) of the next part to call the function on; None: all are settled."""
        return self._left[-1] if self._left else None

    def succeeded(self) -> None:
        """The call on that part has."""
        self._left.pop()
        self._succeeded = True

    def failed(self) -> bool:
        """The call on that part has: whether it is to be given up, since it isn't tried in halves."""
        first, rows = self._left.pop()
        self._failed += 1
        if rows <= 1 or (self._failed >= MAX_FAILED_CALLS and not self._succeeded):
            return True
        half = rows // 2
        self._left += [(first + half, rows - half), (first, half)]
        return False
