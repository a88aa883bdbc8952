"""The user's code: what it may be, how it is made, called and closed.

A function over a `pyarrow.RecordBatch`, an async function, or a class made once per worker whose instances
are called per batch and closed at the end; or, with `process_message=`, the same over one message.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeAlias

import msgspec
import pyarrow as pa

from kafka_actors.base.callables import DroppedResults, constructed, is_async, misfit
from kafka_actors.config import ConsumerConfig
from kafka_actors.consumer.message import messages_of
from kafka_actors.errors import ConfigError
from kafka_actors.sinks.user import check_made

from .outputs import Outputs, OutputsSpec

__all__ = ["CallFailed", "FunctionSpec", "OnError", "UserFunction"]

OnError: TypeAlias = Literal["fail", "skip", "dead_letter"]
Wait: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
"""Blocks until it is done, in some event loop; raises what it does."""


class FunctionSpec(msgspec.Struct, frozen=True):
    """The user's callable as given to `Job`, with the policy for its errors."""

    target: Any
    unit: Literal["batch", "message"]
    retries: int
    on_error: OnError
    outputs: OutputsSpec = OutputsSpec()

    @property
    def is_class(self) -> bool:
        return inspect.isclass(self.target)

    @property
    def is_async(self) -> bool:
        return is_async(_call_of(self.target) if self.is_class else self.target)


def _call_of(target: Any) -> Any:
    """The `__call__` that its class defines, None where it has none; a class's own constructor doesn't count."""
    bases = target.__mro__ if inspect.isclass(target) else type(target).__mro__
    return next((base.__dict__["__call__"] for base in bases if "__call__" in base.__dict__), None)


def checked(
    process: Any,
    process_message: Any,
    retries: int,
    on_error: OnError,
    outputs: OutputsSpec = OutputsSpec(),  # noqa: B008  a frozen value
) -> FunctionSpec:
    """Exactly one of the two, callable, taking one argument. Raises `ConfigError`."""
    if (process is None) == (process_message is None):
        raise ConfigError(
            "process", "give exactly one of process= (over a batch) and process_message= (over one message)"
        )
    option = "process" if process is not None else "process_message"
    target = process if process is not None else process_message
    if _call_of(target) is None:
        what = f"the class {target.__name__}, which has none" if inspect.isclass(target) else repr(target)
        raise ConfigError(
            option, f"is {what}: must be a function, an async function, or a class with __call__"
        )
    _check_arity(option, target)
    if inspect.isclass(target):
        check_made(option, target)
    unit: Literal["batch", "message"] = "batch" if process is not None else "message"
    return FunctionSpec(target, unit, retries, on_error, outputs)


def _check_arity(option: str, target: Any) -> None:
    """Takes one argument, so that a wrong signature is found before the first batch."""
    of_class = inspect.isclass(target)
    call, arguments = (_call_of(target), (None, None)) if of_class else (target, (None,))
    if (wrong := misfit(call, arguments)) is not None:
        wanted = "__call__(self, batch)" if of_class else "one argument"
        raise ConfigError(option, f"must take {wanted}; it takes {wrong.signature}")


# Whatever the user's code raises is the user's, also what is no `Exception`: `sys.exit`, the panic of a library in Rust,
# a cancelled await. Raised on, it would end a loop of the actor in place of the call.


class CallFailed(Exception):
    """One call of the user's code failed, for the offsets `first` to `last`. `final`: no retry can mend it."""

    def __init__(self, cause: BaseException, first: int, last: int, *, final: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.first = first
        self.last = last
        self.final = final

    def goes_on(self, behind: CallFailed) -> bool:
        """Whether that is the same failure, of the records behind these."""
        return (type(self.cause), str(self.cause)) == (type(behind.cause), str(behind.cause))


class UserFunction:
    """The made object. `call` works on a batch from row `start` on and raises `CallFailed` with the row it got to."""

    def __init__(self, spec: FunctionSpec, config: ConsumerConfig | None = None) -> None:
        self.spec = spec
        self.outputs = Outputs(spec.outputs, config)
        self._made: Callable[[Any], Any] | None = None
        self._unsafe: Exception | None = None
        what = "process" if spec.unit == "batch" else "process_message"
        self._nothing = DroppedResults(what) if spec.outputs.sink is not None else None

    def make(self) -> None:
        """Makes the class, where it is one, and opens the sink. What the constructor raises comes through (`_Passing`)."""
        with _Passing():
            self._made = constructed(self.spec.target, {}) if self.spec.is_class else self.spec.target
            self.outputs.open()

    @property
    def flushes(self) -> bool:
        """Whether results may wait somewhere."""
        return self.outputs.any or self._own("flush") is not None

    def flush(self, wait: Wait = asyncio.run) -> None:
        """Before a commit, from any thread: returns when all results of calls that have returned are safe. `wait` is for
        what an async `flush` returns.

        Raises why not, and from then on always: what was lost in a flush that failed is not known.
        """
        if self._unsafe is not None:
            raise self._unsafe
        try:
            with _Passing():
                self._finish("flush", wait)
                self.outputs.flush()
        except Exception as error:
            self._unsafe = error
            raise

    def _own(self, method: str) -> Callable[[], Any] | None:
        found = getattr(self._made, method, None) if self.spec.is_class else None
        return found if callable(found) else None

    def close(self, wait: Wait = asyncio.run) -> None:
        """`wait` is for what an async `close` returns."""
        if self._nothing is not None:
            self._nothing.at_end()
        with _Passing():
            try:
                self._finish("close", wait)
            finally:
                self.outputs.close()

    def _finish(self, method: str, wait: Wait) -> None:
        own = self._own(method)
        result = None if own is None else own()
        if inspect.isawaitable(result):
            wait(_done(result))

    def call(self, batch: pa.RecordBatch) -> None:
        """One synchronous pass over the batch, results to the sink. Raises `CallFailed`."""
        assert self._made is not None  # make() comes first
        if self.spec.unit == "batch":
            try:
                self._returned(self._give(self._made(batch), batch))
            except BaseException as error:
                raise _failed(error, *_span(batch)) from error
            return
        some = False
        for row, message in enumerate(messages_of(batch)):
            try:
                some = self._give(self._made(message), batch.slice(row, 1)) or some
            except BaseException as error:
                raise _failed(error, message.offset, message.offset) from error
        self._returned(some)

    async def call_async(self, batch: pa.RecordBatch) -> None:
        """The same for an async function."""
        assert self._made is not None  # make() comes first
        if self.spec.unit == "batch":
            try:
                self._returned(self._give(await self._made(batch), batch))
            except GeneratorExit:  # not the user's: the coroutine is being thrown away
                raise
            except BaseException as error:
                raise _failed(error, *_span(batch)) from error
            return
        some = False
        for row, message in enumerate(messages_of(batch)):
            try:
                some = self._give(await self._made(message), batch.slice(row, 1)) or some
            except GeneratorExit:  # not the user's: the coroutine is being thrown away
                raise
            except BaseException as error:
                raise _failed(error, message.offset, message.offset) from error
        self._returned(some)

    def _returned(self, something: bool) -> None:
        if self._nothing is not None:
            self._nothing.returned(something)

    def _give(self, result: Any, batch: pa.RecordBatch) -> bool:
        """Returns whether there is a result."""
        if result is None:
            return False
        if not self.outputs.has_sink:
            raise _WrongReturn(
                f"process returned a {type(result).__name__}, and the job has no sink=: give it one, or return None"
            )
        self.outputs.write(result, batch)
        return True


class _WrongReturn(TypeError):
    """No retry can mend it. What a user sees is a TypeError."""


def _failed(error: BaseException, first: int, last: int) -> CallFailed:
    if isinstance(error, _WrongReturn):
        return CallFailed(TypeError(str(error)), first, last, final=True)
    return CallFailed(error, first, last)


async def _done(result: Awaitable[Any]) -> None:
    try:
        await result
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(_said(error)) from error


class _Passing:
    """What the user's code raises in it comes through, as an error that may pass an event loop: a StopIteration never gets
    out of one, and `sys.exit` would end the loop of the actor in place of the job. (`contextmanager` undoes that of a
    StopIteration.)"""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and (isinstance(error, StopIteration) or not isinstance(error, Exception)):
            passing = RuntimeError(_said(error))
            for note in getattr(error, "__notes__", ()):
                passing.add_note(note)
            raise passing from error


def _said(error: BaseException) -> str:
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _span(batch: pa.RecordBatch) -> tuple[int, int]:
    offsets = batch.column("offset")
    return offsets[0].as_py(), offsets[-1].as_py()
