"""SIGTERM while a job starts. Ray's own handler prints a page and leaves what was begun to itself."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["sigterm_exits"]


@contextmanager
def sigterm_exits() -> Iterator[None]:
    """Within it SIGTERM raises `SystemExit(143)` in the main thread, so that whoever is at work can take it back.

    In any other thread it changes nothing: only the main thread can take a signal.
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
