"""The table of a transactional producer: what each of Kafka's errors does to its transaction, for each request and in each state.

An error is looked up in the table of its request, then in the common one; for what neither has, whether it is `retriable` decides
(`errors`), and the request's default where it isn't. The action found and the state of the producer give the next state (`AFTER`).
After `TransactionManager.java` of Kafka 4.1, with KIP-98, KIP-360, KIP-447 (members of a group), KIP-588, KIP-890
(TRANSACTION_ABORTABLE) and KIP-1050 (one meaning for each error).

Theory of operation. What a transactional producer may do after an error depends on three things: which
request it answers, which error it is, and in which state the producer is. Each is looked up in a table and in
no other place, so that a rule of Kafka is one line:

- RETRY and REDISCOVER lead back to the same request; the transaction stays what it was.
- ABORT: something of the transaction is lost or refused, so it can't be committed. While it is being aborted
  already, that is no news, unless the abort itself was refused.
- FATAL: another producer may be in this one's place, or the producer is not allowed or able to go on. Nothing
  may be written any more, or it could end up in a transaction of the other.

What is in no table and not retriable aborts after Produce and AddPartitionsToTxn, whose effects a transaction
undoes, and ends the producer after all others.

Brokers before 2.7 say INVALID_PRODUCER_EPOCH for PRODUCER_FENCED. A partition's leader says it of an older epoch, too, whose
producer need not be fenced: after Produce it aborts, and the abort's EndTxn, which asks the coordinator, tells which of both it was
(KIP-588).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafka_actors.errors import (
    AuthenticationError,
    ClientError,
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    ConnectionFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    EncodeError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InvalidCommitOffsetSizeError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaError,
    NodeNotReadyError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    ProducerFencedError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationFailedError,
    TransactionOutcomeUnknownError,
    UnknownMemberIdError,
    UnknownProducerIdError,
    UnrecognizedBrokerVersion,
    UnsupportedVersionError,
    UsageError,
)


class TransactionState(Enum):
    """The states of a transactional producer, Java's."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "initializing"
    READY = "outside of a transaction"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that has to be aborted"
    FATAL_ERROR = "ended by an error"


class TransactionErrorAction(Enum):
    """Actions that an error calls for."""

    RETRY = "retry"
    """Once more, after a backoff."""
    REDISCOVER = "rediscover"
    """The coordinator is another one, or not reachable: find it, then again."""
    ABORT = "abort"
    """The transaction can only be aborted; the producer goes on after that."""
    FATAL = "fatal"
    """The producer can't be used any more."""


class TransactionApi(Enum):
    """The requests whose errors are judged."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    OFFSET_COMMIT = "TxnOffsetCommit"
    PRODUCE = "Produce"
    END = "EndTxn"
    OFFSET_FETCH = "OffsetFetch"


_A = TransactionErrorAction
_S = TransactionState

OF_ONE_PRODUCER = (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    UnknownProducerIdError,
)
"""Errors of one producer or its transaction, which the next producer of the same transactional id need not have."""

FENCED = (ProducerFencedError, InvalidProducerEpochError)
"""The errors of a producer in whose place there is another one, except after Produce."""

NOT_ENDED = (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    *FENCED,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
    AuthenticationError,
    ConnectionFailedError,
    EncodeError,
    NodeNotReadyError,
)
"""Errors that say that this EndTxn wasn't carried out, or not even sent. After others it may have been (UNKNOWN_SERVER_ERROR may follow
the write to the coordinator's log)."""

REFUSED_MEMBERSHIP = (IllegalGenerationError, UnknownMemberIdError, FencedInstanceIdError)
"""The errors of TxnOffsetCommit about the member that offsets were sent for (KIP-447); the coordinator has taken none of them."""

_COMMON: Mapping[type[KafkaError], TransactionErrorAction] = {
    CoordinatorNotAvailableError: _A.REDISCOVER,
    NotCoordinatorError: _A.REDISCOVER,
    ProducerFencedError: _A.FATAL,
    InvalidProducerEpochError: _A.FATAL,
    TransactionalIdAuthorizationFailedError: _A.FATAL,
    InvalidTxnStateError: _A.FATAL,
    InvalidProducerIdMappingError: _A.FATAL,  # a new id would let a fenced producer write (KAFKA-18019)
    UnknownProducerIdError: _A.ABORT,
    TransactionAbortableError: _A.ABORT,
    GroupAuthorizationFailedError: _A.ABORT,
    TopicAuthorizationFailedError: _A.ABORT,
}

_SPECIAL: Mapping[TransactionApi, Mapping[type[KafkaError], TransactionErrorAction]] = {
    TransactionApi.FIND_COORDINATOR: {
        CoordinatorNotAvailableError: _A.RETRY,
        NotCoordinatorError: _A.RETRY,
        TransactionalIdAuthorizationFailedError: _A.ABORT,  # while initializing, which may be tried again
    },
    TransactionApi.INIT_PRODUCER_ID: {
        TransactionalIdAuthorizationFailedError: _A.ABORT,
        ClusterAuthorizationFailedError: _A.ABORT,
    },
    TransactionApi.OFFSET_COMMIT: {
        RequestTimedOutError: _A.REDISCOVER,
        RebalanceInProgressError: _A.RETRY,  # the generation is the present one: its members get their parts now
        IllegalGenerationError: _A.ABORT,
        UnknownMemberIdError: _A.ABORT,
        StaleMemberEpochError: _A.ABORT,
        FencedInstanceIdError: _A.ABORT,
        OffsetMetadataTooLargeError: _A.ABORT,
        InvalidCommitOffsetSizeError: _A.ABORT,
    },
    TransactionApi.PRODUCE: {
        InvalidProducerEpochError: _A.ABORT,  # KIP-588: the coordinator knows whether it is fenced
        InvalidTxnStateError: _A.ABORT,
        ClusterAuthorizationFailedError: _A.FATAL,
        UnsupportedVersionError: _A.FATAL,
    },
}

_DEFAULT: Mapping[TransactionApi, TransactionErrorAction] = {
    TransactionApi.PRODUCE: _A.ABORT,
    TransactionApi.ADD_PARTITIONS: _A.ABORT,
}
"""Actions of errors that no table has and no retry mends; `FATAL` for the other requests."""

AFTER: Mapping[TransactionErrorAction, Mapping[TransactionState, TransactionState]] = {
    _A.ABORT: {
        _S.INITIALIZING: _S.UNINITIALIZED,
        _S.IN_TRANSACTION: _S.ABORTABLE_ERROR,
        _S.COMMITTING: _S.ABORTABLE_ERROR,
        _S.ABORTABLE_ERROR: _S.ABORTABLE_ERROR,
        _S.ABORTING: _S.FATAL_ERROR,
    },
    _A.FATAL: dict.fromkeys(TransactionState, _S.FATAL_ERROR),
}
"""The state after an error that no retry mends, by its action and the state before; no entry: the error changes nothing any more."""


def transaction_action(api: TransactionApi, error: Exception) -> TransactionErrorAction:
    """Returns the action for whatever ended a request of `api`: an error code, or something on the way.

    An answer that never came says nothing of what was carried out: the request is sent again, as it was. Of Produce it is asked
    only about errors with which a batch failed for good.
    """
    if isinstance(error, KafkaError):
        special = _SPECIAL.get(api, {}).get(type(error)) or _COMMON.get(type(error))
        if special is not None:
            return special
        retried = error.retriable and api is not TransactionApi.PRODUCE
        return _A.RETRY if retried else _DEFAULT.get(api, _A.FATAL)
    if api is TransactionApi.PRODUCE:
        return _A.ABORT
    if isinstance(error, ClientError) and not isinstance(error, (UnrecognizedBrokerVersion, EncodeError)):
        return _A.RETRY if api is TransactionApi.FIND_COORDINATOR else _A.REDISCOVER
    return _A.FATAL


_HINTS = {
    (_S.UNINITIALIZED, _S.READY): ": call init_transactions() first",
    (_S.UNINITIALIZED, _S.IN_TRANSACTION): ": call init_transactions() and begin_transaction() first",
    (_S.READY, _S.IN_TRANSACTION): ": call begin_transaction() first",
    (
        _S.IN_TRANSACTION,
        _S.READY,
    ): ": it has one at a time; another thread needs a Producer, and a transactional_id, of its own",
}
"""Advice for verbs out of turn, by the present state and the one that the verb needs."""


def out_of_turn(verb: str, state: TransactionState, needed: TransactionState) -> UsageError:
    """Returns the error of a call in another state than the one that it needs, with what to do."""
    hint = _HINTS.get((state, needed), "")
    return UsageError(f"{verb}: the producer is {state.value}, it has to be {needed.value}{hint}")


def explained(
    error: Exception, action: TransactionErrorAction, transactional_id: str, timeout_ms: int
) -> Exception:
    """Returns the error that ends a transaction, or its producer, with what its broker leaves out."""
    if action is TransactionErrorAction.FATAL and type(error) in FENCED:
        message = (
            f"another producer began with transactional_id {transactional_id!r}, or a transaction took longer than "
            "transaction_timeout_ms and was aborted: close this producer"
        )
        return ProducerFencedError(message, request=error.request if isinstance(error, KafkaError) else None)
    if isinstance(error, InvalidTransactionTimeoutError):
        error.message = (
            f"transaction_timeout_ms ({timeout_ms}) is beyond the brokers' transaction.max.timeout.ms"
        )
    if isinstance(error, UnsupportedVersionError) and error.request == TransactionApi.INIT_PRODUCER_ID.value:
        error.message = f"transactions need Kafka 2.5 or newer: {error.message}"
    if isinstance(error, TransactionalIdAuthorizationFailedError):
        error.transactional_id = transactional_id
    return error


def too_long_error(timeout_ms: int) -> TransactionAbortedError:
    """Returns the error of a commit that came after the transaction's time was over."""
    return TransactionAbortedError(
        f"it took longer than transaction_timeout_ms ({timeout_ms}), and its coordinator aborted it"
    )
