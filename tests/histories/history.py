"""A history: what producers, readers and brokers of one run did, as events that go into files of JSON lines.

Times are those of the wall clock, in seconds since 1970, because brokers stamp commits with theirs; so all processes of a history run on one
machine. A line is written by one `write` to a file opened for appending, so it survives SIGKILL of its writer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec


class Event(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    at: float
    topic: str
    partition: int


class Sent(Event, frozen=True):
    """A record is about to be sent. `value` is unique in the history; `number` counts this producer's records to this partition from 0 on.
    Its outcome is unknown unless an `Acknowledged` or a `Refused` follows."""

    producer: str
    number: int
    value: str
    once: bool = True
    """Whether its producer promises to write it once at most."""


class Acknowledged(Event, frozen=True):
    """The producer was told that the record is written; `offset` is -1 where it was not told at which one."""

    producer: str
    value: str
    offset: int


class Refused(Event, frozen=True):
    """The record was not sent, or the broker refused it: it is in no log."""

    producer: str
    value: str
    error: str


class Assigned(Event, frozen=True):
    """A member of the reader's group was assigned the partition; `epoch` tells its assignments of it apart. `start` is its position then, if
    it was known: else the first offset that it polls counts. It asked for the committed offset between `since` and `at`."""

    reader: str
    member: str
    epoch: int
    start: int | None = None
    since: float | None = None


class Revoked(Event, frozen=True):
    """The member has lost the partition, or gave it up."""

    reader: str
    member: str
    epoch: int


class Sought(Event, frozen=True):
    """The member moved its position."""

    reader: str
    member: str
    epoch: int
    offset: int


class Polled(Event, frozen=True):
    """The member was given these records in one batch. Without an `epoch`, as in a job, whose function is not told of assignments, a new
    assignment begins with each poll of another member, and with each that does not go on where the last one ended."""

    reader: str
    member: str
    offsets: list[int]
    values: list[str]
    epoch: int | None = None


class Processed(Event, frozen=True):
    """The member has done its work on these records."""

    reader: str
    member: str
    offsets: list[int]


class Committed(Event, frozen=True):
    """The reader's group has committed this offset: in the order and with the milliseconds of `__consumer_offsets`."""

    reader: str
    offset: int
    topic_id: str = ""
    """The topic's, where the commit names it."""


class Log(Event, frozen=True):
    """All that is in the partition at the end, as a client that is none of ours reads it; `end` is the offset behind it."""

    offsets: list[int]
    values: list[str]
    end: int
    topic_id: str = ""


TRUNCATED, DELETED, RECREATED = "truncated", "deleted", "recreated"


class Gone(Event, frozen=True):
    """Records that were in the log, as the brokers' files show it, went between `since` and `at`. How: an unclean election truncated the log at
    `offset`; all before `offset` was deleted; or the topic, of this id, was deleted and made anew."""

    how: str
    since: float
    offset: int
    offsets: list[int]
    values: list[str]
    topic_id: str = ""


class Fault(msgspec.Struct, frozen=True, tag=True):
    at: float
    kind: str
    victim: str


Line = (
    Sent
    | Acknowledged
    | Refused
    | Assigned
    | Revoked
    | Sought
    | Polled
    | Processed
    | Committed
    | Log
    | Gone
    | Fault
)
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class Writer:
    """Appends events to a file, for any thread."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def write(self, *events: Line) -> None:
        os.write(self._file, msgspec.json.Encoder().encode_lines(events))

    def close(self) -> None:
        os.close(self._file)


def now() -> float:
    return time.time()


def read(paths: Iterable[Path]) -> list[Line]:
    """The events of several files in the order of their times; those of one file keep their order. A last line that its writer did not
    finish is left out."""
    found = [event for path in paths for event in read_on(path, 0)[0]]
    return sorted(found, key=lambda event: event.at)


def read_on(path: Path, begin: int) -> tuple[list[Line], int]:
    """The events of one file from the byte `begin` on, and the byte where the first one begins that is not there whole."""
    with path.open("rb") as file:
        file.seek(begin)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    return _DECODER.decode_lines(whole), begin + len(whole)
