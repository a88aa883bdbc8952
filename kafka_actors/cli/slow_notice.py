"""`late`: a line about what takes more than two seconds, so that no screen stays blank for longer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["late"]

BLANK_S = 1.0
"""The command itself takes most of a second to begin."""
LOOK_S = 0.5


@contextmanager
def late(say: Callable[[str], object], text: Callable[[], str] | str) -> Iterator[Callable[[], None]]:
    """Around what may take long: after a second says, on a thread of its own, what is waited for, and again when that
    changes. Gives a function that ends it before the block does."""
    over = threading.Event()

    def tell() -> None:
        told = ""
        wait_s = BLANK_S
        while not over.wait(wait_s):
            now = text if isinstance(text, str) else text()
            if now != told:
                say(now)
            told, wait_s = now, LOOK_S

    def end() -> None:
        over.set()
        if thread is not threading.current_thread():
            thread.join()

    thread = threading.Thread(target=tell, name="kafka-actors-late", daemon=True)
    thread.start()
    try:
        yield end
    finally:
        end()
