"""Packages whose parts are imported when they are first used.

A process of Ray or Spark needs little of what a package offers, and a job starts half a dozen of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `homes` has the module, relative to the package, of each name that it offers."""

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f".{home}", package), name)

    return find
