"""The exception tree of kafka-actors.

Only `retriable` on each class says whether an error may be retried, for a consumer's look-ups with `TEMPORARY_IN_LOOKUPS`; and only `fatal`
on each error whether a loop of transactions has to end with it. Details (topic, partition, offset, …) are attributes, and every error
keeps them when it is pickled, because Ray sends errors between processes.

    KafkaActorsError
      ConfigError, UsageError
      KafkaError              an error code in a broker's response; one class per code
      ClientError             detected by the client: connections, timeouts, bytes that don't parse
      RecordError             a record batch that can't be read
      DataLossError           a position that the log no longer holds as it was
      AuthenticationError     TLS and SASL; errors in a broker's response are a KafkaError as well
      JobError                the job as a whole
"""

from __future__ import annotations

import pickle
import re
import traceback
from contextlib import suppress
from typing import Any, ClassVar


class KafkaActorsError(Exception):
    """Base of all errors of this library."""

    retriable: ClassVar[bool] = False
    fatal: bool = False
    """Whether a loop of transactions has to end with it: its producer can't be used any more, a right is missing, or the program is
    wrong. After any other error the transaction is aborted, and the next one can be begun."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), (self.args, dict(self.__dict__), _pack_cause(self.__cause__)))


_AS_RAISED = "As it was raised:"


class RemoteCauseError(Exception):
    """Stands for a cause that could not be unpickled in this process; it has the text of the original."""


def _pack_cause(cause: BaseException | None) -> tuple[bytes | None, str, str] | None:
    """Returns the cause pickled, or None if it can't be, its text in one line, and its traceback as text."""
    if cause is None:
        return None
    text = "".join(traceback.format_exception_only(cause)).strip()
    try:
        packed = pickle.dumps(cause)
        pickle.loads(packed)
    except Exception:  # exceptions of users may raise anything in __reduce__ or __init__
        packed = None
    return packed, text, "".join(traceback.format_exception(cause)).rstrip()


def _unpack_cause(packed: bytes | None, text: str, trace: str) -> BaseException:
    cause: BaseException = RemoteCauseError(text)
    if packed is not None:
        with suppress(Exception):  # the class is not importable in this process
            cause = pickle.loads(packed)
    if not any(note.startswith(_AS_RAISED) for note in getattr(cause, "__notes__", ())):
        cause.add_note(f"{_AS_RAISED}\n{trace}")  # only the first process has the traceback
    return cause


def _restore(cls: type[KafkaActorsError], state: tuple[Any, ...]) -> KafkaActorsError:
    args, attributes, cause = state
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(attributes)
    if cause is not None:
        error.__cause__ = _unpack_cause(*cause)
    return error


# ---------------------------------------------------------------- mistakes in a program that uses the library


class ConfigError(KafkaActorsError, ValueError):
    """A wrong option, detected before anything connects. `option` is its name."""

    fatal = True

    def __init__(self, option: str, message: str) -> None:
        super().__init__(f"{option}: {message}")
        self.option = option
        self.message = message


class UsageError(KafkaActorsError):
    """A call with wrong arguments, or one that the object can't serve in its present state or mode."""

    fatal = True


def kind_of(value: object) -> str:
    """The type of a value with its article, for error messages: `an int`, `a str`, `None`."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


# ---------------------------------------------------------------- error codes in brokers' responses


class KafkaError(KafkaActorsError):
    """An error code in a broker's response.

    `code`, `name`, `retriable` and `invalid_metadata` (the client's metadata is stale) are Kafka's (`Errors.java`). `request` is the API of the
    request, such as `"Fetch"`; `topic`, `partition`, `group` and `broker` are set where the error concerns one.
    """

    code: ClassVar[int]
    name: ClassVar[str]
    invalid_metadata: ClassVar[bool] = False

    def __init_subclass__(
        cls,
        *,
        code: int | None = None,
        name: str | None = None,
        retriable: bool = False,
        invalid_metadata: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        if code is None:
            return
        cls.code = code
        cls.name = name or _constant_name(cls.__name__)
        cls.retriable = retriable
        cls.invalid_metadata = invalid_metadata
        _BY_CODE[code] = cls

    def __init__(
        self,
        message: str | None = None,
        *,
        request: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        broker: int | None = None,
        group: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.request = request
        self.topic = topic
        self.partition = partition
        self.broker = broker
        self.group = group

    def __str__(self) -> str:
        parts = [f"{self.name} ({self.code})"]
        if self.request is not None:
            parts.append(f"in answer to {self.request}")
        if self.topic is not None:
            parts.append(f"for {_where(self.topic, self.partition)}")
        if self.group is not None:
            parts.append(f"for group {self.group!r}")
        if self.broker is not None:
            parts.append(f"from broker {self.broker}")
        line = " ".join(parts)
        # A broker's message may have several lines.
        return f"{line}: {' '.join(self.message.split())}" if self.message else line

    def __reduce__(self) -> tuple[Any, ...]:
        _, (_, state) = super().__reduce__()
        # By code, if the class was created for a code that this version doesn't know.
        return _restore_broker_error, (self.code if type(self) in _UNRECOGNIZED else type(self), state)


_BY_CODE: dict[int, type[KafkaError]] = {}
_FIRST_IMPLAUSIBLE = 1_000
"""Codes from here on are taken as invalid: Kafka numbers its errors from 1 on, and has reached 134."""
_UNRECOGNIZED: set[type[KafkaError]] = set()


def _constant_name(class_name: str) -> str:
    """`NotLeaderOrFollowerError` → `NOT_LEADER_OR_FOLLOWER`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name.removesuffix("Error")).upper()


def _where(topic: str, partition: int | None) -> str:
    return topic if partition is None else f"{topic}-{partition}"


def _restore_broker_error(which: int | type[KafkaError], state: tuple[Any, ...]) -> KafkaActorsError:
    cls = which if isinstance(which, type) else for_code(which)
    assert cls is not None  # 0 has no class
    return _restore(cls, state)


def for_code(code: int) -> type[KafkaError] | None:
    """Returns the class of a Kafka error code; None for 0 (no error).

    For a code newer than Kafka 4.1 a subclass of `UnknownServerError` with that code is created. Codes from `_FIRST_IMPLAUSIBLE` on yield
    `UnknownServerError` itself, so that hostile responses can't fill the memory with classes.
    """
    if code == 0:
        return None
    known = _BY_CODE.get(code)
    if known is None and not 0 < code < _FIRST_IMPLAUSIBLE:
        return UnknownServerError
    if known is None:
        attributes = {"code": code, "name": "UNRECOGNIZED", "__module__": __name__}
        known = type(f"UnrecognizedError{code}", (UnknownServerError,), attributes)
        known = _BY_CODE.setdefault(code, known)
        _UNRECOGNIZED.add(known)
    return known


def error_for_code(
    code: int,
    message: str | None = None,
    *,
    request: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    broker: int | None = None,
    group: str | None = None,
) -> KafkaError | None:
    """Creates the error of a code with the given details; returns None for 0."""
    cls = for_code(code)
    if cls is None:
        return None
    if cls.code != code:
        message = f"an error code that Kafka does not have, {code}" + (f": {message}" if message else "")
    return cls(message, request=request, topic=topic, partition=partition, broker=broker, group=group)


def raise_for_code(
    code: int,
    message: str | None = None,
    *,
    request: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    broker: int | None = None,
    group: str | None = None,
) -> None:
    """Raises the error of a code; returns for 0."""
    error = error_for_code(
        code, message, request=request, topic=topic, partition=partition, broker=broker, group=group
    )
    if error is not None:
        raise error


class AuthorizationError(KafkaError):
    """The principal is not authorized. `right` names the missing right, if it is known."""

    fatal = True
    resource: ClassVar[str] = ""
    """Type of the resource, in the terms of `kafka-acls`."""
    transactional_id: str | None = None

    def __init_subclass__(cls, *, resource: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.resource = resource

    @property
    def right(self) -> str | None:
        """Operation and resource of the missing ACL, such as `Read on group 'orders'`."""
        rights = _RIGHTS.get(self.resource, {})
        operation = rights.get(self.request or "", rights.get(""))
        if operation is None:
            return None
        names = {"topic": self.topic, "group": self.group, "transactional-id": self.transactional_id}
        name = names.get(self.resource)
        return f"{operation} on {self.resource}" + (f" {name!r}" if name is not None else "")

    def __str__(self) -> str:
        line = super().__str__()
        return line if self.right is None else f"{line}: the principal needs the right {self.right}"


_RIGHTS: dict[str, dict[str, str]] = {
    "topic": {
        **dict.fromkeys(("Fetch", "OffsetCommit", "TxnOffsetCommit"), "Read"),
        **dict.fromkeys(("Produce", "AddPartitionsToTxn"), "Write"),
        **dict.fromkeys(("DeleteTopics", "DeleteRecords"), "Delete"),
        "CreateTopics": "Create",
        "CreatePartitions": "Alter",
        "DescribeConfigs": "DescribeConfigs",
        "IncrementalAlterConfigs": "AlterConfigs",
        "Metadata": "Describe (Read to consume it, Write to write to it)",
        "": "Describe",
    },
    "group": {
        **dict.fromkeys(("DeleteGroups", "OffsetDelete"), "Delete"),
        **dict.fromkeys(("OffsetFetch", "DescribeGroups", "ConsumerGroupDescribe"), "Describe"),
        "DescribeConfigs": "DescribeConfigs",
        "IncrementalAlterConfigs": "AlterConfigs",
        "FindCoordinator": "Describe (Read to join it)",
        "": "Read",
    },
    "cluster": {
        **dict.fromkeys(("InitProducerId", "Produce"), "IdempotentWrite"),
        **dict.fromkeys(("ListGroups", "DescribeCluster", "DescribeAcls"), "Describe"),
        **dict.fromkeys(("CreateAcls", "DeleteAcls"), "Alter"),
        "CreateTopics": "Create",
        "DescribeConfigs": "DescribeConfigs",
        "IncrementalAlterConfigs": "AlterConfigs",
    },
    "transactional-id": {"FindCoordinator": "Describe (Write to write with it)", "": "Write"},
}
"""Resource → request → the operation that the request needs on it; "" stands for all other requests. Read, Write, Delete
and Alter imply Describe, which is all that a client's first request needs; the texts in parentheses name what its later
requests need. Source: the table "Operations and Resources on Protocols" of Kafka's documentation on security."""


class AuthenticationError(KafkaActorsError):
    """Client or broker did not accept the other's identity. A retry would not help."""

    fatal = True


class SslAuthenticationError(AuthenticationError):
    """TLS failed: a certificate is untrusted, expired or for another host, or there is no common cipher."""


class SaslError(AuthenticationError):
    """SASL failed on the client's side: there is no token, or the broker can't prove that it knows the password."""


# One line for each code of Kafka 4.1; a test compares them with Kafka's own table.
# fmt: off
class UnknownServerError(KafkaError, code=-1, name="UNKNOWN_SERVER_ERROR"): ...
class OffsetOutOfRangeError(KafkaError, code=1): ...
class CorruptMessageError(KafkaError, code=2, retriable=True): ...
class UnknownTopicOrPartitionError(KafkaError, code=3, retriable=True, invalid_metadata=True): ...
class InvalidFetchSizeError(KafkaError, code=4): ...
class LeaderNotAvailableError(KafkaError, code=5, retriable=True, invalid_metadata=True): ...
class NotLeaderOrFollowerError(KafkaError, code=6, retriable=True, invalid_metadata=True): ...
class RequestTimedOutError(KafkaError, code=7, retriable=True): ...
class BrokerNotAvailableError(KafkaError, code=8): ...
class ReplicaNotAvailableError(KafkaError, code=9, retriable=True, invalid_metadata=True): ...
class MessageTooLargeError(KafkaError, code=10): ...
class StaleControllerEpochError(KafkaError, code=11): ...
class OffsetMetadataTooLargeError(KafkaError, code=12): ...
class NetworkError(KafkaError, code=13, name="NETWORK_EXCEPTION", retriable=True, invalid_metadata=True): ...
class CoordinatorLoadInProgressError(KafkaError, code=14, retriable=True): ...
class CoordinatorNotAvailableError(KafkaError, code=15, retriable=True): ...
class NotCoordinatorError(KafkaError, code=16, retriable=True): ...
class InvalidTopicError(KafkaError, code=17, name="INVALID_TOPIC_EXCEPTION"): ...
class RecordListTooLargeError(KafkaError, code=18): ...
class NotEnoughReplicasError(KafkaError, code=19, retriable=True): ...
class NotEnoughReplicasAfterAppendError(KafkaError, code=20, retriable=True): ...
class InvalidRequiredAcksError(KafkaError, code=21): ...
class IllegalGenerationError(KafkaError, code=22): ...
class InconsistentGroupProtocolError(KafkaError, code=23): ...
class InvalidGroupIdError(KafkaError, code=24): ...
class UnknownMemberIdError(KafkaError, code=25): ...
class InvalidSessionTimeoutError(KafkaError, code=26): ...
class RebalanceInProgressError(KafkaError, code=27): ...
class InvalidCommitOffsetSizeError(KafkaError, code=28): ...
class TopicAuthorizationFailedError(AuthorizationError, code=29, resource="topic"): ...
class GroupAuthorizationFailedError(AuthorizationError, code=30, resource="group"): ...
class ClusterAuthorizationFailedError(AuthorizationError, code=31, resource="cluster"): ...
class InvalidTimestampError(KafkaError, code=32): ...
class UnsupportedSaslMechanismError(AuthenticationError, KafkaError, code=33): ...
class IllegalSaslStateError(AuthenticationError, KafkaError, code=34): ...
class UnsupportedVersionError(KafkaError, code=35): ...
class TopicAlreadyExistsError(KafkaError, code=36): ...
class InvalidPartitionsError(KafkaError, code=37): ...
class InvalidReplicationFactorError(KafkaError, code=38): ...
class InvalidReplicaAssignmentError(KafkaError, code=39): ...
class InvalidConfigError(KafkaError, code=40): ...
class NotControllerError(KafkaError, code=41, retriable=True): ...
class InvalidRequestError(KafkaError, code=42): ...
class UnsupportedForMessageFormatError(KafkaError, code=43): ...
class PolicyViolationError(KafkaError, code=44): ...
class OutOfOrderSequenceNumberError(KafkaError, code=45): ...
class DuplicateSequenceNumberError(KafkaError, code=46): ...
class InvalidProducerEpochError(KafkaError, code=47): ...
class InvalidTxnStateError(KafkaError, code=48): ...
class InvalidProducerIdMappingError(KafkaError, code=49): ...
class InvalidTransactionTimeoutError(KafkaError, code=50): ...
class ConcurrentTransactionsError(KafkaError, code=51, retriable=True): ...
class TransactionCoordinatorFencedError(KafkaError, code=52): ...
class TransactionalIdAuthorizationFailedError(AuthorizationError, code=53, resource="transactional-id"): ...
class SecurityDisabledError(KafkaError, code=54): ...
class OperationNotAttemptedError(KafkaError, code=55): ...
class KafkaStorageError(KafkaError, code=56, name="KAFKA_STORAGE_ERROR", retriable=True, invalid_metadata=True): ...
class LogDirNotFoundError(KafkaError, code=57): ...
class SaslAuthenticationFailedError(AuthenticationError, KafkaError, code=58): ...
class UnknownProducerIdError(KafkaError, code=59): ...
class ReassignmentInProgressError(KafkaError, code=60): ...
class DelegationTokenAuthDisabledError(KafkaError, code=61): ...
class DelegationTokenNotFoundError(KafkaError, code=62): ...
class DelegationTokenOwnerMismatchError(KafkaError, code=63): ...
class DelegationTokenRequestNotAllowedError(KafkaError, code=64): ...
class DelegationTokenAuthorizationFailedError(AuthorizationError, code=65): ...
class DelegationTokenExpiredError(KafkaError, code=66): ...
class InvalidPrincipalTypeError(KafkaError, code=67): ...
class NonEmptyGroupError(KafkaError, code=68): ...
class GroupIdNotFoundError(KafkaError, code=69): ...
class FetchSessionIdNotFoundError(KafkaError, code=70, retriable=True): ...
class InvalidFetchSessionEpochError(KafkaError, code=71, retriable=True): ...
class ListenerNotFoundError(KafkaError, code=72, retriable=True, invalid_metadata=True): ...
class TopicDeletionDisabledError(KafkaError, code=73): ...
class FencedLeaderEpochError(KafkaError, code=74, retriable=True, invalid_metadata=True): ...
class UnknownLeaderEpochError(KafkaError, code=75, retriable=True): ...
class UnsupportedCompressionTypeError(KafkaError, code=76): ...
class StaleBrokerEpochError(KafkaError, code=77): ...
class OffsetNotAvailableError(KafkaError, code=78, retriable=True): ...
class MemberIdRequiredError(KafkaError, code=79): ...
class PreferredLeaderNotAvailableError(KafkaError, code=80, retriable=True, invalid_metadata=True): ...
class GroupMaxSizeReachedError(KafkaError, code=81): ...
class FencedInstanceIdError(KafkaError, code=82): ...
class EligibleLeadersNotAvailableError(KafkaError, code=83, retriable=True, invalid_metadata=True): ...
class ElectionNotNeededError(KafkaError, code=84, retriable=True, invalid_metadata=True): ...
class NoReassignmentInProgressError(KafkaError, code=85): ...
class GroupSubscribedToTopicError(KafkaError, code=86): ...
class InvalidRecordError(KafkaError, code=87): ...
class UnstableOffsetCommitError(KafkaError, code=88, retriable=True): ...
class ThrottlingQuotaExceededError(KafkaError, code=89, retriable=True): ...
class ProducerFencedError(KafkaError, code=90): ...
class ResourceNotFoundError(KafkaError, code=91): ...
class DuplicateResourceError(KafkaError, code=92): ...
class UnacceptableCredentialError(KafkaError, code=93): ...
class InconsistentVoterSetError(KafkaError, code=94): ...
class InvalidUpdateVersionError(KafkaError, code=95): ...
class FeatureUpdateFailedError(KafkaError, code=96): ...
class PrincipalDeserializationFailureError(KafkaError, code=97): ...
class SnapshotNotFoundError(KafkaError, code=98): ...
class PositionOutOfRangeError(KafkaError, code=99): ...
class UnknownTopicIdError(KafkaError, code=100, retriable=True, invalid_metadata=True): ...
class DuplicateBrokerRegistrationError(KafkaError, code=101): ...
class BrokerIdNotRegisteredError(KafkaError, code=102): ...
class InconsistentTopicIdError(KafkaError, code=103, retriable=True, invalid_metadata=True): ...
class InconsistentClusterIdError(KafkaError, code=104): ...
class TransactionalIdNotFoundError(KafkaError, code=105): ...
class FetchSessionTopicIdError(KafkaError, code=106, name="FETCH_SESSION_TOPIC_ID_ERROR", retriable=True): ...
class IneligibleReplicaError(KafkaError, code=107): ...
class NewLeaderElectedError(KafkaError, code=108): ...
class OffsetMovedToTieredStorageError(KafkaError, code=109): ...
class FencedMemberEpochError(KafkaError, code=110): ...
class UnreleasedInstanceIdError(KafkaError, code=111): ...
class UnsupportedAssignorError(KafkaError, code=112): ...
class StaleMemberEpochError(KafkaError, code=113): ...
class MismatchedEndpointTypeError(KafkaError, code=114): ...
class UnsupportedEndpointTypeError(KafkaError, code=115): ...
class UnknownControllerIdError(KafkaError, code=116): ...
class UnknownSubscriptionIdError(KafkaError, code=117): ...
class TelemetryTooLargeError(KafkaError, code=118): ...
class InvalidRegistrationError(KafkaError, code=119): ...
class TransactionAbortableError(KafkaError, code=120): ...
class InvalidRecordStateError(KafkaError, code=121): ...
class ShareSessionNotFoundError(KafkaError, code=122, retriable=True): ...
class InvalidShareSessionEpochError(KafkaError, code=123, retriable=True): ...
class FencedStateEpochError(KafkaError, code=124): ...
class InvalidVoterKeyError(KafkaError, code=125): ...
class DuplicateVoterError(KafkaError, code=126): ...
class VoterNotFoundError(KafkaError, code=127): ...
class InvalidRegularExpressionError(KafkaError, code=128): ...
class RebootstrapRequiredError(KafkaError, code=129): ...
class StreamsInvalidTopologyError(KafkaError, code=130): ...
class StreamsInvalidTopologyEpochError(KafkaError, code=131): ...
class StreamsTopologyFencedError(KafkaError, code=132): ...
class ShareSessionLimitReachedError(KafkaError, code=133, retriable=True): ...
# fmt: on
TEMPORARY_IN_LOOKUPS = (UnknownServerError,)
"""Errors after which consumers' look-ups ask again, beside the retriable ones (Java: `OffsetFetcherUtils.handleListOffsetResponse`)."""


# ---------------------------------------------------------------- detected by the client


class ClientError(KafkaActorsError):
    """A failure between client and broker, without an error code of a broker."""


class ConnectionFailedError(ClientError):
    """No connection could be established: refused, unreachable, unresolved or timed out."""

    retriable = True


class UnknownHostError(ConnectionFailedError):
    """The host name can't be resolved. A client that was connected before retries, because a broker's name may be missing
    while it restarts. A client that starts, and has no other address, raises `NoBrokersAvailable` at once, as Java's does."""


class DisconnectedError(ClientError):
    """The connection ended before the response arrived; whether the request was carried out is unknown."""

    retriable = True


class KafkaTimeoutError(ClientError):
    """No response arrived in time; whether the request was carried out is unknown."""

    retriable = True


class NoBrokersError(ClientError):
    """No broker of the cluster responded."""

    retriable = True


class NoBrokersAvailable(NoBrokersError):
    """None of the bootstrap servers could be reached."""


class NodeNotReadyError(ClientError):
    """The broker has no connection that is ready to send."""

    retriable = True


class UnrecognizedBrokerVersion(ClientError):
    """The broker is older than Kafka 2.1, or the server is no Kafka broker."""


class ProtocolError(ClientError):
    """The bytes violate the wire protocol."""


class DecodeError(ProtocolError):
    """The bytes don't match the schema: truncated, an impossible length, or bytes left at the end."""


class EncodeError(ProtocolError):
    """The message can't be encoded in its version: a field that the version lacks, or a value out of range."""


class CorrelationIdError(ProtocolError):
    """The response doesn't belong to the oldest request in flight."""

    retriable = True


# ---------------------------------------------------------------- producing


class DeliveryTimeoutError(ClientError):
    """Records were not acknowledged within `delivery_timeout_ms`.

    `records` is their number; `maybe_written`: whether they may be in the log nevertheless.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        records: int,
        timeout_ms: int,
        maybe_written: bool,
        message: str | None = None,
    ) -> None:
        fate = "they may have been written" if maybe_written else "they were not written"
        because = f"; the last error was: {message}" if message else ""
        super().__init__(
            f"{topic}-{partition}: {records} record{'s' * (records != 1)} not acknowledged within "
            f"delivery_timeout_ms ({timeout_ms}); {fate}{because}"
        )
        self.topic = topic
        self.partition = partition
        self.records = records
        self.maybe_written = maybe_written


class UndeliveredError(KafkaActorsError):
    """Records were not delivered, or may not have been: those of one `send_batch`, or all whose futures were never read.

    `records` is their number; `errors` has the first error of each partition, by (topic, partition); `rows` are, after
    `send_batch`, the rows of the batch that failed, ascending, else None.
    """

    def __init__(
        self, records: int, errors: dict[tuple[str, int], KafkaActorsError], rows: list[int] | None = None
    ) -> None:
        shown = [str(error) for error in list(errors.values())[:3]]
        more = f"; and {len(errors) - 3} more partitions" if len(errors) > 3 else ""
        was = "record was" if records == 1 else "records were"
        super().__init__(f"{records} {was} not delivered: {'; '.join(shown)}{more}")
        self.records = records
        self.errors = errors
        self.rows = rows


class TransactionAbortedError(KafkaActorsError):
    """The record is in no committed transaction: its own was aborted, or failed before the record was written."""


class TransactionOutcomeUnknownError(KafkaActorsError):
    """Whether a transaction was committed isn't known; `__cause__` is the error that keeps it from being asked again."""

    fatal = True


# ---------------------------------------------------------------- records and positions


class RecordError(KafkaActorsError):
    """A record batch can't be read.

    `offset` is the first offset that was not read. `next_offset` is the offset behind the bad batch, where reading can
    continue, or None if it isn't known. `kind` is one word for policies and metrics. `cut_off`: `next_offset` is unknown
    because the response ends within the next batch.
    """

    kind: str = "record"
    cut_off: bool = False

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        next_offset: int | None = None,
        message: str = "unreadable record batch",
        kind: str | None = None,
    ) -> None:
        behind = "" if next_offset is None else f" (the next batch is at {next_offset})"
        super().__init__(f"{topic}-{partition} at offset {offset}: {message}{behind}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset
        self.message = message
        self.kind = kind or type(self).kind


class CorruptRecordBatchError(RecordError):
    """The batch has a wrong checksum, an impossible length or count, or a truncated varint."""

    kind = "corrupt"


class UnsupportedCompressionError(RecordError):
    """The batch has a compression codec that this version doesn't know."""

    kind = "compression"


class BatchTooLargeError(RecordError):
    """The batch decompresses to more than `max_decompressed_batch_bytes`."""

    kind = "too_large"


class MalformedTimestampError(RecordError):
    """A record's timestamp, in milliseconds, exceeds int64 microseconds; Spark's name is KAFKA_MALFORMED_RECORD_TIMESTAMP
    (SPARK-56243). `next_offset` is behind this record and all such records that follow it directly."""

    kind = "timestamp"


class UnknownMagicError(RecordError):
    """The batch has a format newer than v2, or the bytes are no batch."""

    kind = "magic"


class DataLossError(KafkaActorsError):
    """The log no longer holds the records at the position. `offset` is that position, if there is one."""

    def __init__(
        self, topic: str, partition: int, offset: int | None = None, message: str = "data loss"
    ) -> None:
        at = "" if offset is None else f" at offset {offset}"
        super().__init__(f"{topic}-{partition}{at}: {message}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.message = message


class OffsetResetRequiredError(DataLossError):
    """There is no valid position, and the options don't allow a reset."""


class NoOffsetForPartitionError(OffsetResetRequiredError):
    """There is no committed offset, and `auto_offset_reset` is `none`."""

    def __init__(self, topic: str, partition: int, message: str = "no committed offset") -> None:
        super().__init__(topic, partition, None, message)


class FetchOffsetOutOfRangeError(OffsetResetRequiredError):
    """The position is before the start or behind the end of the log. Bounds are None if unknown."""

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        log_start_offset: int | None = None,
        log_end_offset: int | None = None,
    ) -> None:
        known = log_start_offset is not None or log_end_offset is not None
        bounds = f" (the log has {log_start_offset} to {log_end_offset})" if known else ""
        super().__init__(topic, partition, offset, f"offset out of range{bounds}")
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class LogTruncationError(DataLossError):
    """The log was truncated below the position (KIP-320); it diverges at the given offset and epoch, if known."""

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        divergent_offset: int | None = None,
        divergent_epoch: int | None = None,
    ) -> None:
        known = divergent_offset is not None
        where = f": it diverges at {divergent_offset}, epoch {divergent_epoch}" if known else ""
        super().__init__(topic, partition, offset, f"the log was truncated{where}")
        self.divergent_offset = divergent_offset
        self.divergent_epoch = divergent_epoch


class TopicRecreatedError(DataLossError):
    """The topic was deleted and recreated: its id changed (KIP-516)."""

    def __init__(
        self, topic: str, partition: int, offset: int | None, old_topic_id: object, new_topic_id: object
    ) -> None:
        said = f"the topic was recreated: id {old_topic_id} is now {new_topic_id}"
        super().__init__(topic, partition, offset, said)
        self.old_topic_id = old_topic_id
        self.new_topic_id = new_topic_id


class StartLostError(DataLossError):
    """The required start offset is before the start of the log: retention has deleted `lost` offsets.

    `offset` is the required start, `log_start_offset` the start of the log.
    """

    def __init__(self, topic: str, partition: int, offset: int, log_start_offset: int, message: str = ""):
        lost = log_start_offset - offset
        said = f"the log starts at {log_start_offset}: {lost} record{'s' * (lost != 1)} lost to retention"
        super().__init__(topic, partition, offset, f"{said}; {message}" if message else said)
        self.log_start_offset = log_start_offset
        self.lost = lost


# ---------------------------------------------------------------- the job


class JobError(KafkaActorsError):
    """Base of errors of a job as a whole."""


class JobFailed(JobError):
    """The job ended with an error; `cause` is that error."""

    def __init__(self, cause: BaseException | None = None, message: str | None = None) -> None:
        from kafka_actors.base.callables import error_text  # readers in Spark import errors alone

        why = "cause unknown" if cause is None else error_text(cause) or type(cause).__name__
        super().__init__(message or f"the job failed: {why}")
        self.__cause__ = cause

    @property
    def cause(self) -> BaseException | None:
        return self.__cause__


class ProcessError(JobError):
    """The user's function failed for good on a batch; `__cause__` is its exception.

    Offsets are those of the first and the last record of the batch; for `process_message`, that of the record.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        first_offset: int,
        last_offset: int,
        attempts: int,
        message: str = "",
    ) -> None:
        one = first_offset == last_offset
        offsets = f"offset {first_offset}" if one else f"offsets {first_offset}-{last_offset}"
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        where = f"{topic}-{partition} {offsets}" if topic else "rows of no one record"
        line = f"process failed on {where} after {tries}"
        super().__init__(f"{line}: {message}" if message else line)
        self.topic = topic
        self.partition = partition
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.attempts = attempts
        self.message = message


class WorkerDiedError(KafkaActorsError):
    """The worker's process ended during a call of the user's function, in each of `times` tries; `how` it ended last."""

    def __init__(self, times: int, how: str) -> None:
        super().__init__(f"the worker's process ended in each call with these records, last time: {how}")
        self.times = times
        self.how = how


class StageError(ProcessError):
    """A stage of a pipeline failed for good; `stage` is its name, `__cause__` its exception, if it raised one.

    Offsets are those of the first and the last record for which the stage failed. After a DataFrame stage of Spark, rows
    belong to no single record: the topic is then empty, and the numbers are -1.
    """

    def __init__(
        self,
        stage: str,
        topic: str,
        partition: int,
        first_offset: int,
        last_offset: int,
        attempts: int,
        message: str,
    ) -> None:
        super().__init__(topic, partition, first_offset, last_offset, attempts, message)
        self.stage = stage
        self.args = (self.args[0].replace("process failed", f"stage {stage} failed", 1),)


class SinkError(JobError):
    """Data written to a sink could not be flushed; `__cause__` says why. The offsets of its records are not committed."""

    def __init__(self, sink: str, message: str) -> None:
        super().__init__(f"{sink}: {message}; the offsets of its records are not committed")
        self.sink = sink
        self.message = message


class StartTimeoutError(JobError):
    """Something that a job needs to start was missing at the end of its timeout; `missing` is a sentence that names it."""

    def __init__(self, missing: str, timeout_s: float) -> None:
        super().__init__(f"not started within {timeout_s:g} s: {missing}")
        self.missing = missing
        self.timeout_s = timeout_s


class JobNameInUseError(JobError):
    """A job with this name already runs in this Ray cluster."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a job named {name!r} is already running in this Ray cluster")
        self.name = name


class HandoverError(JobError):
    """A hand-over from history to live can't continue as planned; nothing was committed."""
