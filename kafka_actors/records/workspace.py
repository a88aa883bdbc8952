"""What a decoder works with and the next one can use again: codec states, scratch, the batch table."""

from __future__ import annotations

import threading
from typing import Final

from .batch import new_table
from .compression import Decompressor

TABLE_ROWS: Final = 1024

_KEPT: Final = 2  # a generator that is left unfinished holds one, its successor the other
_local = threading.local()


class Workspace(Decompressor):
    """A Decompressor with the table of the batches at hand. One decoder uses it at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.table = new_table(TABLE_ROWS)


def borrow() -> Workspace:
    """A workspace that nobody else uses until it is given back: making one costs more than decoding a batch."""
    free: list[Workspace] = _local.__dict__.setdefault("free", [])
    return free.pop() if free else Workspace()


def give_back(workspace: Workspace) -> None:
    workspace.scratch.reset()
    free: list[Workspace] = _local.__dict__.setdefault("free", [])
    if len(free) < _KEPT:
        free.append(workspace)
