"""What each error means for a group member: one table per request, nowhere else.

After `AbstractCoordinator.java` and `ConsumerCoordinator.java`, with KIP-345 (static members), KIP-394 (member ids)
and KIP-848 (the codes of the newer protocol, which a mixed group may answer).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafka_actors.errors import (
    ClientError,
    ConnectionFailedError,
    EncodeError,
    KafkaError,
    NodeNotReadyError,
    UnrecognizedBrokerVersion,
)


class Verdict(Enum):
    """What to do about an error."""

    RETRY = "retry"
    """Again, after a backoff, to the same coordinator."""
    REDISCOVER = "rediscover"
    """The coordinator is another one, or not reachable: find it, then again."""
    REJOIN = "rejoin"
    """The group rebalances: keep what is owned, join again."""
    RESET_GENERATION = "reset generation"
    """The group went on without this member: all is lost, the member id may still be good."""
    RESET_MEMBER = "reset member"
    """The group doesn't know this member: all is lost, the member id too."""
    TAKE_MEMBER_ID = "take member id"
    """Join again with the id in this very response (KIP-394)."""
    EXPLAIN = "explain"
    """Fatal, but first ask the group what it uses, so that the error can say it."""
    PARTITION = "partition"
    """This partition's commit is refused; the others are not concerned."""
    FATAL = "fatal"
    """No retry mends it."""


class Api(Enum):
    """The requests of a member whose errors are judged."""

    FIND_COORDINATOR = "FindCoordinator"
    CONNECT = "connect"
    DESCRIBE = "DescribeGroups"
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    COMMIT = "OffsetCommit"
    OFFSET_FETCH = "OffsetFetch"


_V = Verdict

_COMMON: Mapping[int, Verdict] = {
    7: _V.REDISCOVER,  # REQUEST_TIMED_OUT: the coordinator's log does not replicate
    13: _V.REDISCOVER,  # NETWORK_EXCEPTION
    14: _V.RETRY,  # COORDINATOR_LOAD_IN_PROGRESS
    15: _V.REDISCOVER,  # COORDINATOR_NOT_AVAILABLE
    16: _V.REDISCOVER,  # NOT_COORDINATOR
    22: _V.RESET_GENERATION,  # ILLEGAL_GENERATION
    25: _V.RESET_MEMBER,  # UNKNOWN_MEMBER_ID
    27: _V.REJOIN,  # REBALANCE_IN_PROGRESS
    30: _V.FATAL,  # GROUP_AUTHORIZATION_FAILED
    82: _V.FATAL,  # FENCED_INSTANCE_ID
    110: _V.RESET_MEMBER,  # FENCED_MEMBER_EPOCH: the newer protocol's word for an unknown member
    113: _V.RESET_GENERATION,  # STALE_MEMBER_EPOCH: and for an old generation
}

_SPECIAL: Mapping[Api, Mapping[int, Verdict]] = {
    Api.FIND_COORDINATOR: {15: _V.RETRY, 16: _V.RETRY, 7: _V.RETRY},
    Api.JOIN: {
        23: _V.EXPLAIN,  # INCONSISTENT_GROUP_PROTOCOL
        27: _V.RETRY,  # REBALANCE_IN_PROGRESS: the broker's own log timed out
        79: _V.TAKE_MEMBER_ID,  # MEMBER_ID_REQUIRED
        111: _V.RETRY,  # UNRELEASED_INSTANCE_ID: the old holder's session has yet to end
    },
    Api.COMMIT: {
        3: _V.RETRY,  # UNKNOWN_TOPIC_OR_PARTITION: the coordinator's metadata may lag
        12: _V.PARTITION,  # OFFSET_METADATA_TOO_LARGE
        17: _V.PARTITION,  # INVALID_TOPIC_EXCEPTION
        28: _V.PARTITION,  # INVALID_COMMIT_OFFSET_SIZE
        29: _V.PARTITION,  # TOPIC_AUTHORIZATION_FAILED
        24: _V.FATAL,  # INVALID_GROUP_ID
    },
    Api.OFFSET_FETCH: {3: _V.PARTITION, 29: _V.PARTITION, 88: _V.RETRY},  # 88: UNSTABLE_OFFSET_COMMIT
}


def judge_code(api: Api, error: KafkaError) -> Verdict:
    """The verdict on an error code in a response of `api`."""
    special = _SPECIAL.get(api, {}).get(error.code)
    if special is not None:
        return special
    common = _COMMON.get(error.code)
    if common is not None:
        return common
    if error.retriable:
        return Verdict.RETRY
    return Verdict.PARTITION if api is Api.COMMIT else Verdict.FATAL


def judge(api: Api, error: Exception, *, alive: bool = False) -> Verdict:
    """The verdict on whatever ended a request of `api`, an error code or something on the way.

    `alive`: the coordinator has acknowledged a heartbeat that was sent after this request. One that takes its time
    over an OffsetFetch, which has a connection of its own, is then not lost for all else.
    """
    if isinstance(error, KafkaError):
        return judge_code(api, error)
    if isinstance(error, ClientError) and not isinstance(error, (UnrecognizedBrokerVersion, EncodeError)):
        # Even an answer that does not parse only condemns its connection; another coordinator may do better.
        slow = api is Api.OFFSET_FETCH and alive
        return Verdict.RETRY if slow or api is Api.FIND_COORDINATOR else Verdict.REDISCOVER
    return Verdict.FATAL


def outcome_known(error: Exception) -> bool:
    """Whether this error tells that the request was answered, or was never sent."""
    return isinstance(error, (KafkaError, ConnectionFailedError, NodeNotReadyError, EncodeError))
