"""The coordinator's shells over real sockets, against brokers that drop, hold and misdirect as they are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from fakes.broker import DROP, SILENCE, Call
from fakes.group import GroupModel
from fakes.loop import in_loop
from fakes.members import FakeGroup, Listener, Member, member
from msgspec.structs import replace
from pace import this_run
from waiting import until_async

import assignors
from kafka_actors.cluster import SubscriptionState
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.errors import (
    ConfigError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    KafkaTimeoutError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UsageError,
)
from kafka_actors.events import CoordinatorChanged, PartitionNotRead, PartitionsLost, PatternMatchesNothing
from kafka_actors.group import ConsumerCoordinator, MemberState
from kafka_actors.group.commit_metadata import pack
from kafka_actors.group.machines.unread_partitions import UnreadWatch
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import (
    ApiKey,
    DescribeGroupsResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
)
from kafka_actors.protocol.messages.describe_groups import DescribedGroup
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = frozenset({A, B})


def committed(group: FakeGroup) -> dict[TopicPartition, int]:
    return {tp: found.offset for tp, found in group.model.offsets.items()}


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset)


@in_loop
async def test_dropped_commit_replies_hold_up_neither_the_group_nor_the_offsets():
    group = FakeGroup()
    commit = group.handler(GroupModel.commit)

    async def carried_out_unanswered(request, call):
        await commit(request, call)
        return SILENCE

    async with group.cluster, member(group) as one:
        await until_async(lambda: one.listener.has == BOTH)
        group.broker.once(ApiKey.OFFSET_COMMIT, carried_out_unanswered, SILENCE, carried_out_unanswered)
        first = asyncio.ensure_future(one.member.commit_offsets_sync({A: at(5)}))
        await group.broker.wait_for(ApiKey.OFFSET_COMMIT)
        second = asyncio.ensure_future(one.member.commit_offsets_sync({B: at(6)}))
        async with member(group) as two:
            await until_async(lambda: one.member.joined and two.member.joined and len(two.listener.has) == 1)
        await until_async(lambda: one.listener.has == BOTH)
        assert (await first)[A] is None
        # B may have moved to the other member meanwhile: then it is refused, and never sent again.
        outcome = (await second)[B]
        assert outcome is None or isinstance(outcome, IllegalGenerationError)
        assert group.model.offsets[A].offset == 5
        sent = [
            c.api_key for c in group.broker.log if c.api_key in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH)
        ]
        assert sent[:2] == [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH]
        fetch = group.broker.calls(ApiKey.OFFSET_FETCH)[0]
        assert fetch.connection != group.broker.calls(ApiKey.OFFSET_COMMIT)[0].connection
        assert one.seen(PartitionsLost) == []


@in_loop
async def test_slow_offset_fetches_delay_no_heartbeat_and_no_commit_and_leave_no_connection():
    group = FakeGroup()
    fetch, released = group.handler(GroupModel.offset_fetch), asyncio.Event()

    async def slow(request, call):
        await released.wait()
        return await fetch(request, call)

    async with group.cluster, member(group) as one:
        await until_async(lambda: one.listener.has == BOTH)
        connections = group.broker.connections
        group.broker.on(ApiKey.OFFSET_FETCH, slow)
        asked = asyncio.ensure_future(one.member.fetch_committed_offsets([A]))
        await group.broker.wait_for(ApiKey.OFFSET_FETCH, 3)  # two had no answer in their time
        assert await one.member.commit_offsets_sync({A: at(5)}) == {A: None}
        released.set()
        assert await asked == {A: at(5)}
        assert len({call.connection for call in group.broker.calls(ApiKey.HEARTBEAT)}) == 1
        assert len(one.seen(CoordinatorChanged)) == 1
        await until_async(lambda: group.broker.connections == connections)


@in_loop
async def test_a_peer_that_withholds_its_rejoin_delays_no_heartbeat():
    group = FakeGroup()
    async with group.cluster, member(group, request_timeout_ms=500) as one:
        await until_async(lambda: one.listener.has == BOTH)
        # A foreign member joins and is silent ever after: the group waits for it in the rebalance that follows
        # because this member has to give up a partition.
        join = replace(group.broker.requests(ApiKey.JOIN_GROUP)[-1], session_timeout_ms=60_000)
        answers: list[JoinGroupResponse] = []
        group.model.join(replace(join, member_id=""), answers.append, time.monotonic())
        silent = replace(join, member_id=answers[0].member_id)
        group.model.join(silent, answers.append, time.monotonic())
        await until_async(lambda: len(answers) == 2)
        await until_async(
            lambda: group.model.state == "Preparing" and one.member.state is MemberState.JOINING
        )
        before, start = group.broker.counts[ApiKey.HEARTBEAT], time.monotonic()
        joins = group.broker.counts[ApiKey.JOIN_GROUP]
        await asyncio.sleep(1.5)  # three request timeouts
        assert one.member.state is MemberState.JOINING
        beats = group.broker.counts[ApiKey.HEARTBEAT] - before
        assert beats >= 0.5 * (time.monotonic() - start) / 0.1
        assert group.broker.counts[ApiKey.JOIN_GROUP] <= joins + 1
        heartbeat, pending = (group.broker.calls(k)[-1] for k in (ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP))
        assert heartbeat.connection != pending.connection
        assert len(one.seen(CoordinatorChanged)) == 1
        assert one.listener.has
        group.model.leave(_Leaving(silent.member_id), lambda _: None, time.monotonic())
        await until_async(lambda: one.member.joined)


class _Leaving:
    def __init__(self, member_id: str) -> None:
        self.members = [type("Identity", (), {"member_id": member_id})]


@in_loop
async def test_coordinator_that_moves_is_followed_without_losing_anything():
    group = FakeGroup(brokers=2)
    old, new = group.cluster.brokers
    async with group.cluster, member(group) as one:
        await until_async(lambda: one.listener.has == BOTH)
        group.cluster.coordinator = new.node_id
        old.on(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=16))
        await until_async(lambda: one.member.coordinator_id == new.node_id)
        await until_async(lambda: new.counts[ApiKey.HEARTBEAT] > 2)
        assert await one.member.commit_offsets_sync({A: at(1)}) == {A: None}
        assert new.counts[ApiKey.OFFSET_COMMIT] == 1
        assert new.counts[ApiKey.JOIN_GROUP] == 0
        assert one.seen(PartitionsLost) == []


@in_loop
async def test_frozen_coordinator_is_given_up_well_before_the_session_ends():
    group = FakeGroup(brokers=2)
    old, new = group.cluster.brokers
    async with group.cluster, member(group, session_timeout_ms=5_000, request_timeout_ms=30_000) as one:
        await until_async(lambda: one.listener.has == BOTH)
        group.cluster.coordinator = new.node_id
        old.on(ApiKey.HEARTBEAT, SILENCE)
        start = time.monotonic()
        await until_async(lambda: one.member.coordinator_id == new.node_id)
        assert this_run().quiet_s(start, time.monotonic()) < 4.0
        assert one.seen(PartitionsLost) == []


VERSIONS_OF_2_1 = {
    ApiKey.FIND_COORDINATOR: (0, 2),
    ApiKey.JOIN_GROUP: (0, 3),
    ApiKey.SYNC_GROUP: (0, 2),
    ApiKey.HEARTBEAT: (0, 2),
    ApiKey.LEAVE_GROUP: (0, 2),
    ApiKey.OFFSET_COMMIT: (0, 6),
    ApiKey.OFFSET_FETCH: (0, 5),
    ApiKey.METADATA: (0, 7),
}


@in_loop
async def test_oldest_brokers_are_spoken_to_in_their_versions():
    group = FakeGroup(versions=VERSIONS_OF_2_1)

    async def old_join(request, call):
        if not request.member_id:  # before KIP-394 a member got its id together with its place
            answers: list[JoinGroupResponse] = []
            group.model.join(request, answers.append, time.monotonic())
            request = replace(request, member_id=answers[0].member_id)
        return await group.handler(GroupModel.join)(request, call)

    async def old_leave(request, call):
        group.model.leave(_Leaving(request.member_id), lambda _: None, time.monotonic())
        return LeaveGroupResponse()

    async def old_fetch(request, call):
        topics = [
            OffsetFetchResponseTopic(
                name=t.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=p,
                        committed_offset=group.model.offsets.get(TopicPartition(t.name, p), at(-1)).offset,
                    )
                    for p in t.partition_indexes
                ],
            )
            for t in request.topics
        ]
        return OffsetFetchResponse(topics=topics)

    group.broker.on(ApiKey.JOIN_GROUP, old_join)
    group.broker.on(ApiKey.LEAVE_GROUP, old_leave)
    group.broker.on(ApiKey.OFFSET_FETCH, old_fetch)
    async with group.cluster:
        async with member(group) as one:
            await until_async(lambda: one.listener.has == BOTH)
            assert await one.member.commit_offsets_sync({A: at(5)}) == {A: None}
            assert await one.member.fetch_committed_offsets([A, B]) == {A: OffsetAndMetadata(5), B: None}
        assert group.model.members == {}


class SlowAssignor:
    """Takes its time, as a big group does."""

    name = "slow"
    protocol = "eager"

    def assign(self, partitions, members, *, racks=None):
        time.sleep(1.0)
        return assignors.get("range").assign(partitions, members)


@in_loop
async def test_slow_assignor_delays_no_heartbeat():
    group = FakeGroup()
    async with group.cluster, member(group, partition_assignment_strategy=[SlowAssignor()]) as one:
        await until_async(lambda: one.member.state is MemberState.SYNCING)
        before = group.broker.counts[ApiKey.HEARTBEAT]
        await until_async(lambda: one.listener.has == BOTH)
        assert group.broker.counts[ApiKey.HEARTBEAT] - before >= 4


@in_loop
async def test_listener_commits_while_it_revokes():
    group = FakeGroup()
    outcomes = []
    async with group.cluster, member(group, partition_assignment_strategy=["range"]) as one:
        await until_async(lambda: one.listener.has == BOTH)

        async def commit(partitions):
            outcomes.append(await one.member.commit_offsets_sync(dict.fromkeys(partitions, at(9))))

        one.listener.on_revoke = commit
        async with member(group, partition_assignment_strategy=["range"]) as two:
            await until_async(lambda: len(two.listener.has) == 1 and len(one.listener.has) == 1)
        assert outcomes[0] == {A: None, B: None}
        assert {tp: o.offset for tp, o in group.model.offsets.items()} == {A: 9, B: 9}


@in_loop
async def test_listener_that_hangs_is_left_behind_and_the_group_goes_on():
    group = FakeGroup()
    async with group.cluster, member(group, partition_assignment_strategy=["range"]) as one:
        await until_async(lambda: one.listener.has == BOTH)
        one.listener.on_revoke = lambda partitions: asyncio.Event().wait()
        async with member(group, partition_assignment_strategy=["range"]) as two:
            await until_async(lambda: len(two.listener.has) == 1)
            one.listener.on_revoke = None
            await until_async(lambda: one.member.joined)
        assert one.fatal == []


@in_loop
async def test_what_a_revoke_cuts_off_is_taken_on_afterwards():
    """Partitions that stay with a member in a cooperative group are assigned once only."""
    group = FakeGroup()
    known = asyncio.Event()

    class Slow(Listener):
        async def on_partitions_assigned(self, partitions):
            if partitions:
                await known.wait()
            await super().on_partitions_assigned(partitions)

    async with group.cluster, member(group, listener=Slow()) as one:
        await until_async(lambda: one.member.joined)
        async with member(group) as two:
            await until_async(lambda: len(two.listener.has) == 1)
            await until_async(lambda: one.member.joined and len(one.member.assignment) == 1)
            assert one.listener.has == set()
            known.set()
            await until_async(lambda: one.listener.has == one.member.assignment)
            assert one.listener.has | two.listener.has == BOTH
    assert one.seen(PartitionsLost) == []


@in_loop
async def test_what_is_owned_and_not_read_is_told_with_its_reason():
    group = FakeGroup()
    fetch = group.handler(GroupModel.offset_fetch)
    reads: set[TopicPartition] = {B}

    class Reads(Listener):
        async def on_partitions_assigned(self, partitions):
            await one.member.fetch_committed_offsets(partitions)
            reads.update(partitions)

    async def loading(request, call):
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=14)])

    group.broker.on(ApiKey.OFFSET_FETCH, loading)
    async with group.cluster, member(group, listener=Reads(), reads=lambda: frozenset(reads)) as one:
        one.member._unread.watch = UnreadWatch(0.5)
        await until_async(lambda: one.seen(PartitionNotRead))
        (told,) = one.seen(PartitionNotRead)
        assert (told.topic, told.partition) == A
        assert 0.5 <= told.seconds < 5
        assert "COORDINATOR_LOAD_IN_PROGRESS" in told.reason
        group.broker.on(ApiKey.OFFSET_FETCH, fetch)
        await until_async(lambda: reads == BOTH)
    assert len(one.seen(PartitionNotRead)) == 1


@in_loop
async def test_listener_that_raises_ends_the_membership_and_the_group_learns_it():
    group = FakeGroup()
    async with group.cluster, member(group, partition_assignment_strategy=["range"]) as one:
        await until_async(lambda: one.listener.has == BOTH)

        async def fails(partitions):
            raise ValueError("mine")

        one.listener.on_revoke = fails
        one.member.request_rejoin("test")
        await until_async(lambda: one.fatal)
        assert [str(e) for e in one.fatal] == ["mine"]
        await until_async(lambda: group.model.members == {})
        with pytest.raises(ValueError, match="mine"):
            await one.member.ensure_active_group()


@in_loop
async def test_closing_ends_in_time_with_a_coordinator_that_does_not_answer():
    group = FakeGroup()
    async with group.cluster:
        one = Member(group)
        await one.start()
        await until_async(lambda: one.listener.has == BOTH)
        for key in (ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.HEARTBEAT):
            group.broker.on(key, SILENCE)
        waiting = asyncio.ensure_future(one.member.commit_offsets_sync({A: at(1)}))
        await asyncio.sleep(0)
        start = time.monotonic()
        await one.member.close(timeout_ms=1_500)
        await one.member.close(timeout_ms=1_500)  # again: nothing happens
        assert this_run().quiet_s(start, time.monotonic()) < 4.0
        with pytest.raises((KafkaTimeoutError, UsageError)):
            await waiting
        await one.client.close()
        assert one.listener.has == set()
        with pytest.raises(UsageError):
            await one.member.commit_offsets_sync({A: at(1)})


@in_loop
async def test_consumed_offsets_are_committed_at_intervals_at_a_revoke_and_at_the_end():
    group = FakeGroup()
    position = {A: at(1), B: at(1)}
    async with group.cluster:
        async with member(group, consumed=lambda: position, auto_commit_interval_ms=100) as one:
            await until_async(lambda: one.listener.has == BOTH)
            await until_async(lambda: committed(group).get(A) == 1)
            position[A] = at(2)
            await until_async(lambda: committed(group).get(A) == 2)
            position[A] = position[B] = at(3)
        assert committed(group) == {A: 3, B: 3}
        async with member(group, consumed=lambda: {A: at(7)}, enable_auto_commit=False) as two:
            await until_async(lambda: two.listener.has == BOTH)
        assert committed(group)[A] == 3


@in_loop
async def test_partitions_chosen_by_hand_are_committed_without_joining():
    group = FakeGroup()
    group.broker.on(
        ApiKey.OFFSET_COMMIT,
        lambda r, c: OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic(name="t", partitions=[OffsetCommitResponsePartition()])]
        ),
    )
    async with group.cluster:
        one = Member(group)
        one.subscription.unsubscribe()
        one.subscription.assign_from_user([A])
        await one.start()
        assert await one.member.commit_offsets_sync({A: at(4)}) == {A: None}
        request = group.broker.requests(ApiKey.OFFSET_COMMIT)[0]
        assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
        assert group.broker.counts[ApiKey.JOIN_GROUP] == 0
        await one.member.close()
        await one.client.close()


@in_loop
async def test_unstable_offsets_are_asked_for_again_until_they_are_stable():
    group = FakeGroup()
    unstable = group.handler(_unstable)
    group.broker.once(ApiKey.OFFSET_FETCH, unstable, DROP, _group_error(14), unstable)
    async with group.cluster, member(group) as one:
        group.model.offsets[A] = at(8)
        assert await one.member.fetch_committed_offsets([A, B]) == {A: at(8), B: None}
        assert group.broker.counts[ApiKey.OFFSET_FETCH] == 5
        group.broker.on(ApiKey.OFFSET_FETCH, _group_error(30))
        with pytest.raises(GroupAuthorizationFailedError):
            await one.member.fetch_committed_offsets([A])
        group.broker.on(ApiKey.OFFSET_FETCH, SILENCE)
        with pytest.raises(KafkaTimeoutError, match="not known after 300 ms"):
            await one.member.fetch_committed_offsets([A], timeout_ms=300)


def _unstable(model: GroupModel, request: Any, reply: Callable[[Any], None], now: float) -> None:
    def spoil(response: OffsetFetchResponse) -> None:
        (group,) = response.groups
        topics = [
            replace(t, partitions=[replace(p, error_code=88) for p in t.partitions]) for t in group.topics
        ]
        reply(replace(response, groups=[replace(group, topics=topics)]))

    GroupModel.offset_fetch(model, request, spoil, now)


def _group_error(code: int) -> Callable[[Any, Call], OffsetFetchResponse]:
    return lambda r, c: OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=code)])


@in_loop
async def test_errors_of_single_partitions_are_in_the_outcome_and_the_callback_gets_it():
    group = FakeGroup()

    def refuse_b(request, call):
        partitions = [
            OffsetCommitResponsePartition(partition_index=p, error_code=29 if p else 0) for p in (0, 1)
        ]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])

    async with group.cluster, member(group) as one:
        await until_async(lambda: one.listener.has == BOTH)
        group.broker.on(ApiKey.OFFSET_COMMIT, refuse_b)
        calls = []
        future = one.member.commit_offsets_async({A: at(1), B: at(1)}, lambda *args: calls.append(args))
        results = await future
        assert results[A] is None
        assert isinstance(results[B], TopicAuthorizationFailedError)
        assert calls == [({A: at(1), B: at(1)}, results)]


@in_loop
async def test_the_groups_members_are_counted_by_its_coordinator_and_a_refusal_is_named():
    group = FakeGroup()
    async with group.cluster, member(group) as one:
        await until_async(lambda: one.listener.has == BOTH)
        assert await one.member.count_members() == 1
        async with member(group) as two:
            await until_async(lambda: one.member.joined and two.member.joined and len(two.listener.has) == 1)
            assert await one.member.count_members() == 2
        refused = DescribeGroupsResponse(groups=[DescribedGroup(error_code=30, group_id="g")])
        group.broker.on(ApiKey.DESCRIBE_GROUPS, refused)
        with pytest.raises(GroupAuthorizationFailedError, match="DescribeGroups"):
            await one.member.count_members()
        group.broker.on(ApiKey.DESCRIBE_GROUPS, DescribeGroupsResponse())
        with pytest.raises(ProtocolError, match="was answered with 0"):
            await one.member.count_members()


@in_loop
async def test_authorization_that_is_missing_ends_it_with_one_clear_error():
    group = FakeGroup()
    group.broker.on(ApiKey.JOIN_GROUP, JoinGroupResponse(error_code=30))
    async with group.cluster, member(group) as one:
        with pytest.raises(GroupAuthorizationFailedError, match="JoinGroup"):
            await one.member.ensure_active_group(timeout_ms=100_000)
        await until_async(lambda: one.fatal)
        assert len(one.fatal) == 1
        assert one.member.state is MemberState.FATAL


@in_loop
async def test_pattern_that_matches_nothing_says_so_once_and_waits():
    group = FakeGroup()
    async with group.cluster, member(group, pattern="u.*", metadata_max_age_ms=100) as one:
        await until_async(lambda: one.member.joined)
        await asyncio.sleep(0.3)
        assert one.seen(PatternMatchesNothing) == [PatternMatchesNothing("u.*")]
        group.cluster.create_topic("u1", 1)
        await until_async(lambda: one.listener.has == {TopicPartition("u1", 0)})


@pytest.mark.parametrize("policy", ["fail", "reset"])
def test_nothing_is_committed_across_a_topic_that_was_made_anew(policy):
    @in_loop
    async def test() -> None:
        group = FakeGroup()
        async with group.cluster, member(group, metadata_max_age_ms=100, on_data_loss=policy) as one:
            await until_async(lambda: one.listener.has == BOTH)
            await asyncio.sleep(0.2)
            group.broker.on(ApiKey.HEARTBEAT, HeartbeatResponse())
            group.cluster.delete_topic("t")
            group.cluster.create_topic("t", 2)
            if policy == "reset":
                await until_async(lambda: one.listener.calls == ["assigned", "lost", "assigned"])
                assert await one.member.commit_offsets_sync({A: at(1)}) == {A: None}
            else:
                await until_async(
                    lambda: one.client.snapshot.topic_id("t") == group.cluster.topic_ids["t"].bytes
                )
                outcome = await one.member.commit_offsets_sync({A: at(500)})
                assert isinstance(outcome[A], IllegalGenerationError)
                assert group.model.offsets == {}
                anew = OffsetAndMetadata(
                    1, pack("", group.cluster.topic_ids["t"].bytes)
                )  # the user has sought
                assert await one.member.commit_offsets_sync({A: anew}) == {A: None}
                assert await one.member.commit_offsets_sync({A: at(2)}) == {A: None}

    test()


@in_loop
async def test_progress_is_watched_where_it_is_reported():
    group = FakeGroup()
    async with group.cluster:
        one = Member(group)
        one.member = ConsumerCoordinator(
            one.client,
            one.subscription,
            config=one.config,
            listener=one.listener,
            rebalance_timeout_ms=10_000,
            max_poll_interval_ms=400,
            events=one.events.append,
        )
        await one.start()
        await until_async(lambda: one.listener.has == BOTH)
        for _ in range(8):
            one.member.user_progress()
            await asyncio.sleep(0.1)
        assert one.listener.calls == ["assigned"]
        await until_async(lambda: one.listener.has == set())
        assert one.listener.calls == ["assigned", "lost"]
        await until_async(lambda: group.model.members == {})
        one.member.user_progress()
        await until_async(lambda: one.listener.has == BOTH)
        await one.member.close()
        await one.client.close()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"group_id": None}, "group_id"),
        ({"group_id": "g", "partition_assignment_strategy": ["nonsense"]}, "partition_assignment_strategy"),
        ({"group_id": "g", "partition_assignment_strategy": [7]}, "partition_assignment_strategy"),
    ],
)
def test_options_that_can_not_be_are_refused_by_name(options, names):
    config = build(ConsumerConfig, options)
    with pytest.raises(ConfigError, match=names):
        ConsumerCoordinator(KafkaClient(config), SubscriptionState(), config=config)


def test_strategies_that_mix_protocols_are_warned_of(caplog):
    config = build(
        ConsumerConfig, {"group_id": "g", "partition_assignment_strategy": "cooperative-sticky,range"}
    )
    ConsumerCoordinator(KafkaClient(config), SubscriptionState(), config=config)
    assert "holds an eager strategy" in caplog.text
