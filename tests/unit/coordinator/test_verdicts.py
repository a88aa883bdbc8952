"""Every error has a verdict for every request, and the ones that matter have the right one."""

from __future__ import annotations

import pytest

from kafka_actors import errors
from kafka_actors.coordinator.machines.verdicts import Api, Verdict, judge, outcome_known

ALL_CODES = [code for code in range(-1, 134) if code != 0]


@pytest.mark.parametrize("api", Api)
def test_every_code_is_judged(api):
    for code in ALL_CODES:
        error = errors.error_for_code(code)
        verdict = judge(api, error)
        if error.retriable:
            assert verdict is not Verdict.FATAL, error
        if verdict is Verdict.TAKE_MEMBER_ID:
            assert (api, code) == (Api.JOIN, 79)


@pytest.mark.parametrize("api", [a for a in Api if a is not Api.FIND_COORDINATOR])
@pytest.mark.parametrize(
    "error",
    [
        errors.DisconnectedError("x"),
        errors.KafkaTimeoutError("x"),
        errors.ConnectionFailedError("x"),
        errors.NodeNotReadyError("x"),
        errors.CorrelationIdError("x"),
        errors.DecodeError("x"),
        errors.NotCoordinatorError(),
        errors.CoordinatorNotAvailableError(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_what_says_that_the_coordinator_is_gone_has_it_found_again(api, error):
    assert judge(api, error) is Verdict.REDISCOVER


@pytest.mark.parametrize(
    "error",
    [
        errors.UnrecognizedBrokerVersion("x"),
        errors.EncodeError("x"),
        errors.SaslAuthenticationFailedError(),
        ValueError("x"),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("api", [Api.FIND_COORDINATOR, Api.CONNECT, Api.JOIN])
def test_what_no_retry_mends_ends_it(api, error):
    assert judge(api, error) is Verdict.FATAL


def test_only_what_was_written_and_not_answered_has_an_unknown_outcome():
    unknown = [
        errors.DisconnectedError("x"),
        errors.KafkaTimeoutError("x"),
        errors.CorrelationIdError("x"),
        errors.DecodeError("x"),
    ]
    known = [
        errors.ConnectionFailedError("x"),
        errors.NodeNotReadyError("x"),
        errors.EncodeError("x"),
        errors.UnknownServerError(),
    ]
    assert not any(outcome_known(error) for error in unknown)
    assert all(outcome_known(error) for error in known)
