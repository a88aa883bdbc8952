"""Step-by-step dialogues of one member with its coordinator."""

from __future__ import annotations

import pytest

from kafka_actors.errors import (
    DisconnectedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    KafkaTimeoutError,
)
from kafka_actors.group.machines.assignment import decode_subscription, perform_assignment
from kafka_actors.group.machines.error_actions import ErrorAction, GroupApi
from kafka_actors.group.machines.member_core import MemberState
from kafka_actors.group.machines.member_events import (
    ComputeAssignment,
    CoordinatorFound,
    Disconnect,
    GroupChannel,
    LosePartitions,
    MemberFailed,
    MemberLeft,
    RejoinStarted,
    RevokePartitions,
    TakePartitions,
)
from kafka_actors.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

S = MemberState


def test_first_join_of_a_dynamic_member_takes_the_id_it_is_given(dialogue, tp):
    d = dialogue()
    assert d.connect() == ["JoinGroup"]
    assert d.take(CoordinatorFound)[0].node == (1, "b1", 9092)
    join = d.open_request(GroupApi.JOIN)
    assert (join.body.member_id, join.channel) == ("", GroupChannel.MAIN)
    assert d.error(GroupApi.JOIN, 79, member_id="m-1") == ["JoinGroup"]
    assert d.open_request(GroupApi.JOIN).body.member_id == "m-1"
    assert d.joined(7) == ["SyncGroup"]
    assert d.open_request(GroupApi.SYNC).body.assignments == []
    d.synced("t-0", "t-1")
    assert d.member.state is S.STABLE
    assert d.take(TakePartitions) == [TakePartitions(7, tp("t-0", "t-1"), tp("t-0", "t-1"))]
    assert d.member.generation == (7, "m-1", "cooperative-sticky")


def test_join_deadline_is_the_rebalance_timeout_and_a_margin(dialogue):
    d = dialogue(rebalance_timeout=60.0, request_timeout=5.0)
    d.connect()
    assert d.open_request(GroupApi.JOIN).timeout == 65.0


def test_a_pending_join_does_not_hold_up_heartbeats(dialogue):
    d = dialogue()
    d.stable("t-0")
    d.poll(3.0)
    d.error(GroupApi.HEARTBEAT, 27)
    assert d.member.state is S.JOINING
    heartbeats = 0
    for _ in range(40):
        for api in d.poll(1.0):
            assert api == "Heartbeat"
            assert d.open_request(GroupApi.HEARTBEAT).channel is GroupChannel.OFFSETS
            d.error(GroupApi.HEARTBEAT, 27)
            heartbeats += 1
    assert heartbeats == 13
    assert d.member.state is S.JOINING
    assert d.take(LosePartitions) == []


def test_first_join_shows_that_a_coordinator_died_while_it_was_pending(dialogue):
    d = dialogue()
    d.connect()
    d.error(GroupApi.JOIN, 79, member_id="m-1")
    assert d.poll(3.0) == ["Heartbeat"]
    d.error(GroupApi.HEARTBEAT, 25)  # not a member yet: says nothing
    assert d.member.state is S.JOINING
    d.poll(3.0)
    d.answer(GroupApi.HEARTBEAT, KafkaTimeoutError("frozen"))
    assert [e.reason for e in d.take(Disconnect)] == ["frozen"]
    assert d.poll(0.2) == ["FindCoordinator"]


def lead(d, generation):
    """Answers JoinGroup to a leader without others, and takes it through its computation and SyncGroup."""
    assert d.joined(generation, leader="m-1", members=list(d.as_leader())) == []
    (work,) = d.take(ComputeAssignment)
    result = perform_assignment(d.ownership.assignors[0], work.members, d.ownership.view)
    d.ownership.watch(result.watched)
    d.member.on_assignment(work.token + 1, (), d.now)  # somebody else's
    assert d.poll() == []
    d.member.on_assignment(work.token, result.assignments, d.now)
    assert d.poll() == ["SyncGroup"]
    (handed,) = d.open_request(GroupApi.SYNC).body.assignments
    assert handed.member_id == "m-1"
    return d.answer(GroupApi.SYNC, assignment=handed.assignment)


def test_leader_computes_and_hands_in_everybodys_assignment(dialogue, tp):
    d = dialogue()
    d.connect()
    d.error(GroupApi.JOIN, 79, member_id="m-1")
    lead(d, 1)
    assert d.ownership.owned() == tp("t-0", "t-1", "t-2", "t-3")
    d.metadata({"t": 6})
    assert d.poll() == ["JoinGroup"]
    assert d.open_request(GroupApi.JOIN).body.reason == "partitions of subscribed topics have changed"


def test_leader_asks_for_one_rebalance_only_where_metadata_comes_again_during_it(dialogue, tp):
    d = dialogue()
    d.connect()
    d.error(GroupApi.JOIN, 79, member_id="m-1")
    lead(d, 1)
    d.metadata({"t": 6})
    assert d.poll() == ["JoinGroup"]
    d.metadata({"t": 6})  # while JoinGroup waits for the slowest member
    assert d.poll() == []
    assert lead(d, 2) == []
    assert d.ownership.owned() == tp("t-0", "t-1", "t-2", "t-3", "t-4", "t-5")
    assert (d.member.state, d.member.rejoin_reason) == (S.STABLE, None)


def test_follower_leaves_partition_counts_to_the_leader_but_not_its_own_topics(dialogue):
    d = dialogue()
    d.stable("t-0")
    d.metadata({"t": 6})
    assert d.poll() == []
    d.metadata({"t": 6, "t2": 1}, subscribed=["t", "t2"])
    assert d.poll() == ["JoinGroup"]


def test_cooperative_gives_up_the_difference_and_joins_again(dialogue, tp):
    d = dialogue()
    d.stable("t-0", "t-1")
    d.take(TakePartitions)
    d.poll(3.0)
    assert d.error(GroupApi.HEARTBEAT, 27) == ["JoinGroup"]
    join = d.open_request(GroupApi.JOIN)
    claimed = decode_subscription(join.body.protocols[0].metadata)
    assert [(t.topic, t.partitions) for t in claimed.owned_partitions] == [("t", [0, 1])]
    assert claimed.generation_id == 1
    d.joined(2)
    d.synced("t-1", "t-2")
    (revoke,) = d.take(RevokePartitions)
    assert revoke.partitions == tp("t-0")
    assert d.take(TakePartitions) == [TakePartitions(2, tp("t-2"), tp("t-1", "t-2"))]
    assert d.member.state is S.REVOKING
    assert d.poll(3.0) == ["Heartbeat"]  # drains, and stays a member
    d.member.on_released(revoke.token, d.now)
    assert d.poll() == ["JoinGroup"]
    assert d.open_request(GroupApi.JOIN).body.reason == "need to revoke partitions and re-join"
    d.joined(3)
    d.synced("t-1", "t-2")
    assert d.member.state is S.STABLE


def test_eager_gives_up_everything_before_it_joins(dialogue, tp):
    d = dialogue(["range"])
    d.stable("t-0", "t-1")
    d.poll(3.0)
    assert d.error(GroupApi.HEARTBEAT, 27) == []
    (revoke,) = d.take(RevokePartitions)
    assert revoke.partitions == tp("t-0", "t-1")
    assert d.ownership.releasing == tp("t-0", "t-1")
    d.member.on_released(revoke.token, d.now)
    assert d.poll() == ["JoinGroup"]
    assert (
        decode_subscription(d.open_request(GroupApi.JOIN).body.protocols[0].metadata).owned_partitions == []
    )


def test_a_drain_that_never_ends_is_left_behind_at_its_deadline(dialogue):
    d = dialogue(["range"], revoke_timeout=5.0)
    d.stable("t-0")
    d.poll(3.0)
    d.error(GroupApi.HEARTBEAT, 27)
    (revoke,) = d.take(RevokePartitions)
    assert d.poll(4.9) == ["Heartbeat"]
    d.error(GroupApi.HEARTBEAT, 27)
    assert "JoinGroup" in d.poll(0.2)
    d.member.on_released(revoke.token, d.now)  # too late, and harmless
    assert d.member.state is S.JOINING


@pytest.mark.parametrize(("code", "keeps_id"), [(22, True), (25, False), (110, False), (113, True)])
def test_a_heartbeat_that_says_the_membership_is_gone_loses_everything(dialogue, tp, code, keeps_id):
    d = dialogue()
    d.stable("t-0")
    d.poll(3.0)
    assert d.error(GroupApi.HEARTBEAT, code) == ["JoinGroup"]
    assert [e.partitions for e in d.take(LosePartitions)] == [tp("t-0")]
    join = d.open_request(GroupApi.JOIN).body
    assert join.member_id == ("m-1" if keeps_id else "")
    claimed = decode_subscription(join.protocols[0].metadata)
    assert (claimed.owned_partitions, claimed.generation_id) == ([], -1)


def test_who_missed_the_rebalance_learns_it_from_its_next_heartbeat(dialogue, tp):
    d = dialogue()
    d.stable("t-0")
    d.poll(3.0)
    d.error(GroupApi.HEARTBEAT, 27)  # and this JoinGroup gets lost
    d.poll(3.0)
    d.error(GroupApi.HEARTBEAT, 22)  # may only mean that the answer is under way
    assert d.take(LosePartitions) == []
    d.poll(3.0)
    assert d.error(GroupApi.HEARTBEAT, 25) == ["JoinGroup"]
    assert [e.partitions for e in d.take(LosePartitions)] == [tp("t-0")]


@pytest.mark.parametrize("code", [22, 25, 82])
def test_an_error_about_an_old_generation_says_nothing_of_the_new_one(dialogue, code):
    d = dialogue(group_instance_id="i-1")
    d.stable("t-0")
    d.poll(3.0)
    d.member.request_rejoin("because")
    d.poll()
    d.joined(2)
    d.synced("t-0")
    d.error(GroupApi.HEARTBEAT, code)
    assert d.member.state is S.STABLE
    assert d.take(LosePartitions) == []


@pytest.mark.parametrize(
    ("code", "error"), [(82, FencedInstanceIdError), (30, GroupAuthorizationFailedError)]
)
def test_fatal_heartbeat_errors_end_the_member_visibly(dialogue, tp, code, error):
    d = dialogue(group_instance_id="i-1")
    d.stable("t-0")
    d.poll(3.0)
    d.error(GroupApi.HEARTBEAT, code)
    assert d.member.state is S.FATAL
    assert isinstance(d.member.fatal, error)
    assert [type(e) for e in d.events if isinstance(e, (LosePartitions, MemberFailed))] == [
        LosePartitions,
        MemberFailed,
    ]
    assert d.poll(100.0) == []
    assert d.wake is None


@pytest.mark.parametrize("code", [24, 26, 30, 35, 81, 82])
def test_join_errors_that_no_retry_mends(dialogue, code):
    d = dialogue()
    d.connect()
    d.error(GroupApi.JOIN, code)
    assert d.member.state is S.FATAL
    assert d.member.fatal.code == code
    assert d.member.fatal.request == "JoinGroup"


@pytest.mark.parametrize("code", [14, 27, 111])
def test_join_errors_that_pass_are_retried_after_a_backoff(dialogue, code):
    d = dialogue(group_instance_id="i-1", retry_backoff=0.1)
    d.connect()
    d.answer(GroupApi.DESCRIBE, RuntimeError("not asked"))
    waits = []
    for _ in range(6):
        assert d.error(GroupApi.JOIN, code) == []
        waits.append(round(d.wake - d.now, 3))
        assert d.poll(d.wake - d.now) == ["JoinGroup"]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize("api", [GroupApi.JOIN, GroupApi.SYNC, GroupApi.HEARTBEAT])
@pytest.mark.parametrize("outcome", [15, 16, DisconnectedError("gone"), KafkaTimeoutError("silent")])
def test_a_coordinator_that_moved_is_found_again_without_losing_anything(dialogue, tp, api, outcome):
    d = dialogue()
    d.stable("t-0")
    d.poll(3.0)
    if api is not GroupApi.HEARTBEAT:
        d.error(GroupApi.HEARTBEAT, 27)
    if api is GroupApi.SYNC:
        d.joined(2)
    d.error(api, outcome) if isinstance(outcome, int) else d.answer(api, outcome)
    assert len(d.take(Disconnect)) == 1
    assert d.poll(0.2) == ["FindCoordinator"]
    d.answer(GroupApi.FIND_COORDINATOR, node_id=2)
    d.answer(GroupApi.CONNECT)
    if api is not GroupApi.HEARTBEAT:
        d.joined(3)
        d.synced("t-0")
    assert d.member.state is S.STABLE
    assert d.take(LosePartitions) == []
    assert d.ownership.owned() == tp("t-0")


def test_inconsistent_protocol_names_the_option_and_what_the_group_uses(dialogue):
    d = dialogue(describe_strategy="['cooperative-sticky']")
    d.connect()
    assert d.error(GroupApi.JOIN, 23) == ["DescribeGroups"]
    group = DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range"
    )
    d.answer(GroupApi.DESCRIBE, DescribeGroupsResponse(groups=[group]))
    assert isinstance(d.member.fatal, InconsistentGroupProtocolError)
    assert "partition_assignment_strategy is ['cooperative-sticky']" in str(d.member.fatal)
    assert "uses 'range'" in str(d.member.fatal)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (26, "session_timeout_ms is 5000: the broker's group.min.session.timeout.ms and group.max.session"),
        (30, "group 'g'"),
        (82, "group_instance_id 'i-1' is in use elsewhere"),
    ],
)
def test_what_brokers_refuse_a_member_for_is_named(dialogue, code, says):
    d = dialogue(session_timeout=5.0, group_instance_id="i-1")
    d.connect()
    d.answer(GroupApi.DESCRIBE, RuntimeError("not asked"))
    d.error(GroupApi.JOIN, code)
    assert says in str(d.member.fatal)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (FencedInstanceIdError, "group_instance_id 'i-1' is in use elsewhere"),
        (GroupAuthorizationFailedError, "group 'g'"),
    ],
)
def test_a_member_that_a_commit_ends_says_of_what_it_is_about(dialogue, tp, error, says):
    d = dialogue(group_instance_id="i-1")
    d.stable("t-0")
    of_a_commit = error(request="OffsetCommit", topic="t", partition=0)
    d.member.on_membership_error(of_a_commit, ErrorAction.FATAL, d.member.generation, d.now)
    assert isinstance(d.member.fatal, error)
    assert says in str(d.member.fatal)
    assert "OffsetCommit" in str(d.member.fatal)
    assert "t-0" not in str(d.member.fatal)


def test_session_that_ends_without_an_acknowledged_heartbeat_loses_everything(dialogue, tp):
    d = dialogue(session_timeout=45.0)
    d.stable("t-0")
    sent = []
    while not d.take(LosePartitions):
        sent += d.poll(1.0)
        for request in [r for r in d.out if r.api is GroupApi.HEARTBEAT]:
            if d.now >= request.sent_at + request.timeout:
                d.answer(GroupApi.HEARTBEAT, KafkaTimeoutError("silent"))
        assert d.now < 200
    assert d.now - 100.0 <= 45.0
    assert d.member.generation.id == -1
    assert d.member.generation.member_id == "m-1"


def test_a_suspended_process_finds_its_session_over_and_joins_again(dialogue, tp):
    d = dialogue()
    d.stable("t-0")
    d.poll(3600.0)
    assert [e.partitions for e in d.take(LosePartitions)] == [tp("t-0")]
    assert d.poll(0.2) == ["FindCoordinator"]
    d.answer(GroupApi.FIND_COORDINATOR)
    assert d.answer(GroupApi.CONNECT) == ["JoinGroup"]


def test_lease_counts_from_the_sending_of_what_was_acknowledged(dialogue):
    d = dialogue()
    d.stable("t-0")
    d.poll(3.0)
    sent = d.now
    d.poll(2.0)
    d.answer(GroupApi.HEARTBEAT)
    assert d.member.heartbeat.acknowledged_at == sent


def test_no_progress_within_the_poll_interval_gives_everything_away(dialogue, tp):
    d = dialogue(max_poll_interval=10.0)
    d.stable("t-0")
    for _ in range(9):
        d.poll(1.0)
        if any(r.api is GroupApi.HEARTBEAT for r in d.out):
            d.answer(GroupApi.HEARTBEAT)
    assert "LeaveGroup" in d.poll(1.1)
    assert [e.partitions for e in d.take(LosePartitions)] == [tp("t-0")]
    assert d.poll(60.0) == []
    d.member.user_progress(d.now)
    assert d.poll() == ["JoinGroup"]


def test_static_member_that_was_put_out_leaves_its_id_to_a_successor(dialogue):
    """LeaveGroup without a member id removes whoever has the group_instance_id, as an administrator does."""
    d = dialogue(group_instance_id="i-1", max_poll_interval=10.0)
    d.stable("t-0")
    d.poll(10.0)
    assert (d.member.state, d.member.generation.member_id) == (S.UNJOINED, "")
    d.member.leave(d.now, 5.0)
    assert d.poll() == []
    assert d.member.state is S.LEFT


@pytest.mark.parametrize(("outcome", "says"), [({"error_code": 14}, False), (None, True)])
def test_static_member_without_an_id_leaves_only_a_group_that_may_have_it(dialogue, outcome, says):
    d = dialogue(group_instance_id="i-1")
    d.connect()
    assert d.answer(GroupApi.DESCRIBE, RuntimeError("not asked")) == ["JoinGroup"]
    if outcome is not None:
        d.answer(GroupApi.JOIN, **outcome)
    d.member.leave(d.now, 5.0)
    assert d.poll() == (["LeaveGroup"] if says else [])


def test_leaving_drains_first_and_then_says_so(dialogue, tp):
    d = dialogue()
    d.stable("t-0")
    d.member.leave(d.now, 10.0, reason="bye")
    assert d.poll() == []
    (revoke,) = d.take(RevokePartitions)
    assert revoke.partitions == tp("t-0")
    assert revoke.deadline <= d.now + 9.0
    d.member.on_released(revoke.token, d.now)
    assert d.poll() == ["LeaveGroup"]
    leave = d.open_request(GroupApi.LEAVE)
    assert leave.channel is GroupChannel.OFFSETS  # a pending JoinGroup would hold it up
    assert (leave.body.members[0].member_id, leave.body.members[0].reason) == ("m-1", "bye")
    d.answer(GroupApi.LEAVE)
    assert d.member.state is S.LEFT
    assert len(d.take(MemberLeft)) == 1
    assert d.poll(100.0) == []


def test_leaving_during_a_drain_keeps_time_to_say_so(dialogue, tp):
    """Else the group waits for the end of the session."""
    d = dialogue(revoke_timeout=150.0, rebalance_timeout=300.0)
    d.stable("t-0", "t-1")
    d.poll(3.0)
    d.error(GroupApi.HEARTBEAT, 27)
    d.joined(2)
    d.synced("t-1")
    assert d.take(RevokePartitions)[0].deadline == d.now + 150.0
    d.member.leave(d.now, 10.0)
    d.poll()
    assert d.wake <= d.now + 9.0
    d.poll(9.0)  # nobody takes notice of the drain
    (rest,) = d.take(RevokePartitions)
    assert rest.partitions == tp("t-1")
    assert d.poll() == ["LeaveGroup"]
    d.answer(GroupApi.LEAVE)
    assert d.member.state is S.LEFT


@pytest.mark.parametrize("state", [S.JOINING, S.SYNCING])
def test_leaving_waits_for_no_rebalance(dialogue, state):
    d = dialogue()
    d.stable("t-0")
    d.poll(3.0)
    d.error(GroupApi.HEARTBEAT, 27)
    if state is S.SYNCING:
        d.joined(2)
    assert d.member.state is state
    d.member.leave(d.now, 10.0)
    d.poll()
    d.member.on_released(d.take(RevokePartitions)[0].token, d.now)
    assert d.poll() == ["LeaveGroup"], "whatever other members still have to answer"


def test_leaving_ends_by_its_deadline_even_with_no_coordinator(dialogue):
    d = dialogue()
    d.stable("t-0")
    d.member.coordinator_lost("gone", d.now)
    d.member.leave(d.now, 5.0)
    d.poll()
    d.poll(2.0)
    d.poll(3.0)
    assert d.member.state is S.LEFT


def test_rolling_deploy_does_not_say_goodbye(dialogue):
    d = dialogue(group_instance_id="i-1")
    d.stable("t-0")
    d.member.leave(d.now, 5.0, ask=False)
    d.poll()
    d.member.on_released(d.take(RevokePartitions)[0].token, d.now)
    assert d.poll() == []
    assert d.member.state is S.LEFT


def test_leaving_before_the_first_join_has_nothing_to_say(dialogue):
    d = dialogue()
    d.member.start(d.now)
    d.member.leave(d.now, 5.0)
    d.poll()
    assert d.member.state is S.LEFT


def described(d, *, topics=("t",), assigned=("t-0", "t-1"), rest=("t-2", "t-3"), tp):
    """The group as a returning static member finds it."""
    from kafka_actors.group.machines.assignment import encode_assignment
    from kafka_actors.protocol.consumer_protocol import encode_consumer_protocol
    from kafka_actors.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

    metadata = encode_consumer_protocol(ConsumerProtocolSubscription(topics=list(topics)))
    members = [
        DescribedGroupMember(
            member_id="old",
            group_instance_id="i-1",
            member_metadata=metadata,
            member_assignment=encode_assignment(tp(*assigned)),
        ),
        DescribedGroupMember(member_id="peer", member_assignment=encode_assignment(tp(*rest))),
    ]
    group = DescribedGroup(
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="cooperative-sticky",
        members=members,
    )
    return DescribeGroupsResponse(groups=[group])


def test_static_member_that_comes_back_unchanged_keeps_its_partitions_without_a_rebalance(dialogue, tp):
    d = dialogue(group_instance_id="i-1")
    assert d.connect() == ["DescribeGroups"]
    assert d.answer(GroupApi.DESCRIBE, described(d, tp=tp)) == ["JoinGroup"]
    d.joined(5, member_id="new")
    d.synced("t-0", "t-1")
    assert d.member.state is S.STABLE
    assert d.poll() == []


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"topics": ("t", "u")}, "the subscription has changed since this static member was last here"),
        ({"rest": ("t-2",)}, "partitions have changed since this static member was last here"),
    ],
)
def test_static_member_that_comes_back_to_something_else_has_the_group_rebalance(
    dialogue, tp, changed, reason
):
    d = dialogue(group_instance_id="i-1")
    d.connect()
    d.answer(GroupApi.DESCRIBE, described(d, tp=tp, **changed))
    d.joined(5, member_id="new")
    d.synced("t-0", "t-1")
    assert d.member.state is S.STABLE
    assert d.poll(d.wake - d.now) == ["JoinGroup"]
    join = d.open_request(GroupApi.JOIN).body
    assert (join.reason, join.member_id) == (reason, "new")
    assert d.ownership.owned() == tp("t-0", "t-1")
    d.joined(6, member_id="new")
    d.synced("t-0", "t-1")
    assert d.poll(1.5) == []  # asked for once


@pytest.mark.parametrize("code", [14, 15, 16])
def test_static_member_that_comes_back_while_no_coordinator_serves_has_the_group_described_later(
    dialogue, tp, code
):
    """Else a topic that it subscribes to since would never be read: it is handed its old assignment without a rebalance."""
    d = dialogue(group_instance_id="i-1")
    assert d.connect() == ["DescribeGroups"]
    refused = DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", error_code=code)])
    sent = d.answer(GroupApi.DESCRIBE, refused) or d.poll(0.2)
    if code != 14:
        assert sent == ["FindCoordinator"]
        d.answer(GroupApi.FIND_COORDINATOR)
        sent = d.answer(GroupApi.CONNECT)
    assert sent == ["DescribeGroups"]
    assert d.answer(GroupApi.DESCRIBE, described(d, tp=tp, topics=("t", "u"))) == ["JoinGroup"]
    d.joined(5, member_id="new")
    d.synced("t-0", "t-1")
    assert d.poll(d.wake - d.now) == ["JoinGroup"]


def test_static_member_whose_coordinator_is_lost_before_it_described_the_group_asks_the_next_one(dialogue):
    d = dialogue(group_instance_id="i-1")
    assert d.connect() == ["DescribeGroups"]
    d.member.coordinator_lost("a commit was not answered", d.now)
    assert d.poll(0.2) == ["FindCoordinator"]
    d.answer(GroupApi.FIND_COORDINATOR)
    assert d.answer(GroupApi.CONNECT) == ["DescribeGroups"]


def test_static_leader_that_comes_back_skips_the_assignment(dialogue, tp):
    d = dialogue(group_instance_id="i-1")
    d.connect()
    d.answer(GroupApi.DESCRIBE, described(d, tp=tp))
    members = list(d.as_leader())
    sent = d.joined(5, member_id="new", leader="new", members=members, skip_assignment=True)
    assert sent == ["SyncGroup"]
    assert d.open_request(GroupApi.SYNC).body.assignments == []
    d.synced("t-0", "t-1")
    assert not d.ownership.watching  # the shell tells it from when on


def test_assignment_of_a_topic_that_is_not_wanted_is_not_taken(dialogue, tp):
    d = dialogue()
    d.stable("t-0")
    d.poll(3.0)
    d.error(GroupApi.HEARTBEAT, 27)
    d.joined(2)
    d.synced("t-0", "other-1")
    assert d.ownership.owned() == tp("t-0")
    assert d.take(LosePartitions) == []
    assert d.poll(d.wake - d.now) == ["JoinGroup"]


def test_bytes_that_are_no_assignment_lead_to_another_round_not_to_an_end(dialogue):
    d = dialogue()
    d.connect()
    d.error(GroupApi.JOIN, 79, member_id="m-1")
    d.joined()
    d.answer(GroupApi.SYNC, assignment=b"\x00\x01\xff")
    assert d.member.state is S.JOINING
    assert d.poll(d.wake - d.now) == ["JoinGroup"]


def test_answers_that_come_after_their_request_was_given_up_change_nothing(dialogue):
    d = dialogue(heartbeat_timeout=9.0)
    d.stable("t-0")
    d.poll(3.0)
    late = d.open_request(GroupApi.HEARTBEAT)
    d.poll(10.5)
    assert len(d.take(Disconnect)) == 1
    assert not d.member.on_response(late, d.reply(GroupApi.HEARTBEAT, {"error_code": 25}), d.now)
    assert d.take(LosePartitions) == []


def test_rejoin_reasons_are_told(dialogue):
    d = dialogue()
    d.connect()
    d.error(GroupApi.JOIN, 79, member_id="m-1")
    assert d.open_request(GroupApi.JOIN).body.reason == "need to re-join with the given member id"
    assert [e.reason for e in d.take(RejoinStarted)] == ["the consumer starts"]


def test_a_broker_that_is_slow_to_name_the_coordinator_or_to_be_connected_has_more_time_at_each_try(dialogue):
    d = dialogue(heartbeat_timeout=9.0, request_timeout=30.0)
    d.member.start(d.now)
    given = []
    for api in (GroupApi.FIND_COORDINATOR, GroupApi.CONNECT):
        for _ in range(3):
            if api is GroupApi.CONNECT and api not in [request.api for request in d.out]:
                d.answer(GroupApi.FIND_COORDINATOR)
            d.poll(2.0)
            given.append(d.open_request(api).timeout)
            d.now += d.open_request(api).timeout
            d.answer(api, KafkaTimeoutError("silent"))
            d.poll(2.0)
    assert given == [9.0, 18.0, 30.0] * 2


def test_the_end_of_a_drain_that_was_left_behind_does_not_end_the_next_one(dialogue, tp):
    d = dialogue(revoke_timeout=5.0)
    d.stable("t-0", "t-1", "t-2")
    d.poll(3.0)
    d.error(GroupApi.HEARTBEAT, 27)
    d.joined(2)
    d.synced("t-1", "t-2")
    (first,) = d.take(RevokePartitions)
    d.poll(5.0)
    d.joined(3)
    d.synced("t-2")
    (second,) = d.take(RevokePartitions)
    assert second.partitions == tp("t-1")
    d.member.on_released(first.token, d.now)
    assert d.member.state is S.REVOKING
    assert "JoinGroup" not in d.poll()
    d.member.on_released(second.token, d.now)
    assert d.poll() == ["JoinGroup"]


def test_a_group_of_another_protocol_type_is_named(dialogue):
    d = dialogue()
    d.connect()
    d.error(GroupApi.JOIN, 79, member_id="m-1")
    d.joined(1, protocol_type="connect")
    assert isinstance(d.member.fatal, InconsistentGroupProtocolError)
    assert "the group 'g' is of the type 'connect'" in str(d.member.fatal)
