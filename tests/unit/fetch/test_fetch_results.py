"""Answers to fetches: which records are taken, and what errors mean for a position."""

from __future__ import annotations

import pytest

from kafka_actors import errors
from kafka_actors.base.timeouts import MAX_THROTTLE_S
from kafka_actors.errors import (
    TopicAuthorizationFailedError,
)
from kafka_actors.fetch.machines.fetch_results import FetchErrorAction, action_for
from tests.fakes.fetching import A0, A1, E1, Harness, got, nothing, snapshot, wants


@pytest.mark.parametrize("code", [-1, 3, 5, 6, 9, 56, 74, 75, 78, 100, 103, 7, 13])
def test_a_temporary_error_never_moves_the_position(code):
    harness = Harness(retry_backoff_ms=100)
    partition = harness.assign()
    harness.reply(harness.pull(), nothing(10, error_code=code))
    plan = harness.plan()
    assert plan.pulls == []
    assert plan.lookups == []
    assert plan.refresh_metadata == (code not in (-1, 75))
    assert plan.next_wake == pytest.approx(harness.now + 0.1)
    assert "backing off" in harness.machine.reason(A0, harness.now)
    assert wants(harness.pull(after=0.11)) == [(0, 10, E1)]
    assert (partition.position, harness.events) == (10, [])


def test_repeated_errors_back_off_up_to_a_second():
    harness = Harness()
    harness.assign()
    delays = []
    for _ in range(8):
        harness.reply(harness.pull(), nothing(10, error_code=6))
        wakeup = harness.plan().next_wake
        delays.append(round(wakeup - harness.now, 3))
        harness.now = wakeup + 0.001
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]


def test_a_leader_hint_is_followed_at_once():
    harness = Harness(leaders=(1,))
    harness.assign()
    harness.reply(harness.pull(), nothing(10, error_code=6, current_leader_id=2, current_leader_epoch=6))
    plan = harness.plan()
    assert [(i.broker, wants(i)) for i in plan.pulls] == [(2, [(0, 10, E1)])]
    assert plan.refresh_metadata
    harness.machine.update_metadata(snapshot(1, epochs=[5]))
    harness.reply(plan.pulls[0], got(10, 20))
    assert {i.broker for i in harness.pulls()} == {2}, (
        "stale metadata must not win over the broker's own word"
    )


def test_an_error_of_authorization_fails_the_partition_after_what_came_before_it():
    harness = Harness()
    harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    harness.reply(harness.pulls()[0], nothing(20, error_code=29))
    item = harness.machine.take()
    assert item.next_offset == 20
    assert harness.machine.take() is None
    harness.machine.consumed(item)
    with pytest.raises(TopicAuthorizationFailedError) as caught:
        harness.machine.take()
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == ("a", 0, 1)


def test_a_failed_partition_is_reported_in_turn_with_the_records_of_others():
    harness = Harness()
    harness.assign(A0)
    harness.assign(A1)
    harness.reply(harness.pull(), nothing(10, error_code=29), got(10, 20, partition=1))
    with pytest.raises(TopicAuthorizationFailedError):
        harness.machine.take()
    assert harness.machine.take().partition == A1
    with pytest.raises(TopicAuthorizationFailedError):
        harness.machine.take()
    harness.machine.revoke(A0)
    assert harness.machine.take() is None


def test_the_error_of_a_failed_partition_is_not_raised_while_it_is_paused():
    harness = Harness()
    harness.assign(A0)
    harness.assign(A1)
    harness.reply(harness.pull(), nothing(10, error_code=29), got(10, 20, partition=1))
    harness.machine.pause(A0)
    assert harness.read() == [(1, 10, 20)]
    assert not harness.machine.has_something
    harness.machine.resume(A0)
    with pytest.raises(TopicAuthorizationFailedError):
        harness.machine.take()


def test_a_session_error_is_retried_at_once_but_not_forever():
    harness = Harness()
    harness.assign()
    harness.reply(harness.pull(), error_code=70)
    harness.reply(harness.pull(), error_code=70)
    assert harness.pulls() == []
    assert harness.machine.reason(A0, harness.now) == "broker 1: FETCH_SESSION_ID_NOT_FOUND"
    assert len(harness.pulls(after=0.06)) == 1


def test_a_throttled_broker_is_left_in_peace():
    harness = Harness()
    harness.assign()
    harness.reply(harness.pull(), got(10, 20), throttle_ms=300)
    assert harness.pulls() == []
    assert harness.machine.reason(A0, harness.now) == "broker 1: throttled"
    assert harness.pulls(after=0.31)


def test_no_throttle_stops_a_stream_for_days():
    harness = Harness()
    harness.assign()
    harness.reply(harness.pull(), got(10, 20), throttle_ms=2**31 - 1)
    assert harness.pulls(after=MAX_THROTTLE_S - 1) == []
    assert harness.pulls(after=2)


# ---------------------------------------------------------------- error actions


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


def test_a_code_of_a_newer_kafka_is_tried_again_as_javas_client_does() -> None:
    assert action_for(199) is FetchErrorAction.RETRY


@pytest.mark.parametrize("code", [-57, 30_000])
def test_a_number_that_kafka_does_not_have_ends_it(code: int) -> None:
    assert action_for(code) is FetchErrorAction.FAIL
