"""The table of errors: an action for each of Kafka's errors, and the state after it."""

import pytest

from kafka_actors import errors
from kafka_actors.producer.machines.transaction_errors import (
    AFTER,
    TransactionApi,
    TransactionErrorAction,
    TransactionState,
    transaction_action,
)

API, ACTION, STATE = TransactionApi, TransactionErrorAction, TransactionState
COORDINATORS = [API.INIT_PRODUCER_ID, API.ADD_PARTITIONS, API.ADD_OFFSETS, API.OFFSET_COMMIT, API.END]


@pytest.mark.parametrize("api", COORDINATORS)
@pytest.mark.parametrize(
    ("error", "action"),
    [
        (errors.ProducerFencedError, ACTION.FATAL),
        (errors.InvalidProducerEpochError, ACTION.FATAL),
        (errors.InvalidProducerIdMappingError, ACTION.FATAL),
        (errors.InvalidTxnStateError, ACTION.FATAL),
        (errors.TransactionAbortableError, ACTION.ABORT),
        (errors.UnknownProducerIdError, ACTION.ABORT),
        (errors.NotCoordinatorError, ACTION.REDISCOVER),
        (errors.CoordinatorNotAvailableError, ACTION.REDISCOVER),
        (errors.CoordinatorLoadInProgressError, ACTION.RETRY),
        (errors.ConcurrentTransactionsError, ACTION.RETRY),
    ],
)
def test_errors_that_mean_the_same_to_all_coordinators(api, error, action):
    assert transaction_action(api, error()) is action


@pytest.mark.parametrize(
    ("api", "error", "action"),
    [
        # whoever lacks a right may be given it and initialize again; later it is too late
        (API.INIT_PRODUCER_ID, errors.TransactionalIdAuthorizationFailedError, ACTION.ABORT),
        (API.FIND_COORDINATOR, errors.TransactionalIdAuthorizationFailedError, ACTION.ABORT),
        (API.END, errors.TransactionalIdAuthorizationFailedError, ACTION.FATAL),
        (API.INIT_PRODUCER_ID, errors.InvalidTransactionTimeoutError, ACTION.FATAL),
        # a consumer that lost its place in the group
        (API.OFFSET_COMMIT, errors.IllegalGenerationError, ACTION.ABORT),
        (API.OFFSET_COMMIT, errors.UnknownMemberIdError, ACTION.ABORT),
        (API.OFFSET_COMMIT, errors.FencedInstanceIdError, ACTION.ABORT),
        (API.OFFSET_COMMIT, errors.RebalanceInProgressError, ACTION.RETRY),
        (API.OFFSET_COMMIT, errors.RequestTimedOutError, ACTION.REDISCOVER),
        (API.OFFSET_COMMIT, errors.GroupAuthorizationFailedError, ACTION.ABORT),
        (API.ADD_PARTITIONS, errors.TopicAuthorizationFailedError, ACTION.ABORT),
        (API.ADD_PARTITIONS, errors.UnknownTopicOrPartitionError, ACTION.RETRY),
        # a batch failed for good, whatever was retried before
        (API.PRODUCE, errors.RequestTimedOutError, ACTION.ABORT),
        (API.PRODUCE, errors.OutOfOrderSequenceNumberError, ACTION.ABORT),
        (API.PRODUCE, errors.InvalidTxnStateError, ACTION.ABORT),
        (API.PRODUCE, errors.InvalidProducerEpochError, ACTION.ABORT),
        (API.PRODUCE, errors.ProducerFencedError, ACTION.FATAL),
        (API.PRODUCE, errors.ClusterAuthorizationFailedError, ACTION.FATAL),
    ],
)
def test_errors_that_mean_something_else_to_one_request(api, error, action):
    assert transaction_action(api, error()) is action


@pytest.mark.parametrize("api", COORDINATORS)
def test_an_answer_that_never_came_is_asked_for_again(api):
    assert transaction_action(api, errors.DisconnectedError()) is ACTION.REDISCOVER
    assert transaction_action(api, errors.KafkaTimeoutError()) is ACTION.REDISCOVER
    assert transaction_action(api, errors.EncodeError()) is ACTION.FATAL
    assert transaction_action(api, errors.AuthenticationError()) is ACTION.FATAL


@pytest.mark.parametrize("api", API)
def test_each_error_has_an_action_and_a_retriable_one_ends_nothing_but_a_batch(api):
    for code in range(1, 134):
        error = errors.error_for_code(code)
        action = transaction_action(api, error)
        if error.retriable and api is not API.PRODUCE:
            assert action in (ACTION.RETRY, ACTION.REDISCOVER), error


def test_an_error_of_the_transaction_ends_the_producer_only_while_that_aborts():
    after = AFTER[ACTION.ABORT]
    assert after[STATE.IN_TRANSACTION] is after[STATE.COMMITTING] is STATE.ABORTABLE_ERROR
    assert after[STATE.INITIALIZING] is STATE.UNINITIALIZED
    assert after[STATE.ABORTING] is STATE.FATAL_ERROR
    assert set(AFTER[ACTION.FATAL].values()) == {STATE.FATAL_ERROR}
