"""What a user should learn of while a consumer or job runs: each event is a frozen, tagged Struct and one log line."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

__all__ = [
    "BadBatchSkipped",
    "CoordinatorChanged",
    "Event",
    "EventSink",
    "NoCommittedOffset",
    "OffsetReset",
    "PartitionStalled",
    "PartitionsAssigned",
    "PartitionsLost",
    "PartitionsRevoked",
    "PatternMatchesNothing",
    "RecordsDeadLettered",
    "RecordsSkipped",
    "Rejoining",
    "WorkersChanged",
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
    """A record batch could not be read (`kind`: crc, lengths, compression, size…) and on_bad_batch is skip."""

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


class WorkersChanged(Event, frozen=True):
    """A job has another number of workers from now on, by a policy or because somebody said so."""

    before: int
    after: int
    reason: str


class PatternMatchesNothing(Event, frozen=True):
    """No topic matches the subscribed pattern yet; the consumer waits for one."""

    pattern: str

    @property
    def level(self) -> int:
        return logging.WARNING


EventSink = Callable[[Event], None]


_logger = logging.getLogger(__name__)


def log_event(event: Event) -> None:
    """The default sink: one line, `Name field=value …`."""
    if _logger.isEnabledFor(event.level):
        fields = " ".join(f"{name}={getattr(event, name)!r}" for name in event.__struct_fields__)
        _logger.log(event.level, "%s %s", type(event).__name__, fields)
