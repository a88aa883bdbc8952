"""Whether what a user gave can be called as it will be, found out without calling it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Misfit", "async_method", "is_async", "misfit"]


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
