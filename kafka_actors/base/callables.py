"""Checks of functions and classes of users: their signature, whether they are async, and whether they can be pickled. Nothing
is called for that. Also the construction of a user's class."""

from __future__ import annotations

import inspect
import logging
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

__all__ = [
    "DroppedResults",
    "Misfit",
    "async_method",
    "constructed",
    "described",
    "error_text",
    "is_async",
    "is_async_generator",
    "is_generator",
    "misfit",
    "type_and_text",
    "unpicklable",
]

logger = logging.getLogger(__name__)

BATCHES_OF_NOTHING = 5
"""Batches without a result after which a warning is due: a few batches may well contain nothing of interest."""

MOST_NESTED = 4
"""Levels of functions within functions that an error names."""

Dumps = Callable[[Any], bytes]


class Misfit(NamedTuple):
    """Signature of a callable, and Python's text about why the arguments don't fit it."""

    signature: inspect.Signature
    reason: str


def is_async(target: Any) -> bool:
    """Whether a call returns an awaitable. For a class, `target` is one of its methods."""
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(_call_of(target))


def is_generator(target: Any) -> bool:
    """Whether a call returns a generator, plain or async, and so runs nothing by itself. For a class, `target` is one of its methods."""
    return (
        inspect.isgeneratorfunction(target)
        or inspect.isgeneratorfunction(_call_of(target))
        or is_async_generator(target)
    )


def is_async_generator(target: Any) -> bool:
    """Whether a call returns an async generator. For a class, `target` is one of its methods."""
    return inspect.isasyncgenfunction(target) or inspect.isasyncgenfunction(_call_of(target))


def _call_of(target: Any) -> Any:
    return None if inspect.isclass(target) else getattr(type(target), "__call__", None)  # noqa: B004  is it async?


def async_method(target: type, *names: str) -> str | None:
    """The first of the named methods of a class that is async; None if there is none."""
    return next((name for name in names if is_async(getattr(target, name, None))), None)


def misfit(
    target: Any, positional: Sequence[Any] = (), named: Mapping[str, Any] | None = None
) -> Misfit | None:
    """Explains why a call with these arguments would fail; None if it fits, or if the signature is unknown, as of some built-ins."""
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
    """Warns once about a function that has returned None for each batch so far: nothing is passed on, yet the offsets are
    committed. `name`: the function's name in the warning."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._batches = 0

    def returned(self, something: bool) -> None:
        """Counts a call with a batch; `something`: whether it returned a result. After a first result nothing is warned about."""
        if self._batches < 0:
            return
        self._batches = -1 if something else self._batches + 1
        if self._batches == BATCHES_OF_NOTHING:
            self.at_end()

    def at_end(self) -> None:
        """Warns if no result has come so far: there are no more batches, or enough were counted."""
        if self._batches > 0:
            logger.warning(
                "%s has returned None for each of its %d batches so far: nothing is passed on, and the offsets are "
                "committed. Is a return missing?",
                self._name,
                self._batches,
            )
            self._batches = -1


def constructed(target: type, arguments: Mapping[str, Any]) -> Any:
    """Creates an object of a user's class. Exceptions of the constructor pass, with a note that names class, file and line; none
    for a class of the library, which holds users' classes and names those itself."""
    try:
        return target(**arguments)
    except BaseException as error:
        if not target.__module__.startswith("kafka_actors."):
            error.add_note(f"raised by the constructor of {target.__name__}{_place(target, error)}")
        raise


def _place(target: type, error: BaseException) -> str:
    code = getattr(target.__init__, "__code__", None)  # type: ignore[misc]  # only read
    if code is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return f" ({os.path.basename(code.co_filename)}, line {lines[-1] if lines else code.co_firstlineno})"


def error_text(error: BaseException) -> str:
    """Returns the text of an error; empty where its class makes none, since a user's `__str__` may raise, too."""
    try:
        return str(error)
    except Exception:
        return ""


def type_and_text(error: BaseException) -> str:
    """Returns an error as a traceback's last line has it, `ValueError: no good`; of one without a text the type alone."""
    text = error_text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def described(error: BaseException) -> str:
    """An error of users' code in one line: its type and text, and by which constructor or sink it was raised, if a note says."""
    said = type_and_text(error)
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith("raised ")]
    return f"{said} ({', '.join(notes)})" if notes else said


# ---------------------------------------------------------------- whether it can be sent to other processes


def unpicklable(target: Any, dumps: Dumps) -> str | None:
    """Explains in one line why `target` can't be pickled, with the variable, attribute or global at fault; None if it can be.

    `dumps` is the engine's pickler; any exception of it counts as a failure.
    """
    error = _failure(target, dumps)
    if error is None:
        return None
    path: list[str] = []
    above = [target]
    while len(path) < MOST_NESTED and (found := _culprit(above, dumps)) is not None:
        name, part, error = found
        path.append(name)
        above.append(part)
    message = error_text(error).strip().partition("\n")[0] or type(error).__name__
    return f"{' in '.join(reversed(path))}: {message}" if path else message


def _failure(value: Any, dumps: Dumps) -> Exception | None:
    try:
        dumps(value)
    except Exception as error:  # objects of users may raise anything
        return error
    return None


def _culprit(above: list[Any], dumps: Dumps) -> tuple[str, Any, Exception] | None:
    """The part of the last object that can't be pickled. Recursive functions contain themselves, so `above` is skipped."""
    for name, value in _parts(above[-1]):
        if any(value is known for known in above):
            continue
        if (error := _failure(value, dumps)) is not None:
            return name, value, error
    return None


def _parts(target: Any) -> Iterator[tuple[str, Any]]:
    """Yields what is pickled with an object, by name: variables and globals that a function uses, attributes of classes and objects."""
    if inspect.ismethod(target):
        yield "the object of the method", target.__self__
        target = target.__func__
    if inspect.isfunction(target):
        for name, cell in zip(target.__code__.co_freevars, target.__closure__ or (), strict=True):
            with suppress(ValueError):  # the variable has no value yet
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
