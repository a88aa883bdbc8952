"""The answers to fetches: whether a partition's records are taken, and what an error or a hint means for its position.

Theory of operation. Arrives: one `FetchedPartition` per partition of a response. An answer counts only if it continues
where the partition stands: under the same assignment epoch and at exactly the offset that was to come next (`fetched`).
Everything else is stale, from before a seek or a revocation, and has the partition asked for anew. So records are neither
skipped nor taken twice, whatever the order of answers and calls.

Decided, in this order: an error code (`action_for` has the table); another replica to read from (KIP-392); records. Answers
with a diverging epoch (KIP-595) don't occur: brokers give them only to requests that name the last epoch fetched, as followers'
do, and neither Java's consumer nor this one does. A truncated log is found by asking (`positions`). Of all errors only an offset out of range ever leads to a reset; every other one
leaves the position as it is. It is believed only of the leader, and only once the records that are already fetched are consumed: a
follower may lag behind. Even then the position is looked up before it counts as lost (`positions`).
`FetchCollector.handleInitializeErrors` in Java's client is the model.
"""

from __future__ import annotations

import math
from enum import Enum

from kafka_actors.errors import (
    CorruptMessageError,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownLeaderEpochError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for_code,
    for_code,
)
from kafka_actors.fetch.messages import FetchedPartition

from .partition_state import UNKNOWN, FetchPartition, LookupPurpose
from .partition_table import PartitionTable
from .positions import PositionLookups


class FetchErrorAction(Enum):
    """Ways to treat a partition that can't be fetched."""

    RETRY = "retry"  # again after a backoff
    REFRESH = "refresh"  # the same, and metadata is asked for
    OUT_OF_RANGE = "out of range"
    FAIL = "fail"


_ACTIONS: dict[type[KafkaError], FetchErrorAction] = {
    OffsetOutOfRangeError: FetchErrorAction.OUT_OF_RANGE,
    CorruptMessageError: FetchErrorAction.FAIL,  # what the broker has on disk is broken
    UnknownTopicOrPartitionError: FetchErrorAction.REFRESH,
    LeaderNotAvailableError: FetchErrorAction.REFRESH,
    NotLeaderOrFollowerError: FetchErrorAction.REFRESH,
    ReplicaNotAvailableError: FetchErrorAction.REFRESH,
    TopicAuthorizationFailedError: FetchErrorAction.FAIL,
    KafkaStorageError: FetchErrorAction.REFRESH,
    FencedLeaderEpochError: FetchErrorAction.REFRESH,  # the broker knows of a newer leader
    UnknownLeaderEpochError: FetchErrorAction.RETRY,  # we know of a newer leader than the broker does
    OffsetNotAvailableError: FetchErrorAction.REFRESH,  # a new leader whose high watermark isn't there yet
    UnknownTopicIdError: FetchErrorAction.REFRESH,  # deleted, or the broker doesn't know it yet
    InconsistentTopicIdError: FetchErrorAction.REFRESH,
}


def action_for(code: int) -> FetchErrorAction:
    """Returns the action for an error code other than 0; where the table has none, whether Kafka calls it retriable decides. A code of a newer
    Kafka counts as `UnknownServerError`."""
    kind = for_code(code)
    if kind is None or kind.code != code:  # not a code of Kafka's
        return FetchErrorAction.FAIL
    if issubclass(kind, UnknownServerError):
        return FetchErrorAction.RETRY
    return _ACTIONS.get(kind, FetchErrorAction.REFRESH if kind.retriable else FetchErrorAction.FAIL)


_WITH_LEADER = (NotLeaderOrFollowerError, FencedLeaderEpochError)
"""Errors with which a broker may name the leader (KIP-951)."""


class FetchResults:
    """Applies the answers to fetches to the partitions of a table.

    An answer that isn't taken has its partition asked for anew, at once or after a backoff, unless it fails the partition. An
    empty one without an error is not of these: the partition stays in the session, and the broker answers when it has records.
    """

    def __init__(self, table: PartitionTable, positions: PositionLookups) -> None:
        self._table = table
        self._positions = positions

    def on_fetched(
        self, partition: FetchPartition, fetched: FetchedPartition, broker: int, now: float
    ) -> bool:
        """Returns whether the records of `fetched` are to be buffered.

        The caller has checked that a pull after the partition's last change was answered; epoch and offset are checked here.
        """
        if fetched.epoch != partition.epoch or not partition.wants_records:
            self._table.touch(partition.tp)
            return False
        if fetched.fetch_offset != partition.fetched:
            self._table.touch(partition.tp)  # the connection side is at another offset: ask again from here
            return False
        if fetched.error_code:
            self._on_error(partition, fetched, broker, now)
            return False
        _note_ends(partition, fetched)
        if fetched.preferred_read_replica >= 0:
            self._table.prefer_replica(partition, fetched.preferred_read_replica, now)
            return False
        partition.failures = 0
        partition.trouble = ""
        if fetched.size:
            partition.fetched = fetched.next_offset
            if fetched.next_offset == fetched.fetch_offset:
                # Unreadable: the decoder finds out why, and until then there is no point in fetching it again.
                partition.retry_at = math.inf
                partition.trouble = "unreadable records"
            self._table.check_end(partition)
            return True
        return False

    def _on_error(
        self, partition: FetchPartition, fetched: FetchedPartition, broker: int, now: float
    ) -> None:
        """Treats an error code. One that may pass sends the partition back to its leader.

        A broker that no longer leads may say who does (KIP-951). With a newer epoch that is taken over at once, without a
        backoff; with any other the hint is no news, and is left alone.
        """
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
            self._table.fail(partition, error)
        elif action is FetchErrorAction.OUT_OF_RANGE:
            self._out_of_range(partition, broker, now)
        else:
            self._table.refresh_metadata |= action is FetchErrorAction.REFRESH
            partition.replica = UNKNOWN
            hinted = for_code(code) in _WITH_LEADER and fetched.current_leader_epoch > partition.leader_epoch
            if hinted and fetched.current_leader_id >= 0:
                self._table.set_leader(partition, fetched.current_leader_id, fetched.current_leader_epoch)
            else:
                self._table.back_off(partition, _name(code), now)

    def _out_of_range(self, partition: FetchPartition, broker: int, now: float) -> None:
        """Treats the one error that may cost the position: only from the leader, and only when nothing that was fetched is left."""
        if partition.replica >= 0 and broker == partition.replica:
            # A follower may lag behind the leader; its word is no proof.
            partition.replica = UNKNOWN
            self._table.touch(partition.tp)
        elif partition.position != partition.fetched:
            # Good records come first. Once they are consumed the broker is asked again.
            self._table.back_off(partition, "OFFSET_OUT_OF_RANGE", now)
        else:
            self._table.lose_position(partition, LookupPurpose.OUT_OF_RANGE)


def _note_ends(partition: FetchPartition, fetched: FetchedPartition) -> None:
    """Takes over the bounds of the log, for lag and progress. A broker sends -1 for one that it doesn't know: the last one stays."""
    if fetched.high_watermark >= 0:
        partition.high_watermark = fetched.high_watermark
    if fetched.last_stable_offset >= 0:
        partition.last_stable_offset = fetched.last_stable_offset


def _name(code: int) -> str:
    kind = for_code(code)
    return "" if kind is None else kind.name
