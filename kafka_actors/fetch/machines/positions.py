"""The positions of partitions that have none, or one in doubt: which offsets to look up, and what the answers mean.

Theory of operation. Arrives: partitions that `PartitionTable` has in one of two states, and the answers of
their leaders. Decided: what is asked now, where reading goes on, and whether records were lost on the way,
which is the user's to judge (`on_data_loss`).

Two states of `partition_state` wait here for an answer of the partition's leader:

- AWAITING_OFFSET: `lookups` says which ListOffsets to send; `ResetPolicy` chooses the timestamp by the reason for the look-up.
  An offset out of range is looked up twice: first both ends of the log, because a lagging replica says the same. If
  the position lies between them, nothing was lost and reading goes on. Otherwise `on_data_loss` decides: an error, or a second
  look-up for the place to go on, with an event. A leader of an older epoch than the record before the position is no proof, either: a broker
  that was suspended takes itself for the leader until the controller has told it, and metadata of before send a new owner there. It is
  asked again, with newer metadata, for `STALE_LEADER_S`.
- VALIDATING: the leader epoch rose, so `validations` says which OffsetForLeaderEpoch to send (KIP-320). If the leader's log of
  the position's epoch ends before the position, records that were read are not in the log any more: an error, or reading goes on
  where the logs parted. Up to there they are the same, so no record is skipped or repeated. A position without an epoch (of a seek, or
  a commit that has none) has nothing to ask about, but what is fetched behind it may be of a log that has ended: it is fetched again.
  Where the end of a bounded run has an epoch, that one is asked about, and has to reach up to the end: otherwise the run would read other
  records than those that its plan was made of. That is always an error.

An answer counts only for the version of the partition that it was asked for: each transition makes a new one. A failed look-up
is tried again after a backoff if the error is retriable, or the broker only says that something went wrong there; it fails the partition
if not. Java: `OffsetFetcherUtils.handleListOffsetResponse`, `OffsetsForLeaderEpochUtils.handleResponse`.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_actors.errors import (
    TEMPORARY_IN_LOOKUPS,
    ClusterAuthorizationFailedError,
    KafkaActorsError,
    LogTruncationError,
)
from kafka_actors.events import OffsetReset
from kafka_actors.types import TopicPartition

from .partition_state import UNKNOWN, FetchPartition, FetchState, LookupPurpose, Trigger
from .partition_table import PartitionTable
from .resets import LookupKind, OffsetLookup, ResetPolicy, error_of_loss, event_of_choice

Found = tuple[int, int] | KafkaActorsError

STALE_LEADER_S = 30.0
"""Seconds for which a leader of an older epoch than the position's is not believed. It has an end: a topic that was deleted and made anew
begins at epoch 0 again, and commits of other clients do not name the topic's id."""


class EpochValidation(NamedTuple):
    """A question where the log of an epoch ends (KIP-320). `version` tells a later answer from one that is still wanted."""

    tp: TopicPartition
    version: int
    leader_epoch: int
    """The partition's present one."""
    known_epoch: int
    """The one in which the position was read, or the end looked up."""
    leader: int = -1
    """The broker that leads the partition now, -1 if unknown."""


class PositionLookups:
    """Finds and validates the positions of the partitions of a table."""

    def __init__(self, table: PartitionTable, policy: ResetPolicy) -> None:
        self._table = table
        self._policy = policy

    # ------------------------------------------------------------ offsets to look up

    def lookups(self, now: float) -> list[OffsetLookup]:
        """Returns the offsets to look up now. A policy of `none` fails the partition instead."""
        due = []
        for partition in self._table.to_ask(FetchState.AWAITING_OFFSET, now):
            lookup = self._policy.lookup(partition)
            if lookup is None:
                self._table.fail(partition, error_of_loss(partition))
            else:
                partition.looking_up = True
                due.append(lookup)
        return due

    def on_offset(self, lookup: OffsetLookup, found: Found, now: float) -> None:
        """Takes the answer to a look-up: (offset, leader epoch), of BOUNDS (log start, log end), or why it failed."""
        partition = self._awaited(lookup.tp, lookup.version)
        if partition is None:
            return
        if isinstance(found, KafkaActorsError):
            self._lookup_failed(partition, found, now)
        elif lookup.kind is LookupKind.BOUNDS:
            self._on_bounds(partition, found[0], found[1], now)
        else:
            event = event_of_choice(partition, found[0], self._policy)
            if event is not None:
                self._table.events.append(event)
            partition.position_epoch = found[1]
            self._table.set_position(partition, found[0], Trigger.OFFSET_KNOWN)

    def _on_bounds(self, partition: FetchPartition, start: int, end: int, now: float) -> None:
        """Decides after an offset was out of range: it is in the log after all, or lost.

        Then `on_data_loss` says what follows.
        """
        if start <= partition.position <= end:
            partition.move(Trigger.OFFSET_KNOWN)  # the log has it after all: nothing is reset
            partition.purpose = None
            self._table.back_off(partition, "OFFSET_OUT_OF_RANGE", now)
        elif _leader_is_stale(partition, now):
            leader, known = partition.leader_epoch, partition.known_epoch
            self._ask_again(
                partition,
                f"broker {partition.leader} leads in epoch {leader}, and a later one, {known}, is known",
                now,
            )
        elif self._policy.loss_is_fatal:
            self._table.fail(partition, error_of_loss(partition, start, end))
        else:
            partition.proven = True
            partition.looking_up = False

    # ------------------------------------------------------------ truncation (KIP-320)

    def validations(self, now: float) -> list[EpochValidation]:
        """Returns the questions for OffsetForLeaderEpoch that are due."""
        due = []
        for partition in self._table.to_ask(FetchState.VALIDATING, now):
            # Position and epoch belong together only when nothing is still in the user's hands.
            if partition.position != partition.delivered:
                continue
            if partition.known_epoch < 0:
                # There is no epoch to ask about: what was fetched is discarded, and none of it was consumed.
                self._validated(partition)
            else:
                partition.looking_up = True
                due.append(
                    EpochValidation(
                        partition.tp,
                        partition.version,
                        partition.leader_epoch,
                        partition.known_epoch,
                        partition.leader,
                    )
                )
        return due

    def on_epoch_end(self, tp: TopicPartition, version: int, found: Found, now: float) -> None:
        """Takes (epoch, end offset) that the leader has for the known epoch, -1 for unknown ones, or why it failed."""
        partition = self._awaited(tp, version)
        if partition is None:
            return
        if isinstance(found, ClusterAuthorizationFailedError):
            found = UNKNOWN, UNKNOWN  # before Kafka 2.3 only who has rights on the cluster may ask
        if isinstance(found, KafkaActorsError):
            self._lookup_failed(partition, found, now)
            return
        epoch, end = found
        if partition.end_epoch >= 0 and partition.end_offset is not None:
            if 0 <= end < partition.end_offset:
                self._table.fail(partition, LogTruncationError(*tp, partition.end_offset, end, epoch))
                return
            partition.end_epoch = partition.leader_epoch
        elif epoch >= 0 and end >= 0 and (epoch < partition.position_epoch or end < partition.position):
            self._diverged(partition, epoch, end)
            return
        self._validated(partition)

    def _validated(self, partition: FetchPartition) -> None:
        """Goes on at the position."""
        partition.move(Trigger.VALIDATED)
        partition.failures = 0
        self._table.touch(partition.tp)
        self._table.check_end(partition)

    def _diverged(self, partition: FetchPartition, epoch: int, end: int) -> None:
        """Goes on at `end`, where the leader's log and the one that was read part; or fails, as the options say."""
        topic, number = partition.tp
        old, new = partition.position, min(end, partition.position)
        if self._policy.loss_is_fatal:
            self._table.fail(partition, LogTruncationError(topic, number, old, end, epoch))
            return
        self._table.events.append(OffsetReset(topic, number, old, new, LookupPurpose.TRUNCATED.value, 0))
        partition.position_epoch = epoch
        self._table.set_position(partition, new, Trigger.OFFSET_KNOWN)

    def _awaited(self, tp: TopicPartition, version: int) -> FetchPartition | None:
        """Returns the partition if the answer for this version is still wanted."""
        partition = self._table.get(tp)
        return (
            partition
            if partition is not None and partition.version == version and partition.looking_up
            else None
        )

    def _lookup_failed(self, partition: FetchPartition, error: KafkaActorsError, now: float) -> None:
        """Has a failed look-up tried again after a backoff, with newer metadata; or fails the partition, if no
        retry mends the error.
        """
        if error.retriable or isinstance(error, TEMPORARY_IN_LOOKUPS):
            self._ask_again(partition, str(error), now)
        else:
            partition.looking_up = False
            self._table.fail(partition, error)

    def _ask_again(self, partition: FetchPartition, trouble: str, now: float) -> None:
        partition.looking_up = False
        self._table.refresh_metadata = True
        self._table.back_off(partition, trouble, now)


def _leader_is_stale(partition: FetchPartition, now: float) -> bool:
    """Whether the leader that answered was followed by the one of the position, for as long as that may be so."""
    if partition.leader_epoch < 0 or partition.leader_epoch >= partition.known_epoch:
        return False  # an unknown epoch is no older one: those of brokers before Kafka 2.4 can't be relied on
    if partition.doubted_since is None:
        partition.doubted_since = now
    return now < partition.doubted_since + STALE_LEADER_S
