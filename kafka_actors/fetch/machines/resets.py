"""The policy for partitions without a valid position: which offset to look up, or which error to raise.

`auto_offset_reset` (with KIP-1106's `by_duration`) and `on_data_loss` decide by the reason for which the position is missing. No
commit follows `auto_offset_reset`. A new partition of a topic that is consumed already, and a recreated topic, begin at their
start: nothing of them has been read. Lost data is an error under `on_data_loss="fail"` or `auto_offset_reset="none"`; else
reading goes on by policy, with an `OffsetReset` event that says how many offsets were skipped.

A seek to an end of the log is the user's wish, so nothing is lost by it and no event tells of it. An offset out of range is looked
up by both bounds of the log first (`LookupKind.BOUNDS`): only they prove it, since a broker that lags behind gives the same error.
Nothing is remembered here: the purpose and the proof are the partition's. Java's `FetchCollector` resets without that proof, and
only logs it.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from kafka_actors.base.timeouts import parse_iso8601
from kafka_actors.errors import (
    FetchOffsetOutOfRangeError,
    KafkaActorsError,
    NoOffsetForPartitionError,
    TopicRecreatedError,
)
from kafka_actors.events import Event, NoCommittedOffset, OffsetReset
from kafka_actors.types import TopicPartition

from .partition_state import DATA_LOSS, FetchPartition, LookupPurpose


class LookupKind(Enum):
    """Kinds of questions to ListOffsets."""

    EARLIEST = "earliest"
    LATEST = "latest"
    DURATION = "by_duration"  # the first record not older than this (KIP-1106)
    BOUNDS = "bounds"  # both ends of the log: is the position really outside?


class OffsetLookup(Struct, frozen=True):
    """One offset to look up. `version` is that of the partition: an answer for an older one is obsolete. `leader` is the broker that leads it
    now, -1 if unknown."""

    tp: TopicPartition
    version: int
    kind: LookupKind
    seconds: float = 0.0  # of DURATION: how far back
    leader_epoch: int = -1
    leader: int = -1


class ResetPolicy(Struct, frozen=True):
    """`auto_offset_reset` (Kafka's option and KIP-1106) and `on_data_loss` ("fail" or "reset")."""

    auto_offset_reset: str
    on_data_loss: str

    @property
    def loss_is_fatal(self) -> bool:
        """Whether lost data fails the partition."""
        return self.on_data_loss == "fail" or self.auto_offset_reset == "none"

    def lookup(self, partition: FetchPartition) -> OffsetLookup | None:
        """Returns the offset to look up for this partition; None where the policy is `none` and it has to fail."""
        purpose = partition.purpose
        if purpose is LookupPurpose.OUT_OF_RANGE and not partition.proven:
            return self._ask(partition, LookupKind.BOUNDS)
        if purpose in (LookupPurpose.BEGINNING, LookupPurpose.SEEK_BEGINNING, LookupPurpose.RECREATED):
            # Nothing of a recreated topic has been read: its partitions are new ones.
            return self._ask(partition, LookupKind.EARLIEST)
        if purpose is LookupPurpose.SEEK_END:
            return self._ask(partition, LookupKind.LATEST)
        name, _, duration = self.auto_offset_reset.partition(":")
        if name == "none":
            return None
        if name == "by_duration":
            return self._ask(partition, LookupKind.DURATION, parse_iso8601(duration))
        return self._ask(partition, LookupKind(name))

    def _ask(self, partition: FetchPartition, kind: LookupKind, seconds: float = 0.0) -> OffsetLookup:
        return OffsetLookup(
            partition.tp, partition.version, kind, seconds, partition.leader_epoch, partition.leader
        )


def event_of_choice(partition: FetchPartition, chosen: int, policy: ResetPolicy) -> Event | None:
    """Returns the event for a position that was chosen by policy; None where the user asked for it."""
    topic, number = partition.tp
    purpose, old = partition.purpose, partition.position
    if purpose in DATA_LOSS and purpose is not None:
        return OffsetReset(
            topic, number, old, chosen, purpose.value, max(0, chosen - old) if old >= 0 else None
        )
    if purpose is LookupPurpose.NO_COMMIT:
        return NoCommittedOffset(topic, number, chosen, policy.auto_offset_reset)
    if purpose is LookupPurpose.BEGINNING:
        return NoCommittedOffset(topic, number, chosen, "earliest")
    return None


def error_of_loss(
    partition: FetchPartition, start: int | None = None, end: int | None = None, old_id: object = None
) -> KafkaActorsError:
    """Returns the typed error of a partition whose options forbid to choose a position.

    `start`, `end`: the bounds of the log, where they were looked up. `old_id`: the id of the topic that the position is of.
    """
    topic, number = partition.tp
    if partition.purpose is LookupPurpose.OUT_OF_RANGE:
        return FetchOffsetOutOfRangeError(topic, number, partition.position, start, end)
    if partition.purpose is LookupPurpose.RECREATED:
        old = partition.position if partition.position >= 0 else None
        return TopicRecreatedError(topic, number, old, _hex(old_id), _hex(partition.topic_id))
    return NoOffsetForPartitionError(topic, number)


def _hex(topic_id: object) -> object:
    return topic_id.hex() if isinstance(topic_id, bytes) else topic_id
