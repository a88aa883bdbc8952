"""Time limits that users give: `timeout=` in seconds where futures have it, `timeout_ms=` in milliseconds elsewhere.

Both are given by name only, so that no number is taken for the other unit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

from kafka_actors.errors import UsageError, kind_of

__all__ = ["checked_amount", "timeouts_by_name", "wait_of"]

T = TypeVar("T")

_UNITS = {"timeout": "seconds", "timeout_ms": "milliseconds"}
_OTHER = {"timeout": "timeout_ms", "timeout_ms": "timeout"}
_FROM_OTHER = {"timeout": 0.001, "timeout_ms": 1000}

_MOST = {"timeout": 1e9, "timeout_ms": 1e12}
"""Nothing waits for longer, so that threads can: `math.inf`, or Java's largest long, is as good as this."""


def checked_amount(argument: str, value: Any) -> float:
    """The value of `timeout` or `timeout_ms`. Raises `UsageError` for what is no amount of time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise UsageError(f"{argument} is {value!r}, {kind_of(value)}: accepts {_UNITS[argument]}, at least 0")
    return min(value, _MOST[argument])


def wait_of(timeout: Any) -> float | None:
    """The seconds of a call that waits without end where none are given."""
    return None if timeout is None else checked_amount("timeout", timeout)


def timeouts_by_name(cls: type[T]) -> type[T]:
    """A class decorator: public methods whose time limit is keyword-only raise a `TypeError` that says what to write,
    where the limit is given by position or under the name of the other unit."""
    for name, call in list(vars(cls).items()):
        if name.startswith("_") or not inspect.isfunction(call):
            continue
        parameters = inspect.signature(call).parameters
        for argument in _UNITS:
            if argument in parameters and parameters[argument].kind is inspect.Parameter.KEYWORD_ONLY:
                setattr(cls, name, _checked(call, argument))
    return cls


def _checked(call: Callable[..., Any], argument: str) -> Callable[..., Any]:
    most, other = call.__code__.co_argcount, _OTHER[argument]

    @wraps(call)
    def checked(*args: Any, **named: Any) -> Any:
        if len(args) > most or other in named:
            raise _refusal(call.__name__, argument, args, most, named)
        return call(*args, **named)

    @wraps(call)
    async def checked_async(*args: Any, **named: Any) -> Any:
        if len(args) > most or other in named:
            raise _refusal(call.__name__, argument, args, most, named)
        return await call(*args, **named)

    return checked_async if inspect.iscoroutinefunction(call) else checked


def _refusal(name: str, argument: str, args: Sequence[Any], most: int, named: Mapping[str, Any]) -> TypeError:
    if len(args) > most:
        value, how = args[most], f"{argument}= by name, in {_UNITS[argument]}"
    else:
        value, how = named[_OTHER[argument]], f"{argument}=, in {_UNITS[argument]}, not {_OTHER[argument]}="
        if isinstance(value, int | float):
            value = float(f"{value * _FROM_OTHER[argument]:g}")
    others = "…, " if len(args) > 1 and most > 1 else ""
    return TypeError(f"{name}() takes {how}: {name}({others}{argument}={value!r})")
