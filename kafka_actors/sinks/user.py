"""A function or class of the user's as a sink."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from kafka_actors.base.callables import async_method, constructed, is_async, misfit
from kafka_actors.config import ClientConfig
from kafka_actors.errors import ConfigError

from .writer import Origin, Sink, Writer


def check_made(option: str, target: type) -> None:
    """A class of the user's is made without arguments in each worker. Raises `ConfigError` where it wants some."""
    if (wrong := misfit(target)) is not None:
        what = f"the class {target.__name__}, which is made without arguments in each worker"
        raise ConfigError(option, f"is {what}: {wrong.said}")


def as_sink(given: Any) -> Sink:
    """What a user gave as a sink. Raises `ConfigError` (option `sink`)."""
    if not inspect.isclass(given) and isinstance(given, Sink):
        return given
    if inspect.isclass(given):
        if not callable(getattr(given, "write", None)):
            raise ConfigError("sink", f"is the class {given.__name__}, which has no write(self, batch)")
        if (method := async_method(given, "write", "flush", "close")) is not None:
            raise ConfigError(
                "sink", f"is the class {given.__name__}, whose {method} is async: make it a plain method"
            )
        check_made("sink", given)
        return UserSink(given, {})
    if not callable(given):
        raise ConfigError(
            "sink", f"is {given!r}: accepts KafkaSink(…), ParquetSink(…), a function or a class with write"
        )
    if is_async(given):
        raise ConfigError("sink", "is async: make it a plain function")
    return UserSink(given, {})


class UserSink:
    """A function over batches, whose rows are safe when it returns; or a class, made once per worker, with
    `write(batch)` and optionally `flush()` and `close()`."""

    def __init__(self, target: Any, arguments: dict[str, Any]) -> None:
        self.target = target
        self.arguments = arguments

    def open(self, connection: ClientConfig) -> Writer:
        """What the class's constructor raises comes through."""
        if inspect.isclass(self.target):
            return _ObjectWriter(constructed(self.target, self.arguments))
        return _FunctionWriter(self.target)

    def __repr__(self) -> str:
        return f"<UserSink {getattr(self.target, '__name__', self.target)!r}>"


class _FunctionWriter:
    def __init__(self, function: Callable[[pa.RecordBatch], Any]) -> None:
        self._function = function

    def write(self, batch: pa.RecordBatch, origin: Origin) -> None:
        _done(self._function(batch))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class _ObjectWriter:
    def __init__(self, made: Any) -> None:
        self._made = made

    def write(self, batch: pa.RecordBatch, origin: Origin) -> None:
        _done(self._made.write(batch))

    def flush(self) -> None:
        self._call("flush")

    def close(self) -> None:
        self._call("close")

    def _call(self, method: str) -> None:
        found = getattr(self._made, method, None)
        if callable(found):
            _done(found())


def _done(result: Any) -> None:
    """What would have to be awaited has written nothing yet."""
    if inspect.isawaitable(result):
        raise TypeError(f"a sink returned {type(result).__name__}, which nobody awaits: make it plain")
