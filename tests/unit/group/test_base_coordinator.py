"""A member of a group of any kind, before and between its requests: its state, its heartbeats, and the calls of its subclass."""

import asyncio

import pytest
from fakes.loop import in_loop, turns, turns_until

from kafka_actors.errors import (
    ConfigError,
    GroupAuthorizationFailedError,
    KafkaTimeoutError,
    NodeNotReadyError,
    ProtocolError,
)
from kafka_actors.group import BaseCoordinator
from kafka_actors.group.machines.member_events import LosePartitions, RevokePartitions, TakePartitions
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import DescribeGroupsResponse
from kafka_actors.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kafka_actors.types import ConsumerGroupMetadata, TopicPartition

PART = frozenset({TopicPartition("t", 0)})


class Shares(BaseCoordinator):
    """A group of its own kind, which notes the calls of its membership."""

    def __init__(self, **options):
        self.now_s, self.calls, self.blocks = 100.0, [], None
        options = {"group_id": "g", "max_poll_interval_ms": None, "rebalance_timeout_ms": 5_000} | options
        super().__init__(KafkaClient(), clock=lambda: self.now_s, events=lambda event: None, **options)

    def protocol_type(self):
        return "shares"

    def group_protocols(self):
        return [("first-come", b"abc")]

    async def _perform_assignment(self, leader_id, protocol, members):
        return {}

    async def _on_join_prepare(self, generation, member_id):
        self.calls.append(("prepare", generation))
        if self.blocks is not None:
            await self.blocks.wait()

    async def _on_join_complete(self, generation, member_id, protocol, assignment):
        self.calls.append(("complete", generation, assignment))

    async def _on_membership_lost(self, reason):
        self.calls.append(("lost", reason))


class Scene:
    """A member whose calls run, without its loop of requests."""

    def __init__(self, **options):
        self.member = Shares(**options)
        self.released = []
        self.member._driver.released = self.released.append

    async def close(self):
        await self.member.close(timeout_ms=0)


def running(test):
    """Decorator: a plain test of a scene in a loop of its own."""

    @in_loop
    async def run():
        scene = Scene()
        try:
            await test(scene)
        finally:
            await scene.close()

    return run


# ------------------------------------------------------------ the membership as it is


@in_loop
async def test_a_member_that_has_not_begun_is_in_no_generation_and_knows_no_coordinator():
    one = Shares()
    assert (one.generation, one.member_id, one.coordinator_id, one.fatal) == (-1, "", None, None)
    assert not one.joined
    assert one.need_rejoin()
    assert one.coordinator_unknown()
    assert not one.leader
    assert one.group_metadata() == ConsumerGroupMetadata("g", -1, "", None)
    assert repr(one) == f"<Shares g {one.state.value} generation -1>"
    await one.close(timeout_ms=0)


@in_loop
async def test_a_dynamic_member_goes_on_under_its_earlier_id_and_a_static_one_under_its_own():
    """The coordinator knows a static member by its instance: an id of another process would fence it."""
    dynamic, static = Shares(member_id="m-1"), Shares(member_id="m-1", group_instance_id="i")
    assert (dynamic.member_id, dynamic.group_instance_id) == ("m-1", None)
    assert (static.member_id, static.group_instance_id) == ("", "i")
    for one in (dynamic, static):
        await one.close(timeout_ms=0)


@in_loop
async def test_a_member_that_ended_without_having_begun_has_no_metrics_left():
    one = Shares(metric_group_prefix="shares")
    assert {name.group for name in one.metrics.metrics()} == {"shares-coordinator-metrics"}
    await one.close(timeout_ms=0)
    assert one.metrics.metrics() == {}


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"group_id": ""}, "group_id"),
        ({"heartbeat_interval_ms": 45_000}, "heartbeat_interval_ms"),
        ({"enable_auto_commit": True}, "enable_auto_commit"),
    ],
)
def test_options_that_mean_nothing_to_a_group_are_refused(options, option):
    with pytest.raises(ConfigError) as caught:
        Shares(**options)
    assert caught.value.option == option


# ------------------------------------------------------------ heartbeats


@in_loop
async def test_heartbeats_that_are_turned_on_again_begin_a_session_of_their_own():
    """The session before may have run out meanwhile: the first heartbeat would not even be sent."""
    one = Shares(session_timeout_ms=10_000, heartbeat_interval_ms=3_000)
    one.heartbeat.reset_session_timeout()
    one.heartbeat_task.disable()
    assert one.heartbeat.ttl() == float("inf")
    one.now_s += 11.0
    assert one.heartbeat.session_expired()
    one.heartbeat_task.reset()
    assert not one.heartbeat.session_expired()
    assert one.heartbeat.ttl() == 3.0
    await one.close(timeout_ms=0)


# ------------------------------------------------------------ calls of the subclass


@running
async def test_a_part_is_taken_in_the_generation_and_with_the_bytes_of_its_assignment(scene):
    scene.member._policy.assignment = b"share"
    scene.member._on_action(TakePartitions(4, PART, PART))
    scene.member._policy.assignment = b"a later one"
    await turns_until(lambda: scene.member.calls == [("complete", 4, b"share")])


@running
async def test_a_part_is_released_when_the_subclass_has_finished_with_it(scene):
    scene.member.blocks = asyncio.Event()
    scene.member._on_action(RevokePartitions(9, PART, scene.member.now_s + 60))
    await turns_until(lambda: scene.member.calls == [("prepare", -1)])
    await turns(5)
    assert scene.released == []
    scene.member.blocks.set()
    await turns_until(lambda: scene.released == [9])


@running
async def test_calls_are_made_one_after_the_other_in_the_order_of_what_happened(scene):
    scene.member._on_action(RevokePartitions(9, PART, scene.member.now_s + 60))
    scene.member._on_action(TakePartitions(5, PART, PART))
    scene.member._on_action(LosePartitions(PART, "the session ended"))
    await turns_until(lambda: len(scene.member.calls) == 3)
    assert [call[0] for call in scene.member.calls] == ["prepare", "complete", "lost"]
    assert scene.member.calls[2] == ("lost", "the session ended")


# ------------------------------------------------------------ requests


def answering(scene, answer):
    """Has the coordinator answer so; returns the requests that it gets."""
    requests = []

    async def ask(request, timeout_ms):
        requests.append((request, timeout_ms))
        if isinstance(answer, Exception):
            raise answer
        return answer

    scene.member._driver.channels.ask = ask
    return requests


@running
async def test_members_are_counted_by_the_coordinator(scene):
    members = [DescribedGroupMember(member_id=f"m-{n}") for n in range(3)]
    requests = answering(
        scene, DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", members=members)])
    )
    assert await scene.member.count_members() == 3
    [(request, timeout_ms)] = requests
    assert (request.groups, timeout_ms) == (["g"], 30_000)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (DescribeGroupsResponse(groups=[]), ProtocolError),
        (DescribeGroupsResponse(groups=[DescribedGroup(error_code=30)]), GroupAuthorizationFailedError),
        (NodeNotReadyError("not known"), NodeNotReadyError),
    ],
    ids=["no group", "forbidden", "no coordinator"],
)
def test_a_count_that_is_not_answered_is_an_error_and_no_number(answer, error):
    @running
    async def test(scene):
        answering(scene, answer)
        with pytest.raises(error):
            await scene.member.count_members()

    test()


@in_loop
async def test_a_wait_for_the_group_ends_with_its_time_and_says_what_it_waited_for():
    one = Shares()
    one._client.least_loaded_node = lambda: None
    with pytest.raises(KafkaTimeoutError, match="group g: the group could not be joined after 0 ms"):
        await one.ensure_active_group(timeout_ms=0)
    with pytest.raises(KafkaTimeoutError, match="group g: the coordinator is not known after 0 ms"):
        await one.ensure_coordinator_known(timeout_ms=0)
    await one.close(timeout_ms=0)


@in_loop
async def test_a_coordinator_that_serves_nobody_for_long_is_told_of_with_the_reason_and_again_each_minute(
    caplog,
):
    """Else a consumer whose coordinator can't be reached would poll in vain without a word."""
    one, told = Shares(), []
    one._member.start(100.0)

    def fail(at):
        one.now_s = at
        requests = one._member.poll(at).actions
        for request in requests:
            one._driver._deliver(request, NodeNotReadyError("b1:9092: connection refused"))
        told.append(len(caplog.messages))
        return len(requests)

    assert [fail(at) for at in (100.0, 109.0, 111.0, 120.0, 160.0, 172.0)] == [1] * 6
    assert told == [0, 0, 1, 1, 1, 2]
    assert caplog.messages[0] == (
        "group g: its coordinator doesn't serve this member, trying on: b1:9092: connection refused"
    )
    await one.close(timeout_ms=0)


@in_loop
async def test_a_leader_whose_assignment_is_none_at_all_leaves(monkeypatch):
    """Else all members wait for it until the rebalance timeout, and nobody learns why."""

    class Nothing(Shares):
        async def _perform_assignment(self, leader_id, protocol, members):
            return None

    one = Nothing()
    one._member.start(100.0)
    monkeypatch.setattr(one._member, "computes", lambda token: True)
    await one._driver._compute(1, "first-come", ())
    assert isinstance(one._driver.fatal, AttributeError)
    assert one._member.leaving
    await one.close(timeout_ms=0)
