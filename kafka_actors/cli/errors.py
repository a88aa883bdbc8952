"""What the command line says of an error, in one line, and which exit code it stands for."""

from __future__ import annotations

import click

from kafka_actors.errors import ConfigError, JobFailed, KafkaActorsError, RemoteCauseError, UsageError

__all__ = ["EXIT_DONE", "EXIT_FAILED", "EXIT_USAGE", "LoadError", "describe", "exit_code"]

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


class LoadError(KafkaActorsError):
    """The user's module raised while it was loaded; ``__cause__`` is what it raised."""


def describe(error: BaseException) -> str:
    """One line that names the cause: option, topic, partition, offsets, and what the user's code raised."""
    return " ".join(_text(error).split())


def exit_code(error: BaseException) -> int:
    """2 for what another command line, or another definition of the job, would put right; else 1."""
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
        text = str(error)
        said = f"{type(error).__name__}: {text}" if text else type(error).__name__
        # Of what a constructor raised: which class, and where.
        notes = [note for note in getattr(error, "__notes__", ()) if note.startswith("raised ")]
        return f"{said} ({', '.join(notes)})" if notes else said
    text = str(error) or type(error).__name__
    cause = error.__cause__
    if cause is None or str(cause) in text:
        return text
    return f"{text}: {_text(cause)}"


def _cause_in_actor(error: BaseException) -> BaseException | None:
    """Ray wraps what an actor raised, and puts the whole remote traceback into the wrapper's text."""
    if not any(cls.__name__ == "RayTaskError" for cls in type(error).__mro__):
        return None
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) and cause is not error else None
