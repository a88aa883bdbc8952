"""Events that users should know of while a consumer or a job runs: each is a frozen, tagged Struct and one log line."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

__all__ = [
    "BadBatchSkipped",
    "CoordinatorChanged",
    "DoneOffsetsDropped",
    "DrainForced",
    "Event",
    "EventSink",
    "NewSchemaSeen",
    "NoCommittedOffset",
    "NoRoomForWorkers",
    "NodeAnswers",
    "NodeSilent",
    "OffsetReset",
    "PartitionMoved",
    "PartitionNotRead",
    "PartitionStalled",
    "PartitionsAssigned",
    "PartitionsLost",
    "PartitionsRevoked",
    "PatternMatchesNothing",
    "Rebalanced",
    "RecordsDeadLettered",
    "RecordsRetriedLater",
    "RecordsSkipped",
    "Rejoining",
    "TransactionAborted",
    "WorkersChanged",
    "fields_of",
    "in_words",
    "log_event",
]

TopicPartitions = tuple[tuple[str, int], ...]


class Event(msgspec.Struct, frozen=True, tag=True):
    """Base of all events. `level` is the level of the event's log line."""

    @property
    def level(self) -> int:
        return logging.INFO


class OffsetReset(Event, frozen=True):
    """A position moved without a record being delivered, because the old position could not be read.

    `reason`: out_of_range | truncated | recreated. `skipped`: how many offsets lie between, None if unknown.
    """

    topic: str
    partition: int
    old: int
    new: int
    reason: str
    skipped: int | None = None

    @property
    def level(self) -> int:
        return logging.WARNING


class NoCommittedOffset(Event, frozen=True):
    """The group has no offset for this partition; `chosen` is where it starts, by `policy`."""

    topic: str
    partition: int
    chosen: int
    policy: str


class BadBatchSkipped(Event, frozen=True):
    """Records from `offset` up to, not including, `next_offset` could not be read and are skipped, because on_bad_batch is
    skip. `kind` is that of the `RecordError`: corrupt, compression, too_large, magic, timestamp."""

    topic: str
    partition: int
    offset: int
    next_offset: int
    kind: str

    @property
    def level(self) -> int:
        return logging.WARNING


class RecordsSkipped(Event, frozen=True):
    """The user's function failed for these records after all retries and on_error is skip."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    error: str

    @property
    def level(self) -> int:
        return logging.WARNING


class DoneOffsetsDropped(Event, frozen=True):
    """Records that a commit's metadata calls done, from `offset` on, are processed again, for this `reason`."""

    topic: str
    partition: int
    offset: int
    reason: str

    @property
    def level(self) -> int:
        return logging.WARNING


class RecordsDeadLettered(Event, frozen=True):
    """`records` with these offsets failed for good and were sent to the dead letter topic."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    dead_letter_topic: str
    error: str

    @property
    def level(self) -> int:
        return logging.WARNING


class RecordsRetriedLater(Event, frozen=True):
    """`records` with these offsets failed, and were sent to a retry topic: they are tried again when they are due."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    retry_topic: str
    error: str

    @property
    def level(self) -> int:
        return logging.WARNING


class PartitionsAssigned(Event, frozen=True):
    """The group assigned these partitions to this member."""

    generation: int
    partitions: TopicPartitions


class PartitionsRevoked(Event, frozen=True):
    """The group revoked these partitions; calls in progress were finished, or their deadline passed."""

    generation: int
    partitions: TopicPartitions


class PartitionsLost(Event, frozen=True):
    """This member lost these partitions without a revocation; nothing may be committed for them any more."""

    partitions: TopicPartitions
    reason: str

    @property
    def level(self) -> int:
        return logging.WARNING


class Rejoining(Event, frozen=True):
    """The member joins the group again."""

    group: str
    reason: str


class Rebalanced(Event, frozen=True):
    """The member received its assignment, `seconds` after it began to join."""

    group: str
    generation: int
    seconds: float


class PartitionMoved(Event, frozen=True):
    """A partition is taken from a worker of the job. `cause`: worker_died | worker_silent | worker_retired | balance | stalled |
    group_revoked | group_lost | conflict | reset."""

    topic: str
    partition: int
    worker: str
    cause: str


class DrainForced(Event, frozen=True):
    """A worker had not released a partition by the deadline of its drain: its calls in progress won't be committed."""

    topic: str
    partition: int
    worker: str

    @property
    def level(self) -> int:
        return logging.WARNING


class CoordinatorChanged(Event, frozen=True):
    """The group's coordinator is another broker now."""

    group: str
    node_id: int


class TransactionAborted(Event, frozen=True):
    """A worker of a job that delivers exactly once lost what it had in its open transaction: `records` are processed again, by
    whichever worker gets their partitions."""

    worker: str
    cause: str
    records: int

    @property
    def level(self) -> int:
        return logging.WARNING


class NewSchemaSeen(Event, frozen=True):
    """The first values have come that were written by a schema which wasn't known when the job started; `schema` is its id or GUID in the
    registry. The stage reads them by the schema `reader`, as all others."""

    stage: str
    schema: str
    reader: str


class PartitionStalled(Event, frozen=True):
    """A partition with records to read has made no progress for `seconds`."""

    topic: str
    partition: int
    seconds: float
    reason: str

    @property
    def level(self) -> int:
        return logging.WARNING


class PartitionNotRead(Event, frozen=True):
    """The member has owned a partition for `seconds` without reading it. `reason`: what it waits for, if known."""

    topic: str
    partition: int
    seconds: float
    reason: str

    @property
    def level(self) -> int:
        return logging.ERROR


class WorkersChanged(Event, frozen=True):
    """The number of a job's workers changes, by a policy or by a user."""

    before: int
    after: int
    reason: str


class NoRoomForWorkers(Event, frozen=True):
    """Ray has scheduled only `placed` of a job's workers; the others have waited for 10 s. The job runs with those that are
    placed; `reason` says what the first of the others waits for."""

    workers: int
    placed: int
    reason: str

    @property
    def level(self) -> int:
        return logging.WARNING


class NodeSilent(Event, frozen=True):
    """No actor of the job on a node of the Ray cluster has answered for `seconds`. The partitions of its `workers` go to other
    workers once the leases are over; no process is ended before Ray declares the node dead or it answers."""

    node: str
    seconds: float
    workers: list[str]

    @property
    def level(self) -> int:
        return logging.WARNING


class NodeAnswers(Event, frozen=True):
    """A node of the Ray cluster that was silent answers again; each of its `workers` that does not is checked singly."""

    node: str
    workers: list[str]


class PatternMatchesNothing(Event, frozen=True):
    """No topic matches the subscribed pattern yet; the consumer waits for one."""

    pattern: str

    @property
    def level(self) -> int:
        return logging.WARNING


EventSink = Callable[[Event], None]


_logger = logging.getLogger(__name__)


def fields_of(event: Event) -> dict[str, str | int | float | None]:
    """Returns an event's fields for a log line; several partitions become `topic-0,topic-1`."""
    return {name: _plain(getattr(event, name)) for name in event.__struct_fields__}


def _plain(value: Any) -> Any:
    return ",".join(f"{topic}-{number}" for topic, number in value) if isinstance(value, tuple) else value


def log_event(event: Event) -> None:
    """Logs an event as one line, `Name field=value …`; the default sink. The log record has the fields as attributes too."""
    if _logger.isEnabledFor(event.level):
        fields = fields_of(event)
        name = type(event).__name__
        _logger.log(event.level, "%s %s", name, in_words(fields), extra={"event": name, "fields": fields})


def in_words(fields: Mapping[str, Any]) -> str:
    """Formats fields as `key=value key="with spaces"`; None is left out."""
    return " ".join(f"{name}={_word(value)}" for name, value in fields.items() if value is not None)


def _word(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if re.fullmatch(r'[^\s"=\[\]]+', text) else json.dumps(text, ensure_ascii=False)
