"""Options that every command has, and what surrounds every command: its streams, its errors, its exit code."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from kafka_actors.errors import UsageError
from kafka_actors.ray.log_settings import quiet_lines

from .errors import EXIT_FAILED, describe, exit_code
from .output import Output

__all__ = ["command", "needs"]

LEVELS = ["debug", "info", "warning", "error"]


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
        help="What is logged to stderr, by the command and by the job's actors.",
    )
    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(function)
    def body(log_format: Any, log_level: str, debug: bool, **options: Any) -> None:
        with Output(log_format, log_level) as output:
            _quiet_ray(log_level)
            try:
                with _ray_left():
                    code = function(output, **options)
            except (KeyboardInterrupt, SystemExit):  # Ray makes a SystemExit of SIGTERM
                output.error("interrupted")
                code = EXIT_FAILED
            except BrokenPipeError:  # who read the output has enough of it, as head does: nothing to be told
                output.discard()
                code = EXIT_FAILED
            except BaseException as error:
                trace = "".join(traceback.format_exception(error)) if debug else None
                output.error(describe(error), trace)
                code = exit_code(error)
        click.get_current_context().exit(code)

    return body


def needs(module: str, extra: str, what: str) -> None:
    """Raises `UsageError` that says what to install where `module` can't be imported."""
    if importlib.util.find_spec(module) is None:
        raise UsageError(f"{what}: pip install 'kafka-actors[{extra}]'")


@contextmanager
def _ray_left() -> Iterator[None]:
    """Leaves the Ray that the command has joined, while `Output` still stands in for the streams: Ray prints then
    what it held back of the actors' lines. One that was joined before is its caller's."""
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
    """Ray reads these when it is imported or started: what it says of itself follows our log level."""
    level = log_level.lower()
    os.environ.setdefault("RAY_LOGGER_LEVEL", "warning" if level == "info" else level)
    if level != "debug":
        quiet_lines()
    # Ray's warning about a setting of its next versions; it concerns tasks without GPUs that use GPUs.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
