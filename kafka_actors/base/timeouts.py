"""Time limits and durations.

Users pass time limits as `timeout=` in seconds, as futures have it, or as `timeout_ms=` in milliseconds elsewhere; both
by keyword only, so that no number is taken for the other unit. Options have ISO-8601 durations, and brokers send throttle
times.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

from kafka_actors.errors import UsageError, kind_of

__all__ = [
    "MAX_SOCKET_WAIT_MS",
    "MAX_THROTTLE_S",
    "MAX_WAIT_MS",
    "checked_amount",
    "parse_iso8601",
    "throttle_s",
    "timeouts_by_name",
    "wait_of",
]

T = TypeVar("T")

_UNITS = {"timeout": "seconds", "timeout_ms": "milliseconds"}
_OTHER = {"timeout": "timeout_ms", "timeout_ms": "timeout"}
_FROM_OTHER = {"timeout": 0.001, "timeout_ms": 1000}

MAX_WAIT_MS = 10**12
"""Longest wait, because threads can't wait for `math.inf` or for Java's largest long."""
MAX_SOCKET_WAIT_MS = 2**31 - 1
"""Longest timeout of a socket, because poll(2) takes an int."""
_MOST: dict[str, float] = {"timeout": MAX_WAIT_MS / 1000, "timeout_ms": MAX_WAIT_MS}


def checked_amount(argument: str, value: Any) -> float:
    """Checks the value of `timeout` or `timeout_ms`. Raises `UsageError` for anything but a number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise UsageError(f"{argument} is {value!r}, {kind_of(value)}: accepts {_UNITS[argument]}, at least 0")
    return min(value, _MOST[argument])


def wait_of(timeout: Any) -> float | None:
    """Checks `timeout`, in seconds; None means no limit."""
    return None if timeout is None else checked_amount("timeout", timeout)


def timeouts_by_name(cls: type[T]) -> type[T]:
    """Class decorator for public methods with a keyword-only time limit: if the limit is passed by position, or under the name
    of the other unit, they raise a `TypeError` that says what to write."""
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


# ---------------------------------------------------------------- amounts of time that others write


MAX_THROTTLE_S = 300.0
"""Longest time for which a throttling broker is left alone. A small quota and a large response yield hours
(`QuotaUtils.throttleTime`), an `int32` days; but a quota may be raised, and a broker that insists delays its answer
anyway: it reads no request before the time is over."""

_ISO8601 = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


def parse_iso8601(text: str) -> float:
    """Returns the seconds of an ISO-8601 duration of fixed length such as `PT1H30M` or `P7D`, as Java's `Duration.parse`
    reads them (KIP-1106: `by_duration:P7DT3H`). Raises `ValueError` with what is accepted."""
    match = _ISO8601.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration such as 'PT1H30M' or 'P7D'")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def throttle_s(seconds: float) -> float:
    """Seconds for which a broker that returned this throttle time (KIP-219) is left alone: `MAX_THROTTLE_S` at most."""
    return min(max(seconds, 0.0), MAX_THROTTLE_S)
