"""The action for each error code of a fetched partition.

Only the broker's own word on an offset out of range ever leads to a reset; every other error leaves the position as it is.
`FetchCollector.handleInitializeErrors` in Java's client is the model.
"""

from __future__ import annotations

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
    for_code,
)


class FetchErrorAction(Enum):
    """Ways to treat a partition that can't be fetched."""

    RETRY = "retry"  # again after a backoff
    REFRESH = "refresh"  # the same, and metadata is asked for
    OUT_OF_RANGE = "out of range"
    FAIL = "fail"


_ACTIONS: dict[type[KafkaError], FetchErrorAction] = {
    UnknownServerError: FetchErrorAction.RETRY,
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
    """Returns the action for an error code other than 0; where the table has none, whether Kafka calls it retriable decides."""
    kind = for_code(code)
    if kind is None or kind.code != code:  # not a code of Kafka's
        return FetchErrorAction.FAIL
    return _ACTIONS.get(kind, FetchErrorAction.REFRESH if kind.retriable else FetchErrorAction.FAIL)
