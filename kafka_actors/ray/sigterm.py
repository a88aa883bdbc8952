"""SIGTERM while a job starts, and while a program waits for its end.

Ray's own handler prints a page, and leaves the actors running.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["StopOnSigterm", "sigterm_exits"]


@contextmanager
def sigterm_exits() -> Iterator[None]:
    """Within it SIGTERM raises `SystemExit(143)` in the main thread, so that a start under way is taken back.

    Does nothing in other threads: only the main thread handles signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


class StopOnSigterm:
    """Handler of SIGTERM for the time of a `wait`, in place of Ray's own.

    The first signal sets `received`, a second one ends the process. `possible`: this is the main thread, the only one that
    can install a handler.
    """

    def __init__(self) -> None:
        self.received = False
        self.possible = False
        self._before: Any = None

    def __enter__(self) -> StopOnSigterm:
        self.possible = threading.current_thread() is threading.main_thread()
        if self.possible:
            self._before = signal.signal(signal.SIGTERM, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        self.received = True

    def __exit__(self, *_: object) -> None:
        if self.possible:
            signal.signal(signal.SIGTERM, self._before)
