"""Errors of a fetched partition, and what is done about them."""

from __future__ import annotations

import pytest

from kafka_actors import errors
from kafka_actors.fetch.machines.error_actions import FetchErrorAction, action_for


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        (errors.UnknownServerError, FetchErrorAction.RETRY),
        (errors.OffsetOutOfRangeError, FetchErrorAction.OUT_OF_RANGE),
        (errors.CorruptMessageError, FetchErrorAction.FAIL),
        (errors.UnknownTopicOrPartitionError, FetchErrorAction.REFRESH),
        (errors.TopicAuthorizationFailedError, FetchErrorAction.FAIL),
        (errors.UnknownLeaderEpochError, FetchErrorAction.RETRY),
        (errors.InconsistentTopicIdError, FetchErrorAction.REFRESH),
    ],
)
def test_an_error_of_the_table_has_its_action(
    kind: type[errors.KafkaError], action: FetchErrorAction
) -> None:
    assert action_for(kind.code) is action


def test_any_other_error_is_tried_again_where_kafka_calls_it_retriable() -> None:
    assert action_for(errors.ThrottlingQuotaExceededError.code) is FetchErrorAction.REFRESH
    assert action_for(errors.PolicyViolationError.code) is FetchErrorAction.FAIL


@pytest.mark.parametrize("code", [500, -57, 30_000])
def test_a_number_that_kafka_does_not_have_ends_it(code: int) -> None:
    assert action_for(code) is FetchErrorAction.FAIL
