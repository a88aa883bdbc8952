"""The exception tree: every class is reachable by its code, says one clear line and survives pickling."""

import copy
import pickle
import uuid

import pytest
from fakes.errors import NoText

from kafka_actors import errors
from kafka_actors.errors import KafkaActorsError, KafkaError
from kafka_actors.schemas import DeserializationError, SerializationError

ARGUMENTS = {
    DeserializationError: (3, "the value is empty"),
    SerializationError: (3, "id has no value"),
    errors.ConfigError: ("group_id", "must be a string"),
    errors.NoOffsetForPartitionError: ("orders", 3),
    errors.FetchOffsetOutOfRangeError: ("orders", 3, 42, 50, 100),
    errors.LogTruncationError: ("orders", 3, 42, 40, 7),
    errors.TopicRecreatedError: ("orders", 3, 42, uuid.UUID(int=1), uuid.UUID(int=2)),
    errors.StartLostError: ("orders", 3, 42, 50, "what to do"),
    errors.DeliveryTimeoutError: ("orders", 3, 17, 120_000, True, "busy"),
    errors.UndeliveredError: (2, {}, [4, 7]),
    errors.JobFailed: (ValueError("bad row"),),
    errors.ProcessError: ("orders", 3, 42, 50, 4),
    errors.WorkerDiedError: (4, "exit code 3"),
    errors.StageError: ("score", "orders", 3, 40, 59, 4, "no good"),
    errors.SinkError: ("write_kafka(scored)", "3 records were not delivered"),
    errors.StartTimeoutError: ("a GPU", 30.0),
    errors.JobNameInUseError: ("scorer",),
}


def tree(cls: type[KafkaActorsError]) -> list[type[KafkaActorsError]]:
    return [cls, *(deeper for sub in cls.__subclasses__() for deeper in tree(sub))]


def broker_errors() -> list[type[KafkaError]]:
    return [cls for cls in tree(KafkaError) if "code" in vars(cls)]


def make(cls: type[KafkaActorsError]) -> KafkaActorsError:
    if cls in ARGUMENTS:
        return cls(*ARGUMENTS[cls])
    if issubclass(cls, errors.ConfigError):
        return cls(*ARGUMENTS[errors.ConfigError])
    if issubclass(cls, KafkaError):
        return cls("said so", request="Fetch", topic="orders", partition=3, broker=2)
    if issubclass(cls, errors.RecordError):
        return cls("orders", 3, 42, 50, "bad")
    if issubclass(cls, errors.DataLossError):
        return cls("orders", 3, 42, "gone")
    return cls("what happened")


INSTANTIABLE = [
    cls
    for cls in dict.fromkeys(tree(KafkaActorsError))
    if cls not in (KafkaError, errors.AuthorizationError, errors.AuthenticationError)
]


@pytest.mark.parametrize("cls", INSTANTIABLE, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize(
    "copier", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy], ids=["pickle", "copy"]
)
def test_every_error_survives_pickling_with_its_attributes(cls, copier):
    error = make(cls)
    again = copier(error)
    assert type(again) is type(error)
    assert again.args == error.args or cls is errors.JobFailed
    assert vars(again) == vars(error)
    assert str(again) == str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("cls", broker_errors(), ids=lambda cls: cls.__name__)
def test_every_code_has_its_class(cls):
    assert errors.for_code(cls.code) is cls
    with pytest.raises(cls) as caught:
        errors.raise_for_code(cls.code, request="Fetch", topic="orders", partition=3)
    assert caught.value.request == "Fetch"
    missing = (
        f": the principal needs the right {right}" if (right := getattr(caught.value, "right", None)) else ""
    )
    assert str(caught.value) == f"{cls.name} ({cls.code}) in answer to Fetch for orders-3{missing}"


@pytest.mark.parametrize(
    ("kind", "request_", "right"),
    [
        (errors.TopicAuthorizationFailedError, "Fetch", "Read on topic 'orders'"),
        (errors.TopicAuthorizationFailedError, "Produce", "Write on topic 'orders'"),
        (errors.TopicAuthorizationFailedError, "ListOffsets", "Describe on topic 'orders'"),
        (errors.GroupAuthorizationFailedError, "OffsetCommit", "Read on group 'scorer'"),
        (errors.GroupAuthorizationFailedError, "DeleteGroups", "Delete on group 'scorer'"),
        (errors.ClusterAuthorizationFailedError, "InitProducerId", "IdempotentWrite on cluster"),
        (errors.ClusterAuthorizationFailedError, "Unheard", None),
        (errors.TransactionalIdAuthorizationFailedError, "EndTxn", "Write on transactional-id"),
        (errors.DelegationTokenAuthorizationFailedError, "CreateDelegationToken", None),
    ],
)
def test_an_authorization_error_names_the_right_that_is_missing(kind, request_, right):
    error = kind(request=request_, topic="orders", partition=3, group="scorer")
    assert error.right == right
    assert ("needs the right" in str(error)) == (right is not None)


def test_zero_is_no_error():
    assert errors.for_code(0) is None
    assert errors.error_for_code(0) is None
    errors.raise_for_code(0)


def test_a_code_newer_than_this_version_keeps_its_number():
    cls = errors.for_code(999)
    assert cls is not None
    assert issubclass(cls, errors.UnknownServerError)
    assert errors.for_code(999) is cls
    error = pickle.loads(pickle.dumps(cls("what?", request="Fetch")))
    assert (type(error), error.code, error.request) == (cls, 999, "Fetch")
    assert "999" in str(error)


@pytest.mark.parametrize("code", [-32_768, -2, 1_000, 31_999])
def test_a_code_that_no_kafka_has_makes_no_class_and_is_named(code):
    assert errors.for_code(code) is errors.UnknownServerError
    error = errors.error_for_code(code, "why", request="Fetch")
    assert f"an error code that Kafka does not have, {code}: why" in str(error)


def test_retriable_and_stale_metadata_are_said_by_the_class():
    assert errors.NotLeaderOrFollowerError.retriable
    assert errors.NotLeaderOrFollowerError.invalid_metadata
    assert errors.CoordinatorNotAvailableError.retriable
    assert not errors.CoordinatorNotAvailableError.invalid_metadata
    assert not errors.RebalanceInProgressError.retriable
    assert not errors.GroupAuthorizationFailedError.retriable
    assert errors.DisconnectedError.retriable
    assert not errors.DecodeError.retriable


def fail() -> None:
    raise LookupError("no such customer")


def test_the_cause_travels_with_its_traceback():
    try:
        try:
            fail()
        except LookupError as cause:
            raise errors.ProcessError("orders", 3, 42, 50, 4) from cause
    except errors.ProcessError as error:
        again = pickle.loads(pickle.dumps(errors.JobFailed(error)))
    assert isinstance(again.cause, errors.ProcessError)
    cause = again.cause.__cause__
    assert isinstance(cause, LookupError)
    assert str(cause) == "'no such customer'" or str(cause) == "no such customer"
    assert "in fail" in cause.__notes__[0]
    twice = pickle.loads(pickle.dumps(again)).cause.__cause__
    assert twice.__notes__ == cause.__notes__


def test_a_cause_that_cannot_be_pickled_travels_as_text():
    class LocalError(Exception):
        pass

    error = errors.ProcessError("orders", 3, 42, 42, 1)
    error.__cause__ = LocalError("only here")
    cause = pickle.loads(pickle.dumps(error)).__cause__
    assert isinstance(cause, errors.RemoteCauseError)
    assert "LocalError: only here" in str(cause)


def test_config_errors_are_value_errors_that_name_the_option():
    with pytest.raises(ValueError, match="group_id: must be a string"):
        raise errors.ConfigError("group_id", "must be a string")


def test_a_job_that_failed_with_an_error_without_a_text_names_its_type():
    assert str(errors.JobFailed(NoText())) == "the job failed: NoText"
    assert str(errors.JobFailed(ValueError())) == "the job failed: ValueError"
