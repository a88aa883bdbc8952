"""Whether a user's code can be sent to other processes, and which variable of it keeps it from that."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["unpicklable"]

DEEPEST = 4
"""Functions in functions in functions: beyond that, what was found says enough."""

Dumps = Callable[[Any], bytes]


def unpicklable(target: Any, dumps: Dumps) -> str | None:
    """Why `target` can't be pickled, in one line that names the variable, attribute or global; None where it can.

    `dumps` is the engine's: it raises whatever keeps it from pickling.
    """
    error = _failure(target, dumps)
    if error is None:
        return None
    path: list[str] = []
    while len(path) < DEEPEST and (found := _culprit(target, dumps)) is not None:
        name, target, error = found
        path.append(name)
    said = str(error).strip().partition("\n")[0] or type(error).__name__
    return f"{' in '.join(reversed(path))}: {said}" if path else said


def _failure(value: Any, dumps: Dumps) -> Exception | None:
    try:
        dumps(value)
    except Exception as error:  # objects of users fail with anything
        return error
    return None


def _culprit(target: Any, dumps: Dumps) -> tuple[str, Any, Exception] | None:
    for name, value in _parts(target):
        if (error := _failure(value, dumps)) is not None:
            return name, value, error
    return None


def _parts(target: Any) -> Iterator[tuple[str, Any]]:
    """What is pickled with it, by name: variables and globals that a function uses, what a class or an object has."""
    if inspect.ismethod(target):
        yield "the object of the method", target.__self__
        target = target.__func__
    if inspect.isfunction(target):
        used = inspect.getclosurevars(target)
        for name, value in used.nonlocals.items():
            yield f"the variable {name!r}", value
        for name, value in used.globals.items():
            if not inspect.ismodule(value):
                yield f"the global {name!r}", value
        for number, value in enumerate(target.__defaults__ or ()):
            yield f"the default of argument {number}", value
    elif isinstance(target, Mapping):
        for name, value in target.items():
            yield repr(name), value
    elif inspect.isclass(target):
        for name, value in vars(target).items():
            if not name.startswith("__") or inspect.isfunction(value):
                yield f"the attribute {name!r}", value
    else:
        for name, value in getattr(target, "__dict__", {}).items():
            yield f"the attribute {name!r}", value
