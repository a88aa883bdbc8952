"""Arguments of `Pipeline`'s methods, checked at once, and the names of stages; a wrong one is a `ConfigError` with the stage's name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from kafka_actors.base.callables import async_method, is_async, misfit
from kafka_actors.errors import ConfigError, kind_of

from .expressions import readable
from .rows import KAFKA


def checked_function(stage: str, target: Any, arguments: Any, *, method: str = "__call__") -> dict[str, Any]:
    """Checks a user's function or class, whose `method` is called with one argument, and returns the constructor's arguments.
    Raises `ConfigError`."""
    of_class = inspect.isclass(target)
    if arguments is not None and not isinstance(arguments, Mapping):
        raise ConfigError(stage, f"fn_constructor_kwargs is {arguments!r}: accepts a dict")
    if arguments and not of_class:
        raise ConfigError(stage, "fn_constructor_kwargs are for a class, and this is a function")
    if not callable(target) or (of_class and not callable(getattr(target, method, None))):
        what = f"the class {target.__name__}, which has no {method}" if of_class else repr(target)
        raise ConfigError(
            stage, f"is given {what}: accepts a function, or a class with {method}(self, batch)"
        )
    if of_class and method == "__call__" and not any("__call__" in vars(base) for base in target.__mro__):
        raise ConfigError(stage, f"is given the class {target.__name__}, which has no __call__(self, batch)")
    call = getattr(target, method) if of_class else target
    if is_async(call):
        raise ConfigError(stage, "is async: a stage is called in turn; make it a plain function")
    if of_class and (other := async_method(target, "flush", "close")) is not None:
        raise ConfigError(
            stage, f"is given the class {target.__name__}, whose {other} is async: make it a plain method"
        )
    given = dict(arguments or {})
    if of_class:
        _check_call(stage, target, (), given)
    _check_call(stage, call, (None, None) if of_class else (None,), {})
    return given


def _check_call(stage: str, target: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    if (wrong := misfit(target, positional, named)) is not None:
        raise ConfigError(stage, f"takes {wrong.signature}: {wrong.reason}")


def checked_items(stage: str, items: Mapping[str, Any], *, names: bool) -> tuple[tuple[str, Any], ...]:
    """Checks expressions by name; with `names` an item may also be the name of a column. Raises `ConfigError`."""
    for name, given in items.items():
        if not isinstance(name, str) or not name or name == KAFKA:
            raise ConfigError(stage, f"{name!r} can't be a column's name")
        if isinstance(given, pc.Expression) or (names and isinstance(given, str)):
            continue
        accepts = "a column's name or an expression" if names else "an expression"
        raise ConfigError(
            stage,
            f"{name} is {given!r}, {kind_of(given)}: accepts {accepts}; a constant is pc.scalar({given!r})",
        )
    if not items:
        raise ConfigError(stage, "names no column")
    return tuple(items.items())


_LONGEST = 40


def named(given: Any, otherwise: str) -> str:
    """The user's name for a stage, or `otherwise` on one line and shortened. Raises `ConfigError`."""
    if given is None:
        line = " ".join(otherwise.split())
        return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 2]}…)"
    if not isinstance(given, str) or not given.strip():
        raise ConfigError("name", f"is {given!r}: accepts a name that is not empty")
    return given


def called(target: Any) -> str:
    """The name of a function or class; for an object that of its class."""
    name = getattr(target, "__name__", None)
    return type(target).__name__ if name is None else str(name).replace("<lambda>", "lambda")


def bare(expression: Any) -> str:
    """The text of an expression without parentheses around all of it."""
    text = readable(str(expression))
    return text[1:-1] if text.startswith("(") and text.endswith(")") and _closes_last(text) else text


def _closes_last(text: str) -> bool:
    depth = 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return at == len(text) - 1
    return False
