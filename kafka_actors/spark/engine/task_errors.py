"""Errors of tasks: parsed from Spark's reports, and raised as what they were in the task."""

from __future__ import annotations

import re

from kafka_actors.errors import JobFailed, KafkaActorsError, SinkError, StageError

_OURS = re.compile(r"^(?:\[?[\w.]*\] ?)?kafka_actors\.errors\.(\w+): (.+)$", re.MULTILINE)
_RAISED = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\w\S*.*)((?:\nraised (?:by|when) .*)*)"
)
_STAGE = re.compile(
    r"stage (?P<stage>.+?) failed on "
    r"(?:(?P<topic>[^ ]+)-(?P<partition>\d+) offsets? (?P<first>\d+)(?:-(?P<last>\d+))?|rows of no one record) "
    r"after (?P<attempts>\d+) attempts?(?:: (?P<message>.*))?"
)
_SINK = re.compile(r"(?P<sink>.+?): (?P<message>.*); the offsets of its records are not committed")


def failed(error: BaseException) -> JobFailed:
    """Converts an error of Spark's to a `JobFailed`. Its cause is the `StageError` or `SinkError` that a task raised, whose own
    cause is Spark's error with the task's traceback; for any other error the cause is Spark's error."""
    found = _OURS.findall(str(error))
    if not found:
        return JobFailed(error, f"the run failed: {_line_of(str(error))}")
    name, line = found[-1]
    cause = _cause(name, line)
    if cause is None:
        return JobFailed(error, f"the run failed: {name}: {line}")
    cause.__cause__ = error
    return JobFailed(cause, f"the run failed: {line}")


def _line_of(report: str) -> str:
    """The line of an error that a Python worker raised, with its notes; without one, the first line of the report."""
    raised = _RAISED.findall(report)
    if not raised:
        return report.strip().partition("\n")[0]
    error, notes = raised[-1]
    return f"{error} ({', '.join(notes.strip().splitlines())})" if notes else str(error)


def _cause(name: str, line: str) -> KafkaActorsError | None:
    if name == "StageError" and (match := _STAGE.fullmatch(line)):
        partition, first = int(match["partition"] or -1), int(match["first"] or -1)
        last, attempts = int(match["last"] or first), int(match["attempts"])
        return StageError(
            match["stage"], match["topic"] or "", partition, first, last, attempts, match["message"] or ""
        )
    if name == "SinkError" and (match := _SINK.fullmatch(line)):
        return SinkError(match["sink"], match["message"])
    return None
