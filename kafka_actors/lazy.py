"""Packages whose parts are imported when they are first used.

A process of Ray or Spark needs little of what a package offers, and a job starts half a dozen of them.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

PATIENCE_S = 2.0

_lock = threading.RLock()
"""Held while importing. Two threads that import modules which import each other would deadlock; Python notices, and
gives one of them a module that isn't complete."""


def _renew() -> None:
    """In the child of a fork, which has only the thread that forked."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `homes` has the module of each name that it offers, relative to the package or
    from `kafka_actors.` on. Several threads may use such names for the first time at once."""

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # This thread may be importing a module that the lock's holder waits for: then don't wait for ever.
        lock = _lock
        held = lock.acquire(timeout=PATIENCE_S if _importing(sys._getframe(1)) else -1)
        try:
            found = getattr(
                importlib.import_module(home if home.startswith("kafka_actors.") else f".{home}", package),
                name,
            )
        finally:
            if held:
                lock.release()
        setattr(sys.modules[package], name, found)  # from now on the name is found without this function
        return found

    return find


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported on this stack."""
    while frame is not None:
        if frame.f_code.co_name == "_find_and_load" and frame.f_globals["__name__"] == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False
