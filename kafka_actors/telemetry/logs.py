"""Log lines that programs can read too: each line ends with its fields in brackets, as `key=value`:

    2026-01-31 12:00:00,250 WARNING kafka_actors.job.worker.processing_thread: process failed … [topic=orders partition=3 actor=worker-0]

A call passes fields with `extra={"fields": {…}}`; the origin (group, job, actor, incarnation) is set once for the process.
A process that runs one task after the other (a Python worker of Spark) adds the task to each line: `spark_stage_id=4`.
JSON logs have the same fields as members of their objects, and records sent to a collector have them as attributes.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from kafka_actors.events import in_words

__all__ = [
    "LINE",
    "JsonFormatter",
    "LastResort",
    "LogOrigin",
    "TextFormatter",
    "fields_of",
    "fields_of_call",
    "in_task",
    "read_line",
    "set_log_origin",
    "task_now",
]

LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (?P<level>[A-Z]+) (?P<logger>[\w.]+): (?P<message>.*?)"
    r"(?: \[(?P<fields>\w+=.*)\])?"
)
_FIELD = re.compile(r'(?P<name>\w+)=(?P<value>"(?:[^"\\]|\\.)*"|[^\s"\]]*)')
_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "fields", "event"}


class LogOrigin(msgspec.Struct, frozen=True):
    """Origin of a process' log lines: group, job, the actor's role and its incarnation."""

    group: str = ""
    job: str = ""
    actor: str = ""
    incarnation: int = 0

    def fields(self) -> dict[str, str | int]:
        """The fields that are set."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value}


_origin: dict[str, str | int] = {}


def set_log_origin(origin: LogOrigin) -> None:
    """Sets the origin of all log lines of this process from now on."""
    _origin.clear()
    _origin.update(origin.fields())


_task: Mapping[str, str | int] = {}


@contextmanager
def in_task(attributes: Mapping[str, str | int]) -> Iterator[None]:
    """Adds a task's attributes to all log lines of this process within the block. They are named as in the resource of the
    task's spans."""
    global _task
    mine = _task = dict(attributes)
    try:
        yield
    finally:
        if _task is mine:  # an abandoned generator may be closed after the next task has begun
            _task = {}


def task_now() -> Mapping[str, str | int]:
    """Attributes of the task that this process runs now; empty outside of tasks."""
    return _task


def fields_of_call(record: logging.LogRecord) -> dict[str, Any]:
    """Fields of a record: those of its call, and the origin."""
    return {**_origin, **getattr(record, "fields", {})}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Fields of a record: those of its call, the origin, and the task."""
    return {**_origin, **_task_fields(), **getattr(record, "fields", {})}


def _task_fields() -> dict[str, str | int]:
    return {name.replace(".", "_"): value for name, value in _task.items()}


class TextFormatter(logging.Formatter):
    """Formats records as lines with their fields in brackets. An event's own fields are not repeated: its message has them."""

    def __init__(self) -> None:
        super().__init__(LINE)

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = {**_origin, **_task_fields()} if hasattr(record, "event") else fields_of(record)
        words = in_words(fields)
        return super().formatMessage(record) + (f" [{words}]" if words else "")


class JsonFormatter(logging.Formatter):
    """Formats each record as one JSON object in one line: time, level, logger, message, fields, and anything else in `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        extra = {
            name: value
            for name, value in record.__dict__.items()
            if name not in _OWN and not name.startswith("_")  # Ray adds members that begin with an underscore
        }
        if record.exc_info:
            extra["traceback"] = self.formatException(record.exc_info)
        event = getattr(record, "event", None)
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **({"event": event} if event is not None else {}),
            **{name: value for name, value in fields_of(record).items() if value is not None},
            **extra,
        }
        return json.dumps(entry, default=str)


class LastResort(logging.Handler):
    """Writes lines with their fields to stderr while the root logger has no handler: `logging.lastResort` omits the fields."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(TextFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers:
            return
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)


def read_line(text: str) -> dict[str, Any] | None:
    """Parses a line of `TextFormatter` into the members of a JSON log's object. Returns None for any other text."""
    found = _LINE.fullmatch(text)
    if found is None:
        return None
    time = datetime.strptime(found["time"], "%Y-%m-%d %H:%M:%S,%f").astimezone(UTC)
    record: dict[str, Any] = {
        "time": time.isoformat(timespec="milliseconds"),
        "level": found["level"],
        "logger": found["logger"],
        "message": found["message"],
    }
    of_event: dict[str, Any] = {}
    if found["logger"] == "kafka_actors.events":
        event, _, fields = found["message"].partition(" ")
        of_event = {"event": event, **_read_words(fields)}
    return {**record, **_read_words(found["fields"] or ""), **of_event}


def _read_words(text: str) -> dict[str, Any]:
    return {found["name"]: _value(found["value"]) for found in _FIELD.finditer(text)}


def _value(word: str) -> Any:
    if word.startswith('"'):
        return json.loads(word)
    return int(word) if re.fullmatch(r"-?\d+", word) else word
