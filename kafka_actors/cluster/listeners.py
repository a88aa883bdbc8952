"""`call_each`: telling those who listen, whatever one of them raises."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVarTuple

log = logging.getLogger(__name__)

A = TypeVarTuple("A")


def call_each(callbacks: Iterable[Callable[[*A], object]], *arguments: *A) -> None:
    """Calls each of them. What one raises is logged: the others, and whoever tells them, go on."""
    for callback in list(callbacks):
        try:
            callback(*arguments)
        except Exception:  # a user's code, as a rule
            log.exception("the callback %r raised", callback)
