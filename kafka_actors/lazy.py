"""Lazy imports: packages whose names are imported at their first use.

A process of Ray or Spark needs few of a package's names, and a job starts half a dozen processes, so this shortens the
start.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

LOCK_TIMEOUT_S = 2.0
"""Longest wait for the lock by a thread that is importing a module itself: the lock's holder may wait for that module."""

_lock = threading.RLock()
"""Held during an import. Two threads that import modules which import each other would deadlock; Python detects that, and
gives one of them an incomplete module."""


def _renew() -> None:
    """Replaces the lock in the child of a fork, where a thread that held it does not exist."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package whose names are imported lazily.

    homes: name → module, relative to the package or beginning with `kafka_actors.`; a module of the name is offered itself. Several threads may use names for the
    first time at once.
    """

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        lock = _lock
        held = lock.acquire(timeout=LOCK_TIMEOUT_S if _importing(sys._getframe(1)) else -1)
        try:
            module = importlib.import_module(
                home if home.startswith("kafka_actors.") else f".{home}", package
            )
            found = module if home == name else getattr(module, name)
        finally:
            if held:
                lock.release()
        setattr(sys.modules[package], name, found)  # later uses find the name without this function
        return found

    return find


def _importing(frame: FrameType | None) -> bool:
    """Whether the stack of this frame contains an import."""
    while frame is not None:
        if frame.f_code.co_name == "_find_and_load" and frame.f_globals["__name__"] == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False
