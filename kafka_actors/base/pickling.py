"""Whether a user's code can be sent to other processes, and which variable of it keeps it from that."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
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
    above = [target]
    while len(path) < DEEPEST and (found := _culprit(above, dumps)) is not None:
        name, part, error = found
        path.append(name)
        above.append(part)
    said = str(error).strip().partition("\n")[0] or type(error).__name__
    return f"{' in '.join(reversed(path))}: {said}" if path else said


def _failure(value: Any, dumps: Dumps) -> Exception | None:
    try:
        dumps(value)
    except Exception as error:  # objects of users fail with anything
        return error
    return None


def _culprit(above: list[Any], dumps: Dumps) -> tuple[str, Any, Exception] | None:
    """Of the last one. Functions that call themselves, or each other, are among their own parts."""
    for name, value in _parts(above[-1]):
        if any(value is known for known in above):
            continue
        if (error := _failure(value, dumps)) is not None:
            return name, value, error
    return None


def _parts(target: Any) -> Iterator[tuple[str, Any]]:
    """What is pickled with it, by name: variables and globals that a function uses, what a class or an object has."""
    if inspect.ismethod(target):
        yield "the object of the method", target.__self__
        target = target.__func__
    if inspect.isfunction(target):
        for name, cell in zip(target.__code__.co_freevars, target.__closure__ or (), strict=True):
            with suppress(ValueError):  # it has no value yet
                yield f"the variable {name!r}", cell.cell_contents
        known = target.__globals__
        for name, value in ((n, known[n]) for n in target.__code__.co_names if n in known):
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
