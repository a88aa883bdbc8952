"""What brokers answer, and what it means for the position of a partition."""

from __future__ import annotations

import math
from typing import NamedTuple

from kafka_actors.errors import (
    FencedLeaderEpochError,
    KafkaActorsError,
    LogTruncationError,
    NotLeaderOrFollowerError,
    error_for_code,
    for_code,
)
from kafka_actors.events import OffsetReset
from kafka_actors.fetch.messages import FetchedPartition
from kafka_actors.types import TopicPartition

from .error_actions import FetchErrorAction, action_for
from .partition_state import UNKNOWN, FetchPartition, FetchState, LookupPurpose, Trigger
from .partition_table import PartitionTable
from .resets import LookupKind, OffsetLookup, error_of_loss, event_of_choice

_WITH_LEADER = (NotLeaderOrFollowerError, FencedLeaderEpochError)
"""Errors with which a broker may name the leader (KIP-951)."""


class EpochValidation(NamedTuple):
    """A question where the log of an epoch ends (KIP-320). `version` tells a later answer from one that is still wanted."""

    tp: TopicPartition
    version: int
    leader_epoch: int
    """The partition's present one."""
    position_epoch: int
    """The one in which the position was read."""


class Positions(PartitionTable):
    """The partitions of one worker, with fetches, look-ups and checks for truncation answered."""

    # ------------------------------------------------------------ what a broker answered to a fetch

    def on_fetched(
        self, partition: FetchPartition, fetched: FetchedPartition, broker: int, now: float
    ) -> bool:
        """Whether the records of `fetched` are to be buffered. The caller has checked that it is no answer to
        an older want; the epoch and the offset are checked here."""
        if fetched.epoch != partition.epoch or not partition.wants_records:
            self.touch(partition.tp)
            return False
        if fetched.fetch_offset != partition.fetched:
            self.touch(partition.tp)  # the connection side is elsewhere: want it from here again
            return False
        if fetched.error_code:
            self._on_error(partition, fetched, broker, now)
            return False
        self._note_ends(partition, fetched)
        if fetched.diverging_end_offset >= 0:
            self._diverged(partition, fetched.diverging_epoch, fetched.diverging_end_offset)
            return False
        if fetched.preferred_read_replica >= 0:
            partition.replica = fetched.preferred_read_replica
            partition.replica_until = now + self._replica_lifetime_s
            self._attention[partition.tp] = partition
            self.touch(partition.tp)
            return False
        partition.failures = 0
        partition.trouble = ""
        if fetched.size:
            partition.fetched = fetched.next_offset
            if fetched.next_offset == fetched.fetch_offset:
                # Unreadable: the decoder finds out why, and until then there is no point in fetching it again.
                partition.retry_at = math.inf
                partition.trouble = "unreadable records"
            self._check_end(partition)
            return True
        return False

    def _note_ends(self, partition: FetchPartition, fetched: FetchedPartition) -> None:
        if fetched.high_watermark >= 0:
            partition.high_watermark = fetched.high_watermark
        if fetched.last_stable_offset >= 0:
            partition.last_stable_offset = fetched.last_stable_offset
        if fetched.log_start_offset >= 0:
            partition.log_start_offset = fetched.log_start_offset

    def _on_error(
        self, partition: FetchPartition, fetched: FetchedPartition, broker: int, now: float
    ) -> None:
        code = fetched.error_code
        action = action_for(code)
        if action is FetchErrorAction.FAIL:
            error = error_for_code(
                code,
                request="Fetch",
                topic=partition.tp.topic,
                partition=partition.tp.partition,
                broker=broker,
            )
            assert error is not None  # the action is that of a code other than 0
            self.fail(partition, error)
        elif action is FetchErrorAction.OUT_OF_RANGE:
            self._out_of_range(partition, broker, now)
        else:
            self.refresh_metadata |= action is FetchErrorAction.REFRESH
            partition.replica = UNKNOWN
            hinted = for_code(code) in _WITH_LEADER and fetched.current_leader_epoch > partition.leader_epoch
            if hinted and fetched.current_leader_id >= 0:
                self._led_by(partition, fetched.current_leader_id, fetched.current_leader_epoch)
            else:
                self.back_off(partition, _name(code), now)

    def _out_of_range(self, partition: FetchPartition, broker: int, now: float) -> None:
        if partition.replica >= 0 and broker == partition.replica:
            # A follower may lag behind the leader; its word is no proof.
            partition.replica = UNKNOWN
            self.touch(partition.tp)
        elif partition.position != partition.fetched:
            # Good records come first. Once they are consumed the broker is asked again.
            self.back_off(partition, "OFFSET_OUT_OF_RANGE", now)
        else:
            self._lose(partition, LookupPurpose.OUT_OF_RANGE)

    # ------------------------------------------------------------ offsets to look up

    def lookups(self, now: float) -> list[OffsetLookup]:
        """What ListOffsets has to be asked now. A policy `none` fails the partition instead."""
        due = []
        for partition in self._waiting(FetchState.AWAITING_OFFSET, now):
            lookup = self._policy.lookup(partition)
            if lookup is None:
                self.fail(partition, error_of_loss(partition))
            else:
                partition.looking_up = True
                due.append(lookup)
        return due

    def on_offset(self, lookup: OffsetLookup, found: tuple[int, int] | KafkaActorsError, now: float) -> None:
        """`found`: (offset, leader epoch) of the lookup; of BOUNDS: (log start, log end); or why it failed."""
        partition = self._asking(lookup.tp, lookup.version)
        if partition is None:
            return
        if isinstance(found, KafkaActorsError):
            self._lookup_failed(partition, found, now)
        elif lookup.kind is LookupKind.BOUNDS:
            self._on_bounds(partition, found[0], found[1], now)
        else:
            event = event_of_choice(partition, found[0], self._policy)
            if event is not None:
                self.events.append(event)
            partition.position_epoch = found[1]
            self._place(partition, found[0], Trigger.OFFSET_KNOWN)

    def _on_bounds(self, partition: FetchPartition, start: int, end: int, now: float) -> None:
        partition.log_start_offset = start
        if start <= partition.position <= end:
            partition.move(Trigger.OFFSET_KNOWN)  # the log has it after all: nothing is reset
            partition.purpose = None
            self.back_off(partition, "OFFSET_OUT_OF_RANGE", now)
        elif self._policy.loss_is_fatal:
            self.fail(partition, error_of_loss(partition, start, end))
        else:
            partition.proven = True
            partition.looking_up = False

    # ------------------------------------------------------------ truncation (KIP-320)

    def validations(self, now: float) -> list[EpochValidation]:
        """Returns the questions for OffsetForLeaderEpoch that are due."""
        due = []
        for partition in self._waiting(FetchState.VALIDATING, now):
            # Position and epoch belong together only when nothing is still in the user's hands.
            if partition.position == partition.delivered:
                partition.looking_up = True
                due.append(
                    EpochValidation(
                        partition.tp, partition.version, partition.leader_epoch, partition.position_epoch
                    )
                )
        return due

    def on_epoch_end(
        self, tp: TopicPartition, version: int, found: tuple[int, int] | KafkaActorsError, now: float
    ) -> None:
        """`found`: (epoch, end offset) that the leader has for the position's epoch, -1 for what it doesn't know."""
        partition = self._asking(tp, version)
        if partition is None:
            return
        if isinstance(found, KafkaActorsError):
            self._lookup_failed(partition, found, now)
            return
        epoch, end = found
        if epoch >= 0 and end >= 0 and (epoch < partition.position_epoch or end < partition.position):
            self._diverged(partition, epoch, end)
            return
        partition.move(Trigger.VALIDATED)
        partition.failures = 0
        self.touch(tp)
        self._check_end(partition)

    def _diverged(self, partition: FetchPartition, epoch: int, end: int) -> None:
        topic, number = partition.tp
        old, new = partition.position, min(end, partition.position)
        if self._policy.loss_is_fatal:
            self.fail(partition, LogTruncationError(topic, number, old, end, epoch))
            return
        # Up to the divergence both logs are the same, so going on there neither skips nor repeats a record.
        self.events.append(OffsetReset(topic, number, old, new, LookupPurpose.TRUNCATED.value, 0))
        partition.position_epoch = epoch
        self._place(
            partition,
            new,
            Trigger.OFFSET_KNOWN if partition.state is FetchState.VALIDATING else Trigger.SOUGHT,
        )

    def _asking(self, tp: TopicPartition, version: int) -> FetchPartition | None:
        partition = self._partitions.get(tp)
        return (
            partition
            if partition is not None and partition.version == version and partition.looking_up
            else None
        )

    def _lookup_failed(self, partition: FetchPartition, error: KafkaActorsError, now: float) -> None:
        partition.looking_up = False
        if error.retriable:
            self.refresh_metadata = True
            self.back_off(partition, str(error), now)
        else:
            self.fail(partition, error)


def _name(code: int) -> str:
    kind = for_code(code)
    return "" if kind is None else kind.name
