"""What stages are called in errors, in `repr` and in `explain`."""

from __future__ import annotations

from typing import Any

from kafka_actors.errors import ConfigError

from .expressions import readable

_LONGEST = 40


def named(given: Any, otherwise: str) -> str:
    """The user's name for a stage, or ours, on one line and not too long."""
    if given is None:
        line = " ".join(otherwise.split())
        return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 2]}…)"
    if not isinstance(given, str) or not given.strip():
        raise ConfigError("name", f"is {given!r}: accepts a name that is not empty")
    return given


def called(target: Any) -> str:
    """A function's or class's name; of an object its class's."""
    name = getattr(target, "__name__", None)
    return type(target).__name__ if name is None else str(name).replace("<lambda>", "lambda")


def bare(expression: Any) -> str:
    """An expression's text without the parentheses around all of it."""
    text = readable(str(expression))
    return text[1:-1] if text.startswith("(") and text.endswith(")") and _closes_last(text) else text


def _closes_last(text: str) -> bool:
    depth = 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return at == len(text) - 1
    return False
