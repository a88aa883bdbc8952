"""The coordinator's shells over real sockets, against brokers of `FakeKafka` that drop, hold and misdirect as they are told."""

from __future__ import annotations

import asyncio
import time

import pytest
from fakes.loop import in_loop
from fakes.members import PATIENT_S, Listener, Member, ask, commit, expel, group, member, refused
from fakes.scripted import answer, arrived
from msgspec.structs import replace
from pace import this_run
from waiting import at_pace_s, until, until_async

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
from kafka_actors.protocol import ApiKey, DescribeGroupsResponse, HeartbeatResponse, OffsetFetchResponse
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import (
    AnswerWithError,
    BrokerCall,
    ChangeResponse,
    DropConnection,
    Hold,
    HoldResponse,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = frozenset({A, B})
HASTY = {"request_timeout_ms": 1_000}
"""For members in tests of answers that do not come."""


def requests_to(kafka: FakeKafka, broker_id: int, api: str) -> int:
    """Number of requests of an API that one broker got."""
    return sum(call.node_id == broker_id for call in kafka.requests(api))


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset)


@in_loop
async def test_dropped_commit_replies_hold_up_neither_the_group_nor_the_offsets():
    async with group() as kafka, member(kafka, **HASTY) as one:
        await until_async(lambda: one.listener.has == BOTH)
        for fault in (HoldResponse(), Hold(), HoldResponse()):
            kafka.on("OffsetCommit", fault)
        first = asyncio.ensure_future(one.member.commit_offsets_sync({A: at(5)}))
        await arrived(kafka, "OffsetCommit")
        second = asyncio.ensure_future(one.member.commit_offsets_sync({B: at(6)}))
        async with member(kafka) as two:
            await until_async(lambda: one.member.joined and two.member.joined and len(two.listener.has) == 1)
        await until_async(lambda: one.listener.has == BOTH)
        assert (await first)[A] is None
        # B may have moved to the other member meanwhile: then it is refused, and never sent again.
        outcome = (await second)[B]
        assert outcome is None or isinstance(outcome, IllegalGenerationError)
        assert kafka.committed("g")[A] == 5
        offsets = (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH)
        sent = [call.api_key for call in kafka.requests() if call.api_key in offsets]
        assert sent[:2] == [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH]
        fetch = kafka.requests("OffsetFetch")[0]
        assert fetch.connection != kafka.requests("OffsetCommit")[0].connection
        assert one.seen(PartitionsLost) == []


@in_loop
async def test_slow_offset_fetches_delay_no_heartbeat_and_no_commit_and_leave_no_connection():
    async with group() as kafka, member(kafka, **HASTY) as one:
        await until_async(lambda: one.listener.has == BOTH)
        found = one.seen(CoordinatorChanged)
        connections = kafka.connections()
        slow = kafka.on("OffsetFetch", Hold(), times=None)
        asked = asyncio.ensure_future(one.member.fetch_committed_offsets([A]))
        await arrived(kafka, "OffsetFetch", 3, 30)  # two had no answer in their time
        assert await one.member.commit_offsets_sync({A: at(5)}) == {A: None}
        slow.release()
        assert await asked == {A: at(5)}
        assert len({call.connection for call in kafka.requests("Heartbeat")}) == 1
        assert one.seen(CoordinatorChanged) == found
        await until_async(lambda: kafka.connections() == connections)


@in_loop
async def test_a_peer_that_withholds_its_rejoin_delays_no_heartbeat():
    async with group() as kafka, member(kafka, request_timeout_ms=500) as one:
        await until_async(lambda: one.listener.has == BOTH)
        found = one.seen(CoordinatorChanged)
        # A foreign member joins and is silent ever after: the group waits for it in the rebalance that follows
        # because this member has to give up a partition.
        patient = {"session_timeout_ms": 600_000, "rebalance_timeout_ms": 600_000}
        join = replace(kafka.requests("JoinGroup")[-1].request, **patient)
        silent = replace(join, member_id=(await ask(kafka, replace(join, member_id=""))).member_id)
        await ask(kafka, silent)
        await until_async(
            lambda: kafka.group_state("g") == "PreparingRebalance" and one.member.state is MemberState.JOINING
        )
        joins = kafka.count("JoinGroup")
        wanted = kafka.count("Heartbeat") + 12  # those of two request timeouts
        await until_async(lambda: kafka.count("Heartbeat") >= wanted, 30, "heartbeats")
        assert one.member.state is MemberState.JOINING
        assert kafka.count("JoinGroup") <= joins + 1
        heartbeat, pending = (kafka.requests(api)[-1] for api in ("Heartbeat", "JoinGroup"))
        assert heartbeat.connection != pending.connection
        assert one.seen(CoordinatorChanged) == found
        assert one.listener.has
        await expel(kafka, silent.member_id)
        await until_async(lambda: one.member.joined)


@in_loop
async def test_coordinator_that_moves_is_followed_without_losing_anything():
    async with group(2) as kafka, member(kafka) as one:
        await until_async(lambda: one.listener.has == BOTH)
        kafka.set_coordinator("g", 2)
        await until_async(lambda: one.member.coordinator_id == 2)
        await until_async(lambda: requests_to(kafka, 2, "Heartbeat") > 2)
        assert await one.member.commit_offsets_sync({A: at(1)}) == {A: None}
        assert requests_to(kafka, 2, "OffsetCommit") == 1
        assert requests_to(kafka, 2, "JoinGroup") == 0
        assert one.seen(PartitionsLost) == []


@in_loop
async def test_frozen_coordinator_is_given_up_well_before_the_session_ends():
    session_s = max(30.0, at_pace_s(5))
    async with group(2) as kafka, member(kafka, session_timeout_ms=int(session_s * 1000)) as one:
        await until_async(lambda: one.listener.has == BOTH)
        kafka.on("Heartbeat", Hold(), times=None, broker_id=1)
        kafka.set_coordinator("g", 2)
        start = time.monotonic()
        await until_async(lambda: one.member.coordinator_id == 2, session_s)
        assert time.monotonic() - start < 0.8 * session_s
        assert one.seen(PartitionsLost) == []


@in_loop
async def test_oldest_brokers_are_spoken_to_in_their_versions():
    async with group(version="2.1") as kafka:
        async with member(kafka) as one:
            await until_async(lambda: one.listener.has == BOTH)
            assert await one.member.commit_offsets_sync({A: at(5)}) == {A: None}
            assert await one.member.fetch_committed_offsets([A, B]) == {A: OffsetAndMetadata(5), B: None}
        assert kafka.group_state("g") == "Empty"
        highest = {"JoinGroup": 3, "LeaveGroup": 2, "OffsetCommit": 6, "OffsetFetch": 5}
        assert {api: {call.version for call in kafka.requests(api)} for api in highest} == {
            api: {version} for api, version in highest.items()
        }


class SlowAssignor:
    """Takes its time, as a big group does: as much as some heartbeats."""

    name = "slow"
    protocol = "eager"

    def __init__(self, kafka):
        self.kafka = kafka

    def assign(self, partitions, members, *, racks=None):
        wanted = self.kafka.count("Heartbeat") + 4
        until(lambda: self.kafka.count("Heartbeat") >= wanted, 30, "heartbeats while partitions are assigned")
        return assignors.get("range").assign(partitions, members)


@in_loop
async def test_slow_assignor_delays_no_heartbeat():
    async with group() as kafka, member(kafka, partition_assignment_strategy=[SlowAssignor(kafka)]) as one:
        await until_async(lambda: one.listener.has == BOTH or one.fatal)
        assert one.fatal == []


@in_loop
async def test_listener_commits_while_it_revokes():
    outcomes = []
    async with group() as kafka, member(kafka, partition_assignment_strategy=["range"]) as one:
        await until_async(lambda: one.listener.has == BOTH)

        async def commit(partitions):
            outcomes.append(await one.member.commit_offsets_sync(dict.fromkeys(partitions, at(9))))

        one.listener.on_revoke = commit
        async with member(kafka, partition_assignment_strategy=["range"]) as two:
            await until_async(lambda: len(two.listener.has) == 1 and len(one.listener.has) == 1)
        assert outcomes[0] == {A: None, B: None}
        assert kafka.committed("g") == {A: 9, B: 9}


@in_loop
async def test_a_member_may_commit_what_goes_with_its_partitions_though_another_one_owns_it():
    """A broker looks at the member and its generation, and not at what is assigned."""

    def exchanged(owned):
        return frozenset(tp._replace(partition=1 - tp.partition) for tp in owned)

    async with group() as kafka, member(kafka, commits=exchanged) as one, member(kafka) as two:
        await until_async(
            lambda: all(len(each.listener.has) == 1 for each in (one, two)) and one.member.joined
        )
        (own,), (others,) = one.listener.has, two.listener.has
        outcome = await one.member.commit_offsets_sync({own: at(4), others: at(5)})
        assert isinstance(outcome[own], IllegalGenerationError)
        assert outcome[others] is None
        assert kafka.committed("g") == {others: 5}


@in_loop
async def test_listener_that_hangs_is_left_behind_and_the_group_goes_on():
    options = {"partition_assignment_strategy": ["range"], "revoke_timeout_ms": 2_000}
    async with group() as kafka, member(kafka, **options) as one:
        await until_async(lambda: one.listener.has == BOTH)
        one.listener.on_revoke = lambda partitions: asyncio.Event().wait()
        async with member(kafka, partition_assignment_strategy=["range"]) as two:
            await until_async(lambda: len(two.listener.has) == 1)
            one.listener.on_revoke = None
            await until_async(lambda: one.member.joined)
        assert one.fatal == []


@in_loop
async def test_what_a_revoke_cuts_off_is_taken_on_afterwards():
    """Partitions that stay with a member in a cooperative group are assigned once only."""
    known = asyncio.Event()

    class Slow(Listener):
        async def on_partitions_assigned(self, partitions):
            if partitions:
                await known.wait()
            await super().on_partitions_assigned(partitions)

    async with group() as kafka, member(kafka, listener=Slow()) as one:
        await until_async(lambda: one.member.joined)
        async with member(kafka) as two:
            await until_async(lambda: len(two.listener.has) == 1)
            await until_async(lambda: one.member.joined and len(one.member.assignment) == 1)
            assert one.listener.has == set()
            known.set()
            await until_async(lambda: one.listener.has == one.member.assignment)
            assert one.listener.has | two.listener.has == BOTH
    assert one.seen(PartitionsLost) == []


@in_loop
async def test_what_is_owned_and_not_read_is_told_with_its_reason():
    reads: set[TopicPartition] = {B}

    class Reads(Listener):
        async def on_partitions_assigned(self, partitions):
            await one.member.fetch_committed_offsets(partitions)
            reads.update(partitions)

    async with group() as kafka:
        loading, began = kafka.on("OffsetFetch", AnswerWithError(14), times=None), time.monotonic()
        async with member(kafka, listener=Reads(), reads=lambda: frozenset(reads)) as one:
            await arrived(kafka, "OffsetFetch", 2)  # the first has its answer, which is the reason
            one.member._unread.watch = UnreadWatch(0.5)
            await until_async(lambda: one.seen(PartitionNotRead))
            (told,) = one.seen(PartitionNotRead)
            assert (told.topic, told.partition) == A
            assert 0.5 <= told.seconds < time.monotonic() - began
            assert "COORDINATOR_LOAD_IN_PROGRESS" in told.reason
            loading.end()
            await until_async(lambda: reads == BOTH)
    assert len(one.seen(PartitionNotRead)) == 1


@in_loop
async def test_who_closes_as_soon_as_the_listener_has_raised_leaves_the_group_all_the_same():
    """Else the others wait for the end of its session before they get its partitions."""

    class Raising(Listener):
        async def on_partitions_assigned(self, partitions):
            raise ValueError("mine")

    async with group() as kafka, member(kafka, listener=Raising()) as one:
        await until_async(lambda: one.fatal)
        await one.member.close(timeout_ms=PATIENT_S * 1000)
        assert kafka.count("LeaveGroup") == 1


@in_loop
async def test_a_leader_whose_assignor_raises_leaves_and_the_others_do_not_wait_for_the_end_of_its_session():
    class Raising:
        name, protocol = "mine", "eager"

        def assign(self, partitions, members, *, racks=None):
            raise ValueError("mine")

    async with group() as kafka, member(kafka, partition_assignment_strategy=[Raising]) as one:
        await until_async(lambda: one.fatal)
        assert [str(e) for e in one.fatal] == ["mine"]
        await until_async(lambda: kafka.group_state("g") == "Empty")
        assert kafka.count("LeaveGroup") == 1


@in_loop
async def test_listener_that_raises_ends_the_membership_and_the_group_learns_it():
    async with group() as kafka, member(kafka, partition_assignment_strategy=["range"]) as one:
        await until_async(lambda: one.listener.has == BOTH)

        async def fails(partitions):
            raise ValueError("mine")

        one.listener.on_revoke = fails
        one.member.request_rejoin("test")
        await until_async(lambda: one.fatal)
        assert [str(e) for e in one.fatal] == ["mine"]
        await until_async(lambda: kafka.group_state("g") == "Empty")
        with pytest.raises(ValueError, match="mine"):
            await one.member.ensure_active_group()


@in_loop
async def test_closing_ends_in_time_with_a_coordinator_that_does_not_answer():
    async with group() as kafka:
        one = Member(kafka)
        await one.start()
        await until_async(lambda: one.listener.has == BOTH)
        for api in ("LeaveGroup", "OffsetCommit", "OffsetFetch", "Heartbeat"):
            kafka.on(api, Hold(), times=None)
        waiting = asyncio.ensure_future(one.member.commit_offsets_sync({A: at(1)}))
        await asyncio.sleep(0)
        start = time.monotonic()
        await one.member.close(timeout_ms=1_500)
        await one.member.close(timeout_ms=1_500)  # again: nothing happens
        assert (
            this_run().quiet_s(start, time.monotonic()) < PATIENT_S / 2
        )  # one request would wait for twice that
        with pytest.raises((KafkaTimeoutError, UsageError)):
            await waiting
        await one.client.close()
        assert one.listener.has == set()
        with pytest.raises(UsageError):
            await one.member.commit_offsets_sync({A: at(1)})


@in_loop
async def test_consumed_offsets_are_committed_at_intervals_at_a_revoke_and_at_the_end():
    position = {A: at(1), B: at(1)}
    async with group() as kafka:
        async with member(kafka, consumed=lambda: position, auto_commit_interval_ms=100) as one:
            await until_async(lambda: one.listener.has == BOTH)
            await until_async(lambda: kafka.committed("g").get(A) == 1)
            position[A] = at(2)
            await until_async(lambda: kafka.committed("g").get(A) == 2)
            position[A] = position[B] = at(3)
        assert kafka.committed("g") == {A: 3, B: 3}
        async with member(kafka, consumed=lambda: {A: at(7)}, enable_auto_commit=False) as two:
            await until_async(lambda: two.listener.has == BOTH)
        assert kafka.committed("g")[A] == 3


@in_loop
async def test_partitions_chosen_by_hand_are_committed_without_joining():
    async with group() as kafka:
        one = Member(kafka)
        one.subscription.unsubscribe()
        one.subscription.assign_from_user([A])
        await one.start()
        assert await one.member.commit_offsets_sync({A: at(4)}) == {A: None}
        request = kafka.requests("OffsetCommit")[0].request
        assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
        assert kafka.count("JoinGroup") == 0
        await one.member.close()
        await one.client.close()


@in_loop
async def test_unstable_offsets_are_asked_for_again_until_they_are_stable():
    async with group() as kafka:
        await commit(kafka, A, 8)
        for fault in (unstable, DropConnection(), AnswerWithError(14), unstable):
            kafka.on("OffsetFetch", fault)
        async with member(kafka) as one:
            assert await one.member.fetch_committed_offsets([A, B]) == {A: at(8), B: None}
            assert kafka.count("OffsetFetch") == 5
            refusing = kafka.on("OffsetFetch", AnswerWithError(30), times=None)
            with pytest.raises(GroupAuthorizationFailedError):
                await one.member.fetch_committed_offsets([A])
            refusing.end()
            kafka.on("OffsetFetch", Hold(), times=None)
            with pytest.raises(KafkaTimeoutError, match="not known after 300 ms"):
                await one.member.fetch_committed_offsets([A], timeout_ms=300)


def _spoiled(call: BrokerCall, response: OffsetFetchResponse) -> OffsetFetchResponse:
    (found,) = response.groups
    topics = [replace(t, partitions=[replace(p, error_code=88) for p in t.partitions]) for t in found.topics]
    return replace(response, groups=[replace(found, topics=topics)])


unstable = ChangeResponse(_spoiled)


@in_loop
async def test_errors_of_single_partitions_are_in_the_outcome_and_the_callback_gets_it():

    async with group() as kafka, member(kafka) as one:
        await until_async(lambda: one.listener.has == BOTH)
        kafka.on("OffsetCommit", refused(1, 29), times=None)
        calls = []
        future = one.member.commit_offsets_async({A: at(1), B: at(1)}, lambda *args: calls.append(args))
        results = await future
        assert results[A] is None
        assert isinstance(results[B], TopicAuthorizationFailedError)
        assert calls == [({A: at(1), B: at(1)}, results)]


@in_loop
async def test_the_groups_members_are_counted_by_its_coordinator_and_a_refusal_is_named():
    async with group() as kafka, member(kafka) as one:
        await until_async(lambda: one.listener.has == BOTH)
        assert await one.member.count_members() == 1
        async with member(kafka) as two:
            await until_async(lambda: one.member.joined and two.member.joined and len(two.listener.has) == 1)
            assert await one.member.count_members() == 2
        kafka.on("DescribeGroups", AnswerWithError(30))
        with pytest.raises(GroupAuthorizationFailedError, match="DescribeGroups"):
            await one.member.count_members()
        kafka.on("DescribeGroups", answer(DescribeGroupsResponse()))
        with pytest.raises(ProtocolError, match="was answered with 0"):
            await one.member.count_members()


@in_loop
async def test_authorization_that_is_missing_ends_it_with_one_clear_error():
    async with group() as kafka:
        kafka.on("JoinGroup", AnswerWithError(30), times=None)
        async with member(kafka) as one:
            with pytest.raises(GroupAuthorizationFailedError, match="JoinGroup"):
                await one.member.ensure_active_group(timeout_ms=100_000)
            await until_async(lambda: one.fatal)
            assert len(one.fatal) == 1
            assert one.member.state is MemberState.FATAL


@in_loop
async def test_pattern_that_matches_nothing_says_so_once_and_waits():
    async with group() as kafka, member(kafka, pattern="u.*", metadata_max_age_ms=100) as one:
        await until_async(lambda: one.member.joined and one.seen(PatternMatchesNothing))
        looks = kafka.count("Metadata") + 4
        await until_async(lambda: kafka.count("Metadata") >= looks)
        assert one.seen(PatternMatchesNothing) == [PatternMatchesNothing("u.*")]
        kafka.create_topic("u1")
        await until_async(lambda: one.listener.has == {TopicPartition("u1", 0)})


@pytest.mark.parametrize("policy", ["fail", "reset"])
def test_nothing_is_committed_across_a_topic_that_was_made_anew(policy):
    @in_loop
    async def test() -> None:
        async with group() as kafka, member(kafka, metadata_max_age_ms=100, on_data_loss=policy) as one:
            await until_async(lambda: one.listener.has == BOTH)
            kafka.on("Heartbeat", answer(HeartbeatResponse()), times=None)
            before = one.client.snapshot.topic_id("t")
            kafka.recreate_topic("t")
            if policy == "reset":
                await until_async(lambda: one.listener.calls == ["assigned", "lost", "assigned"])
                assert await one.member.commit_offsets_sync({A: at(1)}) == {A: None}
            else:
                await until_async(lambda: one.client.snapshot.topic_id("t") != before)
                outcome = await one.member.commit_offsets_sync({A: at(500)})
                assert isinstance(outcome[A], IllegalGenerationError)
                assert kafka.committed("g") == {}
                anew = OffsetAndMetadata(
                    1, pack("", one.client.snapshot.topic_id("t"))
                )  # the user has sought
                assert await one.member.commit_offsets_sync({A: anew}) == {A: None}
                assert await one.member.commit_offsets_sync({A: at(2)}) == {A: None}

    test()


@in_loop
async def test_progress_is_watched_where_it_is_reported():
    now = time.monotonic()
    async with group() as kafka:
        one = Member(kafka)
        one.member = ConsumerCoordinator(
            one.client,
            one.subscription,
            config=one.config,
            listener=one.listener,
            rebalance_timeout_ms=int(PATIENT_S * 1000),
            max_poll_interval_ms=400,
            events=one.events.append,
            clock=lambda: now,
        )
        await one.start()
        await until_async(lambda: one.listener.has == BOTH)
        for _ in range(8):
            one.member.user_progress()
            beats = kafka.count("Heartbeat")
            now += 0.101
            await until_async(lambda beats=beats: kafka.count("Heartbeat") > beats, what="a heartbeat")
        assert one.listener.calls == ["assigned"]
        now += 0.4
        await until_async(lambda: one.listener.has == set())
        assert one.listener.calls == ["assigned", "lost"]
        await until_async(lambda: kafka.group_state("g") == "Empty")
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
