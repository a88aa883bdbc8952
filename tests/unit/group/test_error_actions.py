"""Every error has a verdict for every request, and the ones that matter have the right one."""

from __future__ import annotations

import pytest

from kafka_actors import errors
from kafka_actors.group.machines.error_actions import ErrorAction, GroupApi, judge, outcome_known

ALL_CODES = [code for code in range(-1, 134) if code != 0]


@pytest.mark.parametrize("api", GroupApi)
def test_every_code_is_judged(api):
    for code in ALL_CODES:
        error = errors.error_for_code(code)
        verdict = judge(api, error)
        if error.retriable:
            assert verdict is not ErrorAction.FATAL, error
        if verdict is ErrorAction.TAKE_MEMBER_ID:
            assert (api, code) == (GroupApi.JOIN, 79)


@pytest.mark.parametrize("api", [a for a in GroupApi if a is not GroupApi.FIND_COORDINATOR])
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
    assert judge(api, error) is ErrorAction.REDISCOVER


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
@pytest.mark.parametrize("api", [GroupApi.FIND_COORDINATOR, GroupApi.CONNECT, GroupApi.JOIN])
def test_what_no_retry_mends_ends_it(api, error):
    assert judge(api, error) is ErrorAction.FATAL


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
