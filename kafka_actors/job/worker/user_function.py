"""The user's function: how it is checked, constructed, called, flushed and closed.

It is a function or an async function over a `pyarrow.RecordBatch`, or a class that is constructed once per worker, called per
batch and closed at the end; or, with `process_message=`, one of these over a single message.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
import pyarrow as pa

from kafka_actors.base.backoff import Backoff
from kafka_actors.base.batches import batches_of, first_and_last_offset
from kafka_actors.base.callables import (
    DroppedResults,
    constructed,
    error_text,
    is_async,
    misfit,
    type_and_text,
)
from kafka_actors.base.fork_guard import end_child, forks
from kafka_actors.base.message import Message, messages_of
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import ConfigError, SinkError, StageError, kind_of
from kafka_actors.events import NewSchemaSeen
from kafka_actors.schemas.registry import SharedRegistry
from kafka_actors.sinks.sink import DeferredWrites, check_made, check_plain, origin_of
from kafka_actors.types import TopicPartition

from .outputs import NO_SINK, Outputs, OutputsSpec, check_returns

__all__ = ["CallFailed", "FunctionSpec", "OnError", "UserFunction"]

OnError: TypeAlias = Literal["fail", "skip", "dead_letter"]
Wait: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a coroutine in some event loop and blocks until it is done; raises what it raises."""


class FunctionSpec(msgspec.Struct, frozen=True):
    """The user's callable as passed to `Job`, with the policy for its errors."""

    target: Any
    unit: Literal["batch", "message"]
    retries: int
    on_error: OnError
    outputs: OutputsSpec = OutputsSpec()
    backoff: Backoff = Backoff()

    @property
    def is_class(self) -> bool:
        return inspect.isclass(self.target)

    @property
    def schemas(self) -> dict[str, str]:
        """Schemas of registries by which a pipeline's stages read and write, by the stages' names; none of another function."""
        chosen = getattr(self.target, "chosen_schemas", None)
        return {} if chosen is None else chosen()

    @property
    def registries(self) -> list[SharedRegistry]:
        """Registries that a pipeline asks for the schemas of values, the same in each process; none of another function."""
        found = getattr(self.target, "registries", None)
        return [] if found is None else found()

    @property
    def by_record(self) -> bool:
        """Whether it is a pipeline that calls a function with single records."""
        return bool(getattr(self.target, "by_record", False))

    @property
    def is_async(self) -> bool:
        return is_async(_call_of(self.target) if self.is_class else self.target)


def _call_of(target: Any) -> Any:
    """Returns the `__call__` that the class of `target`, or the class `target` itself, defines; None if it has none."""
    bases = target.__mro__ if inspect.isclass(target) else type(target).__mro__
    return next((base.__dict__["__call__"] for base in bases if "__call__" in base.__dict__), None)


def checked(
    process: Any,
    process_message: Any,
    retries: int,
    on_error: OnError,
    outputs: OutputsSpec = OutputsSpec(),  # noqa: B008  a frozen value
    backoff: Backoff | None = None,
) -> FunctionSpec:
    """Makes the spec. Raises `ConfigError` unless exactly one of the two is given, and is callable with one argument."""
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
    check_returns(option, _call_of(target) if inspect.isclass(target) else target, bool(outputs.sinks))
    if inspect.isclass(target):
        check_made(option, target)
        check_plain(option, target, "flush", "close")
    unit: Literal["batch", "message"] = "batch" if process is not None else "message"
    return FunctionSpec(target, unit, retries, on_error, outputs, backoff or Backoff())


def _check_arity(option: str, target: Any) -> None:
    """Checks that the callable takes one argument, so that a wrong signature is found before the first batch."""
    of_class = inspect.isclass(target)
    call, arguments = (_call_of(target), (None, None)) if of_class else (target, (None,))
    if (wrong := misfit(call, arguments)) is not None:
        wanted = "__call__(self, batch)" if of_class else "one argument"
        raise ConfigError(option, f"must take {wanted}; it takes {wrong.signature}")


# Everything that the user's code raises is a failure of its call, also what is no `Exception`: `sys.exit`, the panic of a Rust
# library, a cancelled await. Passed on, it would end an event loop of the actor in place of the call.


class CallFailed(Exception):
    """Failure of one call of the user's code, for the offsets `first` to `last`. `final`: a retry is useless."""

    def __init__(self, cause: BaseException, first: int, last: int, *, final: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.first = first
        self.last = last
        self.final = final

    def continues_in(self, behind: CallFailed) -> bool:
        """Whether a failure of the records after these is the same one, by type and text."""
        return type(self.cause) is type(behind.cause) and error_text(self.cause) == error_text(behind.cause)


@runtime_checkable
class TellsProgress(Protocol):
    """An object of a class that tells more of its calls, as that of a pipeline does. Its methods are for any thread."""

    def waits_for(self, partition: TopicPartition) -> str:
        """Says what a call on a partition waits for at the moment; empty for nothing."""
        ...

    def new_schemas(self) -> list[NewSchemaSeen]:
        """Schemas of values so far that weren't known at the start."""
        ...


@runtime_checkable
class CountsTries(Protocol):
    """An object of a class that is told which try of its records a call is, as that of a pipeline, whose stages have policies for the last."""

    def call_try(self, batch: pa.RecordBatch, attempt: int) -> Any:
        """Makes the call, from attempt 1 on. Raises `StageError` where a further one is of no use."""
        ...


class UserFunction:
    """The user's function, or the constructed object of its class, with its outputs. Lives in one worker."""

    def __init__(self, spec: FunctionSpec, config: ConsumerConfig | None = None) -> None:
        self.spec = spec
        self.outputs = Outputs(spec.outputs, config)
        self._made: Callable[[Any], Any] | None = None
        self._tells: TellsProgress | None = None
        self._counts: CountsTries | None = None
        self._flush_error: Exception | None = None
        self._what = "process" if spec.unit == "batch" else "process_message"
        self._made_after = forks()
        self._collects = self.outputs.slot is not None
        self._results: dict[TopicPartition, list[tuple[Any, pa.RecordBatch]]] = {}
        """Results of calls that are to be written within the cut of a transaction."""
        self._dropped_results = DroppedResults(self._what) if spec.outputs.sinks else None

    def make(self) -> None:
        """Constructs the object of a class, and opens the sinks. Raises what the constructor raises (as `_AsException` does)."""
        with _AsException(self._made_after, self._what):
            takes_slot = self._collects and hasattr(self.spec.target, "transactional_sinks")
            arguments = {"slot": self.outputs.slot} if takes_slot else {}
            self._made = constructed(self.spec.target, arguments) if self.spec.is_class else self.spec.target
            self._tells = self._made if isinstance(self._made, TellsProgress) else None
            self._counts = self._made if isinstance(self._made, CountsTries) else None
            self.outputs.open()

    def waits_for(self, partition: TopicPartition) -> str:
        """Says what a call on a partition waits for, where the function tells it. For any thread."""
        return "" if self._tells is None else self._tells.waits_for(partition)

    def new_schemas(self) -> list[NewSchemaSeen]:
        """New schemas, where the function tells them. For any thread."""
        return [] if self._tells is None else self._tells.new_schemas()

    @property
    def flushes(self) -> bool:
        """Whether there may be results to flush."""
        return self.outputs.any or self._own("flush") is not None

    def flush(self, wait: Wait = asyncio.run) -> None:
        """Flushes the user's object and the outputs, before a commit; returns when all results of finished calls are stored.
        For any thread. `wait` runs the coroutine of an async `flush`.

        Raises `SinkError`, and the same one from then on: nobody knows what a failed flush has lost.
        """
        if self._flush_error is not None:
            raise self._flush_error
        try:
            with _AsException(self._made_after, self._what):
                self._flush_own(wait)
                self.outputs.flush()
        except Exception as error:
            self._flush_error = error
            raise

    def _flush_own(self, wait: Wait) -> None:
        try:
            self._finish("flush", wait)
        except SinkError:  # a pipeline names its sinks
            raise
        except BaseException as error:
            end_child(self._made_after, self._what, error)
            raise SinkError(f"{self.spec.target.__name__}.flush", type_and_text(error)) from error

    def _own(self, method: str) -> Callable[[], Any] | None:
        found = getattr(self._made, method, None) if self.spec.is_class else None
        return found if callable(found) else None

    def close(self, wait: Wait = asyncio.run) -> None:
        """Closes the user's object and the outputs. `wait` runs the coroutine of an async `close`."""
        if self._dropped_results is not None:
            self._dropped_results.at_end()
        with _AsException(self._made_after, self._what):
            try:
                self._finish("close", wait)
            finally:
                self.outputs.close()

    def _finish(self, method: str, wait: Wait) -> None:
        own = self._own(method)
        result = None if own is None else own()
        if inspect.isawaitable(result):
            wait(_done(result))

    def call(self, batch: pa.RecordBatch, attempt: int | None = None) -> None:
        """Calls the function with the batch, or each message of it, and writes results to the sinks. `attempt`: which try it is, where calls
        that failed are made again and nothing waits meanwhile. Raises `CallFailed`."""
        assert self._made is not None  # make() comes first
        if self.spec.unit == "batch":
            try:
                self._returned(self._write(self._called(batch, attempt), batch))
            except BaseException as error:
                raise self._failed(error, *first_and_last_offset(batch)) from error
            return
        some = False
        for row, message in enumerate(messages_of(batch)):
            some = self.call_message(message, batch, row) or some
        self._returned(some)

    def call_message(self, message: Message, batch: pa.RecordBatch, row: int) -> bool:
        """Calls a function over messages with one, which is this row of a batch. Returns whether there was a result. Raises `CallFailed`."""
        assert self._made is not None  # make() comes first
        try:
            return self._write(self._made(message), batch, row)
        except BaseException as error:
            raise self._failed(error, message.offset, message.offset) from error

    async def call_async(self, batch: pa.RecordBatch, attempt: int | None = None) -> None:
        """Calls an async function as `call` does. Raises `CallFailed`."""
        assert self._made is not None  # make() comes first
        if self.spec.unit == "batch":
            try:
                self._returned(self._write(await self._called(batch, attempt), batch))
            except GeneratorExit:  # not the user's: the coroutine is closed by its loop
                raise
            except BaseException as error:
                raise self._failed(error, *first_and_last_offset(batch)) from error
            return
        some = False
        for row, message in enumerate(messages_of(batch)):
            some = await self.call_message_async(message, batch, row) or some
        self._returned(some)

    async def call_message_async(self, message: Message, batch: pa.RecordBatch, row: int) -> bool:
        """Calls an async function over messages as `call_message` does. Raises `CallFailed`."""
        assert self._made is not None  # make() comes first
        try:
            return self._write(await self._made(message), batch, row)
        except GeneratorExit:  # not the user's: the coroutine is closed by its loop
            raise
        except BaseException as error:
            raise self._failed(error, message.offset, message.offset) from error

    def _called(self, batch: pa.RecordBatch, attempt: int | None) -> Any:
        if attempt is not None and self._counts is not None:
            return self._counts.call_try(batch, attempt)
        assert self._made is not None  # make() comes first
        return self._made(batch)

    def _failed(self, error: BaseException, first: int, last: int) -> CallFailed:
        end_child(self._made_after, self._what, error)
        if isinstance(error, _WrongReturn):
            return CallFailed(TypeError(str(error)), first, last, final=True)
        return CallFailed(error, first, last, final=isinstance(error, StageError))

    def _returned(self, something: bool) -> None:
        if self._dropped_results is not None:
            self._dropped_results.returned(something)

    def _write(self, result: Any, batch: pa.RecordBatch, row: int | None = None) -> bool:
        """Writes the result for a batch, or for one row of it, to the sinks. Returns whether there is one."""
        end_child(self._made_after, self._what)
        if result is None:
            return False
        if row is not None:
            batch = batch.slice(row, 1)
        if self._collects and (self.outputs.has_sink or isinstance(result, DeferredWrites)):
            self._collect(result, batch)
            return True
        if not self.outputs.has_sink:
            raise _WrongReturn(f"process returned {kind_of(result)}, {NO_SINK}")
        self.outputs.write(result, batch)
        return True

    # ------------------------------------------------------------ results in transactions

    def _collect(self, result: Any, batch: pa.RecordBatch) -> None:
        """Keeps a result until `take_results`. Raises `TypeError` for what can't be written."""
        origin = origin_of(batch)
        parts = result
        if not isinstance(result, DeferredWrites):
            parts = list(batches_of(result, "process"))
        self._results.setdefault(TopicPartition(origin.topic, origin.partition), []).append((parts, batch))

    def take_results(self, partition: TopicPartition) -> list[tuple[Any, pa.RecordBatch]]:
        """Returns the results of a partition's last call, each with the records that it was made of."""
        return self._results.pop(partition, [])

    def write_result(self, result: Any, batch: pa.RecordBatch) -> None:
        """Writes one of them. Raises what a sink raises."""
        if isinstance(result, DeferredWrites):
            result.put_out()
        else:
            self.outputs.write(result, batch)

    def failure(self, error: BaseException, first: int, last: int) -> CallFailed:
        """Returns the failure of a call whose result can't be written."""
        return self._failed(error, first, last)


class _WrongReturn(TypeError):
    """Result without a sink: a retry is useless. The user sees a `TypeError`."""


async def _done(result: Awaitable[Any]) -> None:
    try:
        await result
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(type_and_text(error)) from error


class _AsException:
    """Context manager that lets the user's errors through as errors that may pass an event loop.

    A `StopIteration` can't leave a coroutine, and `sys.exit` would end the actor's loop in place of the job: these become a
    `RuntimeError`. `contextlib.contextmanager` would undo that for a `StopIteration`. A child that the user's code forked ends
    here: see `end_child`.
    """

    def __init__(self, made_after: int, what: str) -> None:
        self._made_after = made_after
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        end_child(self._made_after, self._what, error)
        if error is not None and (isinstance(error, StopIteration) or not isinstance(error, Exception)):
            passing = RuntimeError(type_and_text(error))
            for note in getattr(error, "__notes__", ()):
                passing.add_note(note)
            raise passing from error
