"""Tables of what to do about each error in a response to a group member, one for each request.

An error is looked up in the table of its request, then in the common one; for what neither has, whether Kafka calls it retriable
decides. Of errors without a code of Kafka's (no answer, a lost connection, bytes that can't be read) most lead to another search
for the coordinator (`judge`). After `AbstractCoordinator.java` and `ConsumerCoordinator.java`, with KIP-345 (static members), KIP-394 (member ids)
and KIP-848 (the codes of the newer protocol, which a mixed group may answer).

Theory of operation. Arrives: what ended a request of the member, and which request that was. Decided: one of
the actions below, from a pause to the end of the membership. There is no state, so the same error always
means the same.

One code means different things to different requests, so there is a table for each. REBALANCE_IN_PROGRESS tells a heartbeat to join
again, a JoinGroup to try once more, and an OffsetCommit to wait for the next generation. An unknown topic is worth another try
to a commit, whose coordinator may not have heard of it yet, and is final for that partition to an OffsetFetch. A code in no table
that isn't retriable refuses one partition where it answers a commit, and is `FATAL` elsewhere.

The tables say what an error means, not whether it still matters: whether its generation is the present one is for `MemberAnswers`
and `CommitQueue` to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafka_actors.errors import (
    ClientError,
    ConnectionFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    EncodeError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidCommitOffsetSizeError,
    InvalidGroupIdError,
    InvalidTopicError,
    KafkaError,
    MemberIdRequiredError,
    NetworkError,
    NodeNotReadyError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnrecognizedBrokerVersion,
    UnreleasedInstanceIdError,
    UnstableOffsetCommitError,
)


class ErrorAction(Enum):
    """The action that an error calls for."""

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


class GroupApi(Enum):
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


_V = ErrorAction

_COMMON: Mapping[type[KafkaError], ErrorAction] = {
    RequestTimedOutError: _V.REDISCOVER,  # the coordinator's log does not replicate
    NetworkError: _V.REDISCOVER,
    CoordinatorLoadInProgressError: _V.RETRY,
    CoordinatorNotAvailableError: _V.REDISCOVER,
    NotCoordinatorError: _V.REDISCOVER,
    IllegalGenerationError: _V.RESET_GENERATION,
    UnknownMemberIdError: _V.RESET_MEMBER,
    RebalanceInProgressError: _V.REJOIN,
    GroupAuthorizationFailedError: _V.FATAL,
    FencedInstanceIdError: _V.FATAL,
    FencedMemberEpochError: _V.RESET_MEMBER,  # the newer protocol's word for an unknown member
    StaleMemberEpochError: _V.RESET_GENERATION,  # and for an old generation
}

_SPECIAL: Mapping[GroupApi, Mapping[type[KafkaError], ErrorAction]] = {
    GroupApi.FIND_COORDINATOR: {
        CoordinatorNotAvailableError: _V.RETRY,
        NotCoordinatorError: _V.RETRY,
        RequestTimedOutError: _V.RETRY,
    },
    GroupApi.JOIN: {
        InconsistentGroupProtocolError: _V.EXPLAIN,
        RebalanceInProgressError: _V.RETRY,  # the broker's own log timed out
        MemberIdRequiredError: _V.TAKE_MEMBER_ID,
        UnreleasedInstanceIdError: _V.RETRY,  # the old holder's session has yet to end
    },
    GroupApi.COMMIT: {
        UnknownTopicOrPartitionError: _V.RETRY,  # the coordinator's metadata may lag
        OffsetMetadataTooLargeError: _V.PARTITION,
        InvalidTopicError: _V.PARTITION,
        InvalidCommitOffsetSizeError: _V.PARTITION,
        TopicAuthorizationFailedError: _V.PARTITION,
        InvalidGroupIdError: _V.FATAL,
    },
    GroupApi.OFFSET_FETCH: {
        UnknownTopicOrPartitionError: _V.PARTITION,
        TopicAuthorizationFailedError: _V.PARTITION,
        UnstableOffsetCommitError: _V.RETRY,
    },
}


def judge_code(api: GroupApi, error: KafkaError) -> ErrorAction:
    """Returns the action for an error code in a response of `api`."""
    special = _SPECIAL.get(api, {}).get(type(error))
    if special is not None:
        return special
    common = _COMMON.get(type(error))
    if common is not None:
        return common
    if error.retriable:
        return ErrorAction.RETRY
    return ErrorAction.PARTITION if api is GroupApi.COMMIT else ErrorAction.FATAL


def judge(api: GroupApi, error: Exception, *, alive: bool = False) -> ErrorAction:
    """Returns the action for whatever ended a request of `api`, an error code or something on the way.

    `alive`: the coordinator has acknowledged a heartbeat that was sent after this request. One that takes its time
    over an OffsetFetch, which has a connection of its own, is then not lost for all else.
    """
    if isinstance(error, KafkaError):
        return judge_code(api, error)
    if isinstance(error, ClientError) and not isinstance(error, (UnrecognizedBrokerVersion, EncodeError)):
        # Even an answer that does not parse only condemns its connection; another coordinator may do better.
        slow = api is GroupApi.OFFSET_FETCH and alive
        return ErrorAction.RETRY if slow or api is GroupApi.FIND_COORDINATOR else ErrorAction.REDISCOVER
    return ErrorAction.FATAL


def outcome_known(error: Exception) -> bool:
    """Returns whether this error says that the request was answered, or was never sent.

    After any other one the broker may have carried it out. Of an OffsetCommit that has to be found out before the next.
    """
    return isinstance(error, (KafkaError, ConnectionFailedError, NodeNotReadyError, EncodeError))
