"""What each error code of a fetched partition means for its position: nothing but the broker's own word on an
offset out of range ever leads to a reset (`Fetcher.handleInitializeErrors` in Java's client is the model).
"""

from __future__ import annotations

from enum import Enum

from kafka_actors.errors import for_code


class Action(Enum):
    """What to do about a partition that can't be fetched."""

    RETRY = "retry"  # again after a backoff
    REFRESH = "refresh"  # the same, and metadata is asked for
    OUT_OF_RANGE = "out of range"
    FAIL = "fail"


ACTIONS: dict[int, Action] = {
    -1: Action.RETRY,  # UNKNOWN_SERVER_ERROR
    1: Action.OUT_OF_RANGE,  # OFFSET_OUT_OF_RANGE
    2: Action.FAIL,  # CORRUPT_MESSAGE: what the broker has on disk is broken
    3: Action.REFRESH,  # UNKNOWN_TOPIC_OR_PARTITION
    5: Action.REFRESH,  # LEADER_NOT_AVAILABLE
    6: Action.REFRESH,  # NOT_LEADER_OR_FOLLOWER
    9: Action.REFRESH,  # REPLICA_NOT_AVAILABLE
    29: Action.FAIL,  # TOPIC_AUTHORIZATION_FAILED
    56: Action.REFRESH,  # KAFKA_STORAGE_ERROR
    74: Action.REFRESH,  # FENCED_LEADER_EPOCH: the broker knows of a newer leader
    75: Action.RETRY,  # UNKNOWN_LEADER_EPOCH: we know of a newer leader than the broker does
    78: Action.REFRESH,  # OFFSET_NOT_AVAILABLE: a new leader whose high watermark isn't there yet
    100: Action.REFRESH,  # UNKNOWN_TOPIC_ID: deleted, or the broker doesn't know it yet
    103: Action.REFRESH,  # INCONSISTENT_TOPIC_ID
}


def action_for(code: int) -> Action:
    """The table's entry; for any other code, whether Kafka calls it retriable decides."""
    known = ACTIONS.get(code)
    if known is not None:
        return known
    kind = for_code(code)
    return Action.REFRESH if kind is not None and kind.retriable else Action.FAIL
