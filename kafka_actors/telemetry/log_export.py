"""Export of this library's log records to a collector, with their fields as attributes."""

from __future__ import annotations

import logging
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import get_current

from .instruments import DESTINATION, GROUP, PARTITION
from .logs import fields_of_call, task_now

__all__ = ["CollectorHandler", "attributes_of"]

NAMES = {"topic": DESTINATION, "group": GROUP, "offset": "messaging.kafka.offset"}


class CollectorHandler(logging.Handler):
    """Passes log records to an OpenTelemetry `LoggerProvider`. A record that is logged while a span is current carries its ids."""

    def __init__(self, provider: Any) -> None:
        super().__init__()
        self._provider = provider

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._provider.get_logger(record.name).emit(
                LogRecord(
                    timestamp=int(record.created * 1e9),
                    context=get_current(),
                    severity_text=record.levelname,
                    severity_number=_severity(record.levelno),
                    body=record.getMessage(),
                    attributes=attributes_of(record),
                    event_name=getattr(record, "event", None),
                )
            )
        except Exception:
            self.handleError(record)


def _severity(level: int) -> SeverityNumber:
    """Python's log level as OpenTelemetry's severity number: INFO is 9, and each level has four numbers."""
    step = max(0, min(level // 10, 5))
    return SeverityNumber(max(1, 4 * step + 1))


def attributes_of(record: logging.LogRecord) -> dict[str, Any]:
    """Attributes of a record: its fields, under names of the semantic conventions where there are any; the task's attributes,
    named as in its spans; and the type of an exception, without its text."""
    found: dict[str, Any] = dict(task_now())
    for name, value in fields_of_call(record).items():
        if name == "partition":
            found[PARTITION] = str(value)
        elif value is not None:
            found[NAMES.get(name, f"kafka_actors.{name}")] = value
    if record.exc_info and record.exc_info[0] is not None:
        found["exception.type"] = record.exc_info[0].__qualname__
    return found
