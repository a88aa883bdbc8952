"""User sink: a function or class of the user's."""

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
    """Raises `ConfigError` for a class whose constructor needs arguments: each worker makes one without any."""
    if (wrong := misfit(target)) is not None:
        what = f"the class {target.__name__}, which is made without arguments in each worker"
        raise ConfigError(option, f"is {what}: {wrong.reason}")


def as_sink(sink: Any) -> Sink:
    """The argument `sink` as a `Sink`: a sink as it is, a function or class as a `UserSink`. Raises `ConfigError`."""
    if not inspect.isclass(sink) and isinstance(sink, Sink):
        return sink
    if inspect.isclass(sink):
        if not callable(getattr(sink, "write", None)):
            raise ConfigError("sink", f"is the class {sink.__name__}, which has no write(self, batch)")
        if (method := async_method(sink, "write", "flush", "close")) is not None:
            raise ConfigError(
                "sink", f"is the class {sink.__name__}, whose {method} is async: make it a plain method"
            )
        check_made("sink", sink)
        return UserSink(sink, {})
    if not callable(sink):
        raise ConfigError(
            "sink", f"is {sink!r}: accepts KafkaSink(…), ParquetSink(…), a function or a class with write"
        )
    if is_async(sink):
        raise ConfigError("sink", "is async: make it a plain function")
    return UserSink(sink, {})


class UserSink:
    """Calls a function with each batch, which counts as written when it returns; or an object of a class, made once per
    worker, with `write(batch)` and optionally `flush()` and `close()`."""

    def __init__(self, target: Any, arguments: dict[str, Any]) -> None:
        self.target = target
        self.arguments = arguments

    def open(self, connection: ClientConfig) -> Writer:
        """Makes the writer. Raises what the class's constructor raises."""
        if inspect.isclass(self.target):
            return _ObjectWriter(constructed(self.target, self.arguments))
        return _FunctionWriter(self.target)

    def __repr__(self) -> str:
        return f"<UserSink {getattr(self.target, '__name__', self.target)!r}>"


class _FunctionWriter:
    def __init__(self, function: Callable[[pa.RecordBatch], Any]) -> None:
        self._function = function

    def write(self, batch: pa.RecordBatch, origin: Origin) -> None:
        _check_done(self._function(batch))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class _ObjectWriter:
    def __init__(self, made: Any) -> None:
        self._made = made

    def write(self, batch: pa.RecordBatch, origin: Origin) -> None:
        _check_done(self._made.write(batch))

    def flush(self) -> None:
        self._call("flush")

    def close(self) -> None:
        self._call("close")

    def _call(self, method: str) -> None:
        found = getattr(self._made, method, None)
        if callable(found):
            _check_done(found())


def _check_done(result: Any) -> None:
    """Raises `TypeError` for an awaitable: nobody awaits it, so nothing would be written."""
    if inspect.isawaitable(result):
        raise TypeError(f"a sink returned {type(result).__name__}, which nobody awaits: make it plain")
