"""Whether what a user gave can be called as it will be, found out without calling it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Misfit", "misfit"]


class Misfit(NamedTuple):
    """What a callable takes, and what is wrong with what it would get."""

    signature: inspect.Signature
    said: str


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
