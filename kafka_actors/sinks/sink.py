"""Protocols of sinks: the definition, and the writer that it opens in a worker; and users' functions and classes as sinks."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_actors.base.addresses import without_user_info
from kafka_actors.base.batches import numbers
from kafka_actors.base.callables import (
    async_method,
    constructed,
    is_async,
    is_generator,
    misfit,
    type_and_text,
)
from kafka_actors.base.paths import directory_of
from kafka_actors.config import ClientConfig
from kafka_actors.errors import ConfigError, SinkError

logger = logging.getLogger(__name__)


class Origin(NamedTuple):
    """Records of one partition from which rows were made, by first and last offset, both included. `packed`: the offsets of all of them, 8
    bytes each, empty where they are all from the first to the last, in order. Records of other keys may be missing, where calls overlap."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    packed: bytes = b""

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The offsets of all records."""
        if self.packed:
            return np.frombuffer(self.packed, np.int64)
        return np.arange(self.first_offset, self.last_offset + 1, dtype=np.int64)


def origin_of(batch: pa.RecordBatch) -> Origin:
    """The origin of a fetched batch, which has at least one row."""
    column = batch.column("offset")
    packed = b""
    if not column.null_count:  # on Spark rows may belong to no record
        offsets = numbers(column)
        # Those of a retry topic are in the order in which their records failed.
        gapless = offsets[-1] - offsets[0] + 1 == len(offsets) and (offsets[1:] > offsets[:-1]).all()
        packed = b"" if gapless else offsets.tobytes()
    return Origin(
        batch.column("topic")[0].as_py(),
        batch.column("partition")[0].as_py(),
        column[0].as_py(),
        column[-1].as_py(),
        packed,
    )


class Writer(Protocol):
    """Open sink. Its methods are called one at a time, but maybe from different threads. One whose attribute `flushes_beside_writes` is True
    is also written to while another thread flushes it; then the flush is for what was written before."""

    def write(self, batch: pa.RecordBatch, origin: Origin) -> None:
        """Takes all rows, or raises and takes none. Rows may wait in memory."""
        ...

    def flush(self) -> None:
        """Returns once all rows are durable. Raises what keeps them from it."""
        ...

    def close(self) -> None: ...


class TransactionBroken(BaseException):
    """Raised where the transaction has to be aborted because of `cause`. No error policy of rows may take it for one of a row: a second try
    would write rows again. So it is no `Exception`, and passes all of them on its way to the worker."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause


class DeferredWrites:
    """Result of a call that writes by itself: `put_out` does, when the worker says so. Raises what keeps it from it."""

    def __init__(self, put_out: Callable[[], None]) -> None:
        self.put_out = put_out


class Closes(Protocol):
    """Object with a `close` method."""

    def close(self) -> None: ...


def close_all(*writers: Closes | None) -> None:
    """Closes all that are not None. A failure is only logged: rows that were not flushed are not committed."""
    for writer in writers:
        try:
            if writer is not None:
                writer.close()
        except Exception as error:  # users' classes raise anything
            logger.warning("%r could not be closed: %s", writer, type_and_text(error))


class Flushes(Protocol):
    """Object with a `flush` method, which raises what keeps its rows from being durable."""

    def flush(self) -> None: ...


def flush_all(writers: Iterable[tuple[str, Flushes]]) -> None:
    """Flushes all, in this order. Raises `SinkError` with the name of the first one that fails: then no offset may be
    committed, and those before it are ahead of the offsets, as after a crash."""
    for name, writer in writers:
        try:
            writer.flush()
        except Exception as error:
            raise SinkError(name, type_and_text(error)) from error


class WriteTurns:
    """Turns that writing and flushing of sinks take: `with turns:` what is written in it comes before a flush or after it, as a whole, and a second
    flush waits for the first.

    Sinks with `flushes_beside_writes` are flushed while others write: an event loop whose calls write their results would stand still for as
    long as a flush waits for brokers.
    """

    def __init__(self) -> None:
        self._writing = threading.Lock()
        self._flushing = threading.Lock()
        self._unflushed = False

    def __enter__(self) -> None:
        self._writing.acquire()
        self._unflushed = True

    def __exit__(self, *_: object) -> None:
        self._writing.release()

    def flush(self, writers: Sequence[tuple[str, Flushes]]) -> None:
        """Returns when all that was written before is stored; at once where nothing was. Raises as `flush_all`."""
        beside = [each for each in writers if getattr(each[1], "flushes_beside_writes", False) is True]
        with self._flushing:
            try:
                with self._writing:
                    if not self._unflushed:
                        return
                    self._unflushed = False
                    flush_all(each for each in writers if each not in beside)
                flush_all(beside)
            except BaseException:
                self._unflushed = True
                raise


@runtime_checkable
class Sink(Protocol):
    """Definition of a sink: a value that can be pickled."""

    def open(self, connection: ClientConfig) -> Writer:
        """Opens the sink in a worker. `connection` has the job's options for its cluster."""
        ...


def check_made(option: str, target: type) -> None:
    """Raises `ConfigError` for a class whose constructor needs arguments: each worker makes one without any."""
    if (wrong := misfit(target)) is not None:
        what = f"the class {target.__name__}, which is made without arguments in each worker"
        raise ConfigError(option, f"is {what}: {wrong.reason}")


def check_plain(option: str, target: type, *methods: str) -> None:
    """Raises `ConfigError` for a class of which one of these methods is a generator: a call would run nothing of it."""
    for method in methods:
        if is_generator(getattr(target, method, None)):
            raise ConfigError(
                option,
                f"is the class {target.__name__}, whose {method} is a generator: make it a plain method",
            )


def as_sinks(sink: Any) -> tuple[Sink, ...]:
    """The argument `sink` as sinks: None for none, one, or a list of several. Raises `ConfigError`."""
    if sink is None:
        return ()
    if not isinstance(sink, (list, tuple)):
        return (as_sink(sink),)
    if not sink:
        raise ConfigError("sink", "is an empty list: leave it out for no sink")
    from .parquet import ParquetSink  # imports this module

    sinks = tuple(map(as_sink, sink))
    directories = [directory_of(s.path) for s in sinks if isinstance(s, ParquetSink)]
    for path in directories:
        if directories.count(path) > 1:
            raise ConfigError(
                "sink",
                f"writes to {without_user_info(path)!r} twice: each ParquetSink needs a directory of its own",
            )
    return sinks


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
        check_plain("sink", sink, "write", "flush", "close")
        check_made("sink", sink)
        return UserSink(sink, {})
    if not callable(sink):
        raise ConfigError(
            "sink", f"is {sink!r}: accepts KafkaSink(…), ParquetSink(…), a function or a class with write"
        )
    if is_async(sink):
        raise ConfigError("sink", "is async: make it a plain function")
    if is_generator(sink):
        raise ConfigError("sink", "is a generator: make it a plain function")
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
    """Raises `TypeError` for an awaitable and for a generator: nobody awaits or runs it, so nothing would be written."""
    if inspect.isawaitable(result):
        raise TypeError(f"a sink returned {type(result).__name__}, which nobody awaits: make it plain")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(f"a sink returned {type(result).__name__}, which nobody runs: make it plain")
