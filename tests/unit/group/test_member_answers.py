"""Consequences of answers, and of errors of commits, for a member: each kind alone. Whole dialogues are in test_member.py."""

from __future__ import annotations

import pytest

from kafka_actors.errors import (
    DecodeError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    NodeNotReadyError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kafka_actors.group.machines.error_actions import ErrorAction, GroupApi
from kafka_actors.group.machines.member_core import MemberState
from kafka_actors.group.machines.member_events import (
    LosePartitions,
    MemberFailed,
    MemberLeft,
    RejoinStarted,
    TakePartitions,
)

S = MemberState
LOADING, MOVED, UNKNOWN = 14, 16, 25


def stable(dialogue, *partitions, **config):
    """A member with an assignment, of which nothing more is to be said."""
    d = dialogue(**config)
    d.stable(*(partitions or ("t-0", "t-1")))
    d.events.clear()
    return d


# ---------------------------------------------------------------- answers that don't count


def test_an_answer_counts_once_and_only_for_the_request_that_is_in_flight(dialogue):
    d = dialogue()
    d.connect()
    join = d.open_request(GroupApi.JOIN)
    answer = d.reply(GroupApi.JOIN, {"error_code": 79, "member_id": "m-1"})

    assert d.member.on_response(join, answer, d.now)
    assert not d.member.on_response(join, answer, d.now)

    assert d.member.generation.member_id == "m-1"


def test_after_the_end_no_answer_counts(dialogue):
    d = stable(dialogue, heartbeat_interval=3.0)
    assert d.poll(3.0) == ["Heartbeat"]
    beat = d.open_request(GroupApi.HEARTBEAT)
    d.member.on_membership_error(ValueError("no"), ErrorAction.FATAL, d.member.generation, d.now)
    assert d.member.ended
    assert not d.member.on_response(beat, d.reply(GroupApi.HEARTBEAT, {"error_code": UNKNOWN}), d.now)


@pytest.mark.parametrize("answered", [0, 1, 2], ids=["FindCoordinator", "connect", "JoinGroup"])
def test_an_error_that_nobody_foresaw_ends_the_member_for_everybody_to_see(dialogue, answered):
    """It would wait for ever for the answer that it has had, and look alive."""
    d = dialogue()
    d.member.start(d.now)
    d.poll()
    way = (GroupApi.FIND_COORDINATOR, GroupApi.CONNECT, GroupApi.JOIN)
    for api in way[:answered]:
        d.answer(api)

    d.answer(way[answered], RuntimeError("out of luck"))

    (failed,) = d.take(MemberFailed)
    assert (str(failed.error), d.member.state) == ("out of luck", S.FATAL)


# ---------------------------------------------------------------- errors of commits


@pytest.mark.parametrize(
    ("error", "verdict", "kept_id"),
    [
        (IllegalGenerationError(), ErrorAction.RESET_GENERATION, "m-1"),
        (UnknownMemberIdError(), ErrorAction.RESET_MEMBER, ""),
    ],
)
def test_a_commit_that_shows_that_the_generation_is_gone_costs_the_partitions(
    dialogue, tp, error, verdict, kept_id
):
    d = stable(dialogue)

    d.member.on_membership_error(error, verdict, d.member.generation, d.now)
    d.poll()

    (lost,) = d.take(LosePartitions)
    assert lost.partitions == tp("t-0", "t-1")
    assert d.member.generation.member_id == kept_id


@pytest.mark.parametrize("ends", ["generation", "session"])
def test_a_member_id_that_may_have_passed_to_a_later_process_is_left_to_it(dialogue, ends):
    """The group can only have gone on without this process because another has joined under its id, or it has slept for long."""
    d = stable(dialogue, incarnation=1)
    if ends == "generation":
        d.member.on_membership_error(
            IllegalGenerationError(), ErrorAction.RESET_GENERATION, d.member.generation, d.now
        )
    else:
        d.poll(60.0)
    assert d.member.generation.member_id == ""


def test_a_commit_of_an_older_generation_costs_nothing(dialogue):
    d = stable(dialogue)
    older = d.member.generation._replace(id=0)
    for verdict in (ErrorAction.RESET_GENERATION, ErrorAction.RESET_MEMBER, ErrorAction.REJOIN):
        d.member.on_membership_error(IllegalGenerationError(), verdict, older, d.now)
    assert d.poll() == []
    assert (d.take(LosePartitions), d.member.state) == ([], S.STABLE)


def test_a_late_heartbeat_that_says_that_the_group_rebalances_asks_for_no_other_rebalance(dialogue):
    """Its answer takes another connection than JoinGroup's, and comes after the rebalance that it speaks of."""
    d = stable(dialogue)
    d.poll(3.0)
    assert d.error(GroupApi.HEARTBEAT, 27) == ["JoinGroup"]
    assert d.poll(3.0) == ["Heartbeat"]
    d.joined(2)
    d.synced("t-0", "t-1")
    assert d.error(GroupApi.HEARTBEAT, 27) == []
    assert (d.member.state, d.member.rejoin_reason) == (S.STABLE, None)


@pytest.mark.parametrize(
    ("verdict", "loses"), [(ErrorAction.RESET_GENERATION, False), (ErrorAction.RESET_MEMBER, True)]
)
def test_while_a_join_is_under_way_only_a_member_that_is_unknown_has_lost_what_it_has(
    dialogue, verdict, loses
):
    """An illegal generation may only mean that JoinGroup's answer is on its way."""
    d = stable(dialogue)
    d.member.on_membership_error(RebalanceInProgressError(), ErrorAction.REJOIN, d.member.generation, d.now)
    assert d.poll() == ["JoinGroup"]
    d.member.on_membership_error(UnknownMemberIdError(), verdict, d.member.generation, d.now)
    d.poll()
    assert bool(d.take(LosePartitions)) == loses


def test_a_commit_during_a_rebalance_has_the_member_join_and_keep_what_it_has(dialogue):
    d = stable(dialogue)
    d.member.on_membership_error(RebalanceInProgressError(), ErrorAction.REJOIN, d.member.generation, d.now)
    assert d.poll() == ["JoinGroup"]
    assert [rejoin.reason for rejoin in d.take(RejoinStarted)] == ["the group is rebalancing"]
    assert d.take(LosePartitions) == []


def test_a_commit_to_a_broker_that_coordinates_no_more_has_the_coordinator_looked_for(dialogue):
    d = stable(dialogue)
    d.member.on_membership_error(NotCoordinatorError(), ErrorAction.REDISCOVER, d.member.generation, d.now)
    assert d.member.coordinator is None
    assert d.poll(10.0) == ["FindCoordinator"]
    assert d.member.state is S.STABLE


# ---------------------------------------------------------------- join and sync


def test_an_answer_under_another_strategy_than_that_of_the_join_ends_the_member(dialogue):
    d = dialogue()
    d.connect()
    d.joined()
    d.answer(GroupApi.SYNC, protocol_name="range", assignment=b"")
    (failed,) = d.take(MemberFailed)
    assert isinstance(failed.error, InconsistentGroupProtocolError)
    assert "joined with 'cooperative-sticky', synced with 'range'" in str(failed.error)


def test_the_reason_why_a_group_is_not_joined_is_known_until_it_is(dialogue):
    d = dialogue()
    d.member.start(d.now)
    d.poll()
    d.answer(GroupApi.FIND_COORDINATOR, NodeNotReadyError("no broker may be asked now"))
    assert d.member.trouble == "no broker may be asked now"
    d.poll(5.0)
    d.answer(GroupApi.FIND_COORDINATOR)
    assert d.member.trouble, "the broker that it names has not been reached"
    d.answer(GroupApi.CONNECT)
    assert not d.member.trouble
    d.error(GroupApi.JOIN, LOADING)
    d.poll(5.0)
    d.joined()
    assert d.member.trouble.startswith("COORDINATOR_LOAD_IN_PROGRESS (14) in answer to JoinGroup")
    d.error(GroupApi.SYNC, 27)
    d.joined(2)
    d.synced("t-0")
    assert not d.member.trouble


def test_a_group_of_another_type_ends_the_member(dialogue):
    d = dialogue()
    d.connect()
    d.joined(protocol_type="connect")
    (failed,) = d.take(MemberFailed)
    assert "the group 'g' is of the type 'connect'" in str(failed.error)


def test_a_followers_sync_waits_as_long_as_the_leaders_may_take(dialogue):
    d = dialogue(rebalance_timeout=60.0, request_timeout=5.0)
    d.connect()
    d.joined()
    assert d.open_request(GroupApi.SYNC).timeout == 60.0


def test_a_sync_that_is_refused_for_a_moment_is_a_join_after_a_pause_and_takes_nothing(dialogue):
    d = dialogue()
    d.connect()
    d.joined()
    d.events.clear()
    assert d.error(GroupApi.SYNC, LOADING) == []
    assert d.member.state is S.JOINING
    assert d.take(TakePartitions) == []
    assert "JoinGroup" in d.poll(10.0)
    assert [rejoin.reason for rejoin in d.take(RejoinStarted)] == [
        "rebalance failed: COORDINATOR_LOAD_IN_PROGRESS"
    ]


# ---------------------------------------------------------------- heartbeats


def beaten(dialogue, interval=3.0, **fields):
    d = stable(dialogue, heartbeat_interval=interval, session_timeout=10.0, retry_backoff=0.5)
    assert d.poll(interval) == ["Heartbeat"]
    d.answer(GroupApi.HEARTBEAT, **fields)
    return d


def test_a_heartbeat_to_a_coordinator_that_loads_is_not_sent_again_before_the_retry_backoff(dialogue):
    d = beaten(dialogue, interval=0.25, error_code=LOADING)
    assert d.poll(0.4) == []
    assert d.poll(0.1) == ["Heartbeat"]


@pytest.mark.parametrize(("code", "goes_on"), [(0, True), (27, True), (LOADING, False)])
def test_the_session_goes_on_from_a_heartbeat_that_was_answered_to_a_member(dialogue, code, goes_on):
    """Also by "the group rebalances"; not by a coordinator that doesn't know its members yet."""
    d = beaten(dialogue, error_code=code)
    d.poll(7.5)
    assert bool(d.take(LosePartitions)) != goes_on


# ---------------------------------------------------------------- leaving


def leaving(dialogue):
    d = stable(dialogue)
    d.member.leave(d.now, 60.0)
    d.poll()
    while not any(request.api is GroupApi.LEAVE for request in d.out):
        (revoked,) = [event for event in d.events if hasattr(event, "token")]
        d.events.clear()
        d.member.on_released(revoked.token, d.now)
        d.poll()
    return d


@pytest.mark.parametrize("outcome", [DecodeError("no answer"), None], ids=["can't be read", "unknown member"])
def test_who_is_answered_in_any_way_has_left(dialogue, outcome):
    d = leaving(dialogue)
    if outcome is None:
        d.error(GroupApi.LEAVE, UNKNOWN)
    else:
        d.answer(GroupApi.LEAVE, outcome)
    assert len(d.take(MemberLeft)) == 1
    assert d.member.ended


@pytest.mark.parametrize(("code", "then"), [(LOADING, "LeaveGroup"), (MOVED, "FindCoordinator")])
def test_who_has_met_no_coordinator_says_goodbye_again(dialogue, code, then):
    d = leaving(dialogue)
    d.error(GroupApi.LEAVE, code)
    assert not d.member.ended
    assert then in [request.api.value for request in d.out] or d.poll(5.0) == [then]
