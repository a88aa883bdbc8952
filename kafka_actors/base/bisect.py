"""Search for the rows for which a call on a batch fails, by calls on halves of the batch.

After a call on all rows has failed, the rows are split in two. Each part is called in the order of its rows; a part that
fails is split again, down to single rows, so results stay in order and only the rows at fault are given up.
"""

from __future__ import annotations

__all__ = ["Bisection", "PartCalls"]

MAX_FAILED_CALLS = 64
"""Failed calls on parts of a batch after which, if none has succeeded, parts are no longer split: a service is probably
down, so each part that is left is tried once and given up as a whole. Once a call has succeeded there is no such limit."""


class PartCalls:
    """Count of the calls on parts of a batch, for which a call has failed as a whole."""

    def __init__(self) -> None:
        self._failed = 0
        self._succeeded = False

    def succeeded(self) -> None:
        """Counts a call on a part that succeeded."""
        self._succeeded = True

    def failed(self) -> bool:
        """Counts a call that failed. Returns whether it is worth to call smaller parts."""
        self._failed += 1
        return self._failed < MAX_FAILED_CALLS or self._succeeded


class Bisection:
    """State of the search in one batch of `rows` rows, for which a call has just failed.

    The caller calls its function on `part` and reports `succeeded` or `failed`, until `part` is None.
    """

    def __init__(self, rows: int) -> None:
        self._left: list[tuple[int, int]] = [(0, rows)]
        self._calls = PartCalls()
        self.failed()

    @property
    def part(self) -> tuple[int, int] | None:
        """(first row, number of rows) of the part to call the function on next; None when all rows are settled."""
        return self._left[-1] if self._left else None

    def succeeded(self) -> None:
        """Reports that the call on `part` succeeded."""
        self._left.pop()
        self._calls.succeeded()

    def failed(self) -> bool:
        """Reports that the call on `part` failed. Returns whether its rows are given up; otherwise its halves come next."""
        first, rows = self._left.pop()
        worth = self._calls.failed()
        if rows <= 1 or not worth:
            return True
        half = rows // 2
        self._left += [(first + half, rows - half), (first, half)]
        return False
