"""Log lines that machines can read too: one line an event, and who says it.

A line is what `logging` makes of it, and behind it in brackets what is known besides, as `key=value`:

    2026-01-31 12:00:00,250 WARNING kafka_actors.job.worker.processing_thread: process failed … [topic=orders partition=3 actor=worker-0]

A call names such fields with `extra={"fields": {…}}`; who speaks (group, job, actor, incarnation) is the process'. A process that
works on one task after the other (a Python worker of Spark) says of which each line is: `spark_stage_id=4`. The same
fields are members of the objects of a JSON log and attributes of records that go to a collector.
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
    "in_task",
    "read_line",
    "said_by_call",
    "speaks",
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
    """Who speaks: a role of a job, in its n-th incarnation."""

    group: str = ""
    job: str = ""
    actor: str = ""
    incarnation: int = 0

    def fields(self) -> dict[str, str | int]:
        """Those that are known."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value}


_speaker: dict[str, str | int] = {}


def speaks(origin: LogOrigin) -> None:
    """All lines of this process are this one's from now on."""
    _speaker.clear()
    _speaker.update(origin.fields())


_task: Mapping[str, str | int] = {}


@contextmanager
def in_task(attributes: Mapping[str, str | int]) -> Iterator[None]:
    """All lines of this process are of this task meanwhile. `attributes` name it as the resource of its spans does."""
    global _task
    mine = _task = dict(attributes)
    try:
        yield
    finally:
        if _task is mine:  # a generator that nobody read to its end may end when the next task has begun
            _task = {}


def task_now() -> Mapping[str, str | int]:
    """The attributes of the task that this process works on; none where there is none."""
    return _task


def said_by_call(record: logging.LogRecord) -> dict[str, Any]:
    """What a record says beside its message, and who says it."""
    return {**_speaker, **getattr(record, "fields", {})}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """As `said_by_call`, with the task."""
    return {**_speaker, **_task_fields(), **getattr(record, "fields", {})}


def _task_fields() -> dict[str, str | int]:
    return {name.replace(".", "_"): value for name, value in _task.items()}


class TextFormatter(logging.Formatter):
    """Lines as above. What an event says is in its message already."""

    def __init__(self) -> None:
        super().__init__(LINE)

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = {**_speaker, **_task_fields()} if hasattr(record, "event") else fields_of(record)
        words = in_words(fields)
        return super().formatMessage(record) + (f" [{words}]" if words else "")


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, fields, and what else a call gave as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        extra = {
            name: value
            for name, value in record.__dict__.items()
            if name not in _OWN and not name.startswith("_")  # Ray adds some of those
        }
        if record.exc_info:
            extra["traceback"] = self.formatException(record.exc_info)
        event = getattr(record, "event", None)
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **({"event": event} if event is not None else {}),
            **{name: value for name, value in fields_of(record).items() if value is not None},
            **extra,
        }
        return json.dumps(said, default=str)


class LastResort(logging.Handler):
    """Lines with their fields on stderr, where the process has no handler of its own: what `logging` does then leaves them out."""

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
    """A line of `TextFormatter` as the members of a JSON log's object; None for any other text."""
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
    said: dict[str, Any] = {}
    if found["logger"] == "kafka_actors.events":
        event, _, fields = found["message"].partition(" ")
        said = {"event": event, **_read_words(fields)}
    return {**record, **_read_words(found["fields"] or ""), **said}


def _read_words(text: str) -> dict[str, Any]:
    return {found["name"]: _value(found["value"]) for found in _FIELD.finditer(text)}


def _value(word: str) -> Any:
    if word.startswith('"'):
        return json.loads(word)
    return int(word) if re.fullmatch(r"-?\d+", word) else word
