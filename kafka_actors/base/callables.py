"""Whether what a user gave can be called as it will be, found out without calling it; and how a user's class is made."""

from __future__ import annotations

import inspect
import logging
import os
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["DroppedResults", "Misfit", "async_method", "constructed", "is_async", "misfit"]


logger = logging.getLogger(__name__)

BATCHES_OF_NOTHING = 5
"""One batch may well have nothing in it that is wanted, and so may the next."""


class Misfit(NamedTuple):
    """What a callable takes, and what is wrong with what it would get."""

    signature: inspect.Signature
    said: str


def is_async(target: Any) -> bool:
    """Whether a call returns what would have to be awaited; of a class, `target` is its method."""
    call = None if inspect.isclass(target) else getattr(type(target), "__call__", None)  # noqa: B004  is it async?
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call)


def async_method(target: type, *names: str) -> str | None:
    """Which of these methods of a class is async, the first one; None where none of those that it has is."""
    return next((name for name in names if is_async(getattr(target, name, None))), None)


def misfit(
    target: Any, positional: Sequence[Any] = (), named: Mapping[str, Any] | None = None
) -> Misfit | None:
    """Why these arguments don't suit; None where they do, or where nobody knows: some that are built in don't tell."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*positional, **(named or {}))
    except TypeError as error:
        return Misfit(signature, str(error))
    return None


class DroppedResults:
    """Warns, once, of a function that has returned None for each batch so far: what is not returned is dropped, and its
    offsets are committed. `name`: what the function is called."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._batches = 0

    def returned(self, something: bool) -> None:
        """After a call with a batch. The first result ends the watch."""
        if self._batches < 0:
            return
        self._batches = -1 if something else self._batches + 1
        if self._batches == BATCHES_OF_NOTHING:
            self.at_end()

    def at_end(self) -> None:
        """There will be no more batches, or enough have been seen."""
        if self._batches > 0:
            logger.warning(
                "%s has returned None for each of its %d batches so far: nothing goes on from there, and the offsets are "
                "committed. Is a return missing?",
                self._name,
                self._batches,
            )
            self._batches = -1


def constructed(target: type, arguments: Mapping[str, Any]) -> Any:
    """An object of a user's class. What the constructor raises comes through, with a note that names class, file and line."""
    try:
        return target(**arguments)
    except BaseException as error:
        error.add_note(f"raised by the constructor of {target.__name__}{_place(target, error)}")
        raise


def _place(target: type, error: BaseException) -> str:
    code = getattr(target.__init__, "__code__", None)  # type: ignore[misc]  # it is only looked at
    if code is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return f" ({os.path.basename(code.co_filename)}, line {lines[-1] if lines else code.co_firstlineno})"
