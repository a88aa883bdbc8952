"""What a user should know while a consumer or job runs: each event is a frozen, tagged Struct and one log line."""

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
    "DrainForced",
    "Event",
    "EventSink",
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
    "RecordsSkipped",
    "Rejoining",
    "WorkersChanged",
    "fields_of",
    "in_words",
    "log_event",
]

TopicPartitions = tuple[tuple[str, int], ...]


class Event(msgspec.Struct, frozen=True, tag=True):
    """Base of all events. `level` is the level its log line has."""

    @property
    def level(self) -> int:
        return logging.INFO


class OffsetReset(Event, frozen=True):
    """A position moved without a record being delivered, because the old one could not be read.

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
    """Records could not be read and on_bad_batch is skip: those from `offset` to `next_offset` are left out. `kind` is that
    of the `RecordError`: corrupt, compression, too_large, magic, timestamp."""

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


class RecordsDeadLettered(Event, frozen=True):
    """`records` of these offsets failed for good and were sent to the dead-letter topic."""

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


class PartitionsAssigned(Event, frozen=True):
    """The group gave these partitions to this member."""

    generation: int
    partitions: TopicPartitions


class PartitionsRevoked(Event, frozen=True):
    """The group took these partitions away; their work in hand was finished or its deadline passed."""

    generation: int
    partitions: TopicPartitions


class PartitionsLost(Event, frozen=True):
    """These partitions are no longer this member's and nothing about them may be committed any more."""

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
    """The member got its assignment from the group's leader, `seconds` after it wanted to join."""

    group: str
    generation: int
    seconds: float


class PartitionMoved(Event, frozen=True):
    """A worker of the job is to give up a partition. `cause`: worker_died | worker_silent | worker_retired | balance | stalled |
    group_revoked | group_lost | conflict."""

    topic: str
    partition: int
    worker: str
    cause: str


class DrainForced(Event, frozen=True):
    """A worker had not let go of a partition by its deadline: what it still has in hand won't be committed."""

    topic: str
    partition: int
    worker: str

    @property
    def level(self) -> int:
        return logging.WARNING


class CoordinatorChanged(Event, frozen=True):
    """Another broker coordinates the group now."""

    group: str
    node_id: int


class PartitionStalled(Event, frozen=True):
    """A partition with records to read made no progress for `seconds`."""

    topic: str
    partition: int
    seconds: float
    reason: str

    @property
    def level(self) -> int:
        return logging.WARNING


class PartitionNotRead(Event, frozen=True):
    """The member has owned a partition for `seconds` that nobody reads. `reason`: what it waits for, where that is known."""

    topic: str
    partition: int
    seconds: float
    reason: str

    @property
    def level(self) -> int:
        return logging.ERROR


class WorkersChanged(Event, frozen=True):
    """The number of a job's workers changes, by a policy or because a user said so."""

    before: int
    after: int
    reason: str


class NoRoomForWorkers(Event, frozen=True):
    """Only `placed` of a job's workers have a place in the Ray cluster, and the others have waited for 10 s. The job goes on
    with those; `reason` says what the first of the others waits for."""

    workers: int
    placed: int
    reason: str

    @property
    def level(self) -> int:
        return logging.WARNING


class NodeSilent(Event, frozen=True):
    """No actor of the job on a node of the Ray cluster has answered for `seconds`. What its `workers` have goes to others
    once their leases are over; nothing is ended until Ray calls the node dead, or it answers."""

    node: str
    seconds: float
    workers: list[str]

    @property
    def level(self) -> int:
        return logging.WARNING


class NodeAnswers(Event, frozen=True):
    """A node of the Ray cluster that was silent answers again; so do its `workers`, or they are judged one by one."""

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
    """What an event says, for a log: partitions are `topic-0,topic-1`."""
    return {name: _plain(getattr(event, name)) for name in event.__struct_fields__}


def _plain(value: Any) -> Any:
    return ",".join(f"{topic}-{number}" for topic, number in value) if isinstance(value, tuple) else value


def log_event(event: Event) -> None:
    """The default sink: one line, `Name field=value …`; for those who read records, the fields are there as well."""
    if _logger.isEnabledFor(event.level):
        fields = fields_of(event)
        name = type(event).__name__
        _logger.log(event.level, "%s %s", name, in_words(fields), extra={"event": name, "fields": fields})


def in_words(fields: Mapping[str, Any]) -> str:
    """`key=value key="with spaces"`; what is None is left out."""
    return " ".join(f"{name}={_word(value)}" for name, value in fields.items() if value is not None)


def _word(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if re.fullmatch(r'[^\s"=\[\]]+', text) else json.dumps(text, ensure_ascii=False)
