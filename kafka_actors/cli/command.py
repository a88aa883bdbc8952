"""Frame of every command: the options that all have, streams, the text of an error in one line, and exit codes."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import click

from kafka_actors.base.callables import described, error_text
from kafka_actors.errors import ConfigError, JobFailed, KafkaActorsError, RemoteCauseError, UsageError
from kafka_actors.ray.log_settings import quiet_lines

from .output import Output

__all__ = [
    "EXIT_DONE",
    "EXIT_FAILED",
    "EXIT_USAGE",
    "INT_MAX",
    "FloatRange",
    "IntRange",
    "LoadError",
    "command",
    "describe",
    "exit_code",
    "needs",
    "terminable",
]

LEVELS = ["debug", "info", "warning", "error"]
EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
INT_MAX = 0x7FFFFFFF
"""Largest number of partitions, id of a partition and id of a broker that a request can hold."""


def command(function: Callable[..., int]) -> Callable[..., None]:
    """Makes a function `(output, **options) -> exit code` the body of a click command."""

    @click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        envvar="KAFKA_ACTORS_LOG_FORMAT",
        help="Log lines for people, or one JSON object a line; progress is part of the JSON log.",
    )
    @click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="warning",
        show_default=True,
        envvar="KAFKA_ACTORS_LOG_LEVEL",
        help="Lowest level that the command and the job's actors log to stderr.",
    )
    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(function)
    def body(log_format: Any, log_level: str, debug: bool, **options: Any) -> None:
        with Output(log_format, log_level) as output:
            _quiet_ray(log_level)
            try:
                with _ray_left():
                    code = function(output, **options)
            except (KeyboardInterrupt, SystemExit):  # Ray raises SystemExit on SIGTERM
                output.error("interrupted")
                code = EXIT_FAILED
            except BrokenPipeError:  # the reader has enough, as head does: that is no error to tell of
                output.discard()
                code = EXIT_FAILED
            except BaseException as error:
                trace = "".join(traceback.format_exception(error)) if debug else None
                output.error(describe(error), trace)
                code = exit_code(error)
        click.get_current_context().exit(code)

    return body


def needs(module: str, extra: str, what: str) -> None:
    """Raises a `UsageError` that names the extra to install, if `module` can't be imported."""
    if importlib.util.find_spec(module) is None:
        raise UsageError(f"{what}: pip install 'kafka-actors[{extra}]'")


@contextmanager
def _ray_left() -> Iterator[None]:
    """Leaves the Ray cluster that the command has joined, before `Output` gives the streams back: Ray prints lines of
    actors that it held back when it is left. A cluster that was joined before stays joined."""
    before = _in_ray()
    try:
        yield
    finally:
        if not before and _in_ray():
            sys.modules["ray"].shutdown()


def _in_ray() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _quiet_ray(log_level: str) -> None:
    """Sets the variables that Ray reads when it is imported or started, so that its own messages follow our log level."""
    level = log_level.lower()
    os.environ.setdefault("RAY_LOGGER_LEVEL", "warning" if level == "info" else level)
    if level != "debug":
        quiet_lines()
    # Ray's warning about a setting of its next versions; it concerns tasks without GPUs that use GPUs.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


@contextmanager
def terminable() -> Iterator[None]:
    """Context manager in which SIGTERM raises `KeyboardInterrupt`, as Ctrl-C does: `timeout` and containers end programs so."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ------------------------------------------------------------ numbers


class _Bounded:
    """A number of an option, with a lower bound and perhaps an upper one. What is none is said in a line with the bounds: click only says
    that it is no "integer range"."""

    kind: ClassVar[str]
    min: Any
    max: Any

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)  # type: ignore[misc]  # of click's type behind it
        except click.BadParameter:
            bounds = f"from {self.min} " + ("on" if self.max is None else f"to {self.max}")
            raise click.BadParameter(f"{value!r} is no {self.kind} {bounds}", ctx, param) from None


class IntRange(_Bounded, click.IntRange):
    """An integer between bounds."""

    kind = "integer"


class FloatRange(_Bounded, click.FloatRange):
    """A number between bounds."""

    kind = "number"


# ------------------------------------------------------------ errors


class LoadError(KafkaActorsError):
    """The user's module raised while it was loaded; ``__cause__`` is what it raised."""


def describe(error: BaseException) -> str:
    """Text of an error in one line, with its cause: option, topic, partition, offsets, the error of the user's code."""
    return " ".join(_text(error).split())


def exit_code(error: BaseException) -> int:
    """Exit code for an error: 2 where another command line, or another definition of the job, is needed, else 1."""
    if isinstance(error, (ConfigError, UsageError, click.UsageError)):
        return EXIT_USAGE
    return EXIT_FAILED


def _text(error: BaseException) -> str:
    remote = _cause_in_actor(error)
    if remote is not None:
        return _text(remote)
    if isinstance(error, JobFailed) and error.cause is not None:
        return _text(error.cause)
    if isinstance(error, click.ClickException):
        return error.format_message()
    if not isinstance(error, KafkaActorsError | RemoteCauseError):
        return described(error)
    text = error_text(error) or type(error).__name__
    cause = error.__cause__
    if cause is None or error_text(cause) in text:
        return text
    return f"{text}: {_text(cause)}"


def _cause_in_actor(error: BaseException) -> BaseException | None:
    """Error that an actor raised, without Ray's wrapper, whose text has the whole remote traceback."""
    if not any(cls.__name__ == "RayTaskError" for cls in type(error).__mro__):
        return None
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) and cause is not error else None
