"""The worker's side of fetching, step by step, without IO: what is asked of whom, what is taken, what happens then."""

import traceback

import pytest
from fakes.planned import planned

from kafka_actors.base.timeouts import MAX_THROTTLE_S
from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.errors import (
    CorruptRecordBatchError,
    DisconnectedError,
    FetchOffsetOutOfRangeError,
    LogTruncationError,
    NodeNotReadyError,
    NoOffsetForPartitionError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    TopicRecreatedError,
    UsageError,
)
from kafka_actors.events import BadBatchSkipped, NoCommittedOffset, OffsetReset
from kafka_actors.fetch.machines.fetch_machine import FetchMachine
from kafka_actors.fetch.machines.partition_state import (
    TRANSITIONS,
    CommitPosition,
    FetchState,
    LookupPurpose,
    PartitionStart,
    Trigger,
)
from kafka_actors.fetch.machines.resets import LookupKind
from kafka_actors.fetch.messages import FetchedPartition, FetchReply
from kafka_actors.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
E1, E2 = (1, 1), (1, 2)
MIB = 1024 * 1024


def snapshot(*leaders, epochs=None, topic_id=b"i" * 16, brokers=(1, 2, 3)):
    epochs = epochs or [5] * len(leaders)
    partitions = {n: PartitionMetadata(n, leader, epochs[n]) for n, leader in enumerate(leaders)}
    return ClusterSnapshot(
        brokers={b: BrokerMetadata(b, "h", b) for b in brokers},
        topics={"a": TopicMetadata("a", topic_id, partitions=partitions)},
    )


class Bench:
    """A machine, a clock that the test moves, and answers in few words."""

    def __init__(self, *, leaders=(1, 1), credit=2, together=0, **options):
        options.setdefault("auto_offset_reset", "earliest")
        self.machine = FetchMachine(
            build(ConsumerConfig, options),
            rand=lambda: 0.5,
            credit=credit,
            together=together,
        )
        self.now = 100.0
        self.published = []
        self.machine.update_metadata(snapshot(*leaders))

    def assign(self, tp=A0, offset=10, epoch=E1, **more):
        self.machine.assign(tp, PartitionStart(epoch, offset, **more))
        return self.machine.positions.require(tp)

    def plan(self, after=0.0):
        self.now += after
        plan = planned(self.machine, self.now)
        self.published += plan.events
        return plan

    def pulls(self, after=0.0):
        return self.plan(after).pulls

    def pull(self, after=0.0):
        (issue,) = self.pulls(after)
        return issue

    def reply(self, issue, *fetched, **more):
        size = more.pop("size", sum(f.size for f in fetched))
        reply = FetchReply(issue.broker, issue.pull.sequence, list(fetched), size=size, **more)
        self.machine.on_reply(issue, reply, [bytes(f.size) for f in fetched], self.now)

    def read(self):
        """Takes everything there is and consumes it; the offsets as (partition, from, to)."""
        seen = []
        while (item := self.machine.take()) is not None:
            seen.append((item.partition.partition, item.fetch_offset, item.next_offset))
            assert self.machine.consumed(item)
        return seen

    @property
    def events(self):
        return [*self.published, *self.machine.positions.events]


def got(offset, to, *, partition=0, epoch=E1, size=100, **more):
    return FetchedPartition("a", partition, epoch, offset, to, size=size, high_watermark=500, **more)


def nothing(offset, *, partition=0, epoch=E1, **more):
    more.setdefault("high_watermark", 500)
    return FetchedPartition("a", partition, epoch, offset, offset, **more)


def wants(issue):
    return [(w.partition, w.fetch_offset, w.epoch) for w in issue.pull.wants]


# ---------------------------------------------------------------- the way of the records


def test_a_partition_is_wanted_from_its_position_and_read_on_without_being_named_again():
    bench = Bench()
    bench.assign()
    issue = bench.pull()
    assert (issue.broker, issue.pull.sequence) == (1, 0)
    assert wants(issue) == [(0, 10, E1)]
    want = issue.pull.wants[0]
    assert (want.leader_epoch, want.topic_id, want.max_bytes) == (5, b"i" * 16, 16 * MIB)
    bench.reply(issue, got(10, 20))
    second, third = bench.pulls()
    assert (second.pull.sequence, third.pull.sequence) == (1, 2)
    assert wants(second) == wants(third) == []
    bench.reply(second, got(20, 30))
    assert bench.read() == [(0, 10, 20), (0, 20, 30)]
    assert bench.machine.positions.require(A0).position == 30


def test_only_while_records_flow_does_a_second_pull_wait_in_line():
    bench = Bench()
    bench.assign()
    issue = bench.pull()
    assert bench.pulls() == []
    bench.reply(issue, got(10, 20))
    second, third = bench.pulls()
    bench.reply(second, nothing(20))
    assert bench.pulls() == []
    bench.reply(third, nothing(20))
    assert len(bench.pulls()) == 1


def test_partitions_are_handed_out_in_turn():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    issue = bench.pull()
    bench.reply(issue, got(10, 20), got(10, 20, partition=1))
    for issue, start in zip(bench.pulls(), (20, 30), strict=True):
        bench.reply(issue, got(start, start + 10), got(start, start + 10, partition=1))
    assert [p for p, _, _ in bench.read()] == [0, 1, 0, 1, 0, 1]


def test_an_answer_for_another_epoch_is_dropped():
    bench = Bench()
    bench.assign(epoch=E1)
    issue = bench.pull()
    bench.machine.revoke(A0)
    bench.assign(epoch=E2)
    bench.reply(issue, got(10, 20, epoch=E1))
    assert bench.read() == []
    assert wants(bench.pulls()[0]) == [(0, 10, E2)]


def test_an_answer_that_does_not_continue_the_position_is_dropped_and_asked_again():
    bench = Bench()
    bench.assign()
    issue = bench.pull()
    bench.reply(issue, got(15, 20))
    assert bench.read() == []
    assert wants(bench.pulls()[0]) == [(0, 10, E1)]


def test_answers_to_pulls_before_a_seek_are_stale_even_if_their_offset_fits():
    bench = Bench()
    bench.assign()
    first = bench.pull()
    bench.reply(first, got(10, 20))
    second, third = bench.pulls()
    bench.machine.seek(A0, 30)
    bench.reply(second, got(20, 30))
    (fourth,) = bench.pulls()
    assert wants(fourth) == [(0, 30, E1)]
    bench.reply(third, got(30, 40))
    assert bench.read() == []
    bench.reply(fourth, got(30, 40))
    assert bench.read() == [(0, 30, 40)]


def test_what_was_handed_out_before_a_seek_counts_for_nothing():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    item = bench.machine.take()
    bench.machine.seek(A0, 300)
    assert not item.valid
    assert not bench.machine.consumed(item, 20)
    assert bench.machine.positions.require(A0).position == 300


def test_the_position_follows_what_is_consumed_not_what_is_fetched():
    bench = Bench()
    partition = bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    item = bench.machine.take()
    assert (partition.position, partition.delivered, partition.fetched) == (10, 20, 20)
    bench.machine.consumed(item, 14)
    assert partition.position == 14
    assert partition.lag(read_committed=False) == 486


def test_a_second_assignment_under_the_same_epoch_changes_nothing():
    bench = Bench()
    bench.assign(offset=10)
    bench.reply(bench.pull(), got(10, 20))
    bench.assign(offset=10)
    assert bench.read() == [(0, 10, 20)]


def test_a_regranted_partition_goes_on_from_its_own_position():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    item = bench.machine.take()
    bench.machine.regrant(A0, E2)
    assert bench.machine.consumed(item)
    bench.pulls()
    for issue in bench.pulls():
        assert wants(issue) in ([(0, 20, E2)], [])
    assert bench.machine.positions.require(A0).position == 20


def test_a_revoked_partition_is_forgotten_by_the_next_pull():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    bench.reply(bench.pull(), nothing(10), nothing(10, partition=1))
    bench.machine.revoke(A1)
    assert bench.pull().pull.forget == [("a", 1)]
    with pytest.raises(UsageError):
        bench.machine.positions.require(A1)


def test_a_draining_partition_hands_out_no_more_but_keeps_its_position():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 20), size=200)
    issue = bench.pulls()[0]
    bench.machine.drain(A0)
    bench.reply(issue, got(20, 30))
    assert bench.machine.take() is None
    assert bench.machine.positions.require(A0).position == 10
    assert bench.machine.buffer.total == 0


# ---------------------------------------------------------------- pause


def test_a_paused_partition_keeps_what_is_fetched_and_goes_on_after():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    bench.machine.pause(A0)
    assert bench.machine.take() is None
    assert bench.machine.reason(A0, bench.now) == "paused"
    assert bench.pulls() == []
    bench.machine.resume(A0)
    assert bench.read() == [(0, 10, 20)]
    assert wants(bench.pulls()[0]) == [(0, 20, E1)]


def test_a_pause_does_not_survive_a_new_assignment():
    bench = Bench()
    bench.assign()
    bench.machine.pause(A0)
    bench.machine.revoke(A0)
    bench.assign(epoch=E2)
    assert len(bench.pulls()) == 1


def test_paused_partitions_never_keep_the_room_of_the_others():
    bench = Bench(worker_buffer_bytes=3 * MIB, credit=2)
    bench.assign(A0)
    bench.assign(A1)
    bench.reply(bench.pull(), got(10, 20, size=3 * MIB))
    bench.machine.pause(A0)
    issues = bench.pulls()
    assert issues[0].pull.forget == [("a", 0)]
    assert bench.machine.buffer.total == 0
    bench.reply(issues[0], got(10, 20, partition=1))
    assert bench.read() == [(1, 10, 20)]
    bench.machine.resume(A0)
    assert (0, 10, E1) in [w for i in bench.pulls() for w in wants(i)]


def test_what_was_taken_ahead_of_paused_partitions_keeps_no_room_of_the_others():
    bench = Bench(worker_buffer_bytes=3 * MIB, credit=2)
    bench.assign(A0)
    bench.assign(A1)
    bench.reply(bench.pull(), got(10, 20), got(10, 20, partition=1), size=3 * MIB)
    begun, other = bench.machine.take(), bench.machine.take()
    assert (begun.partition, other.partition) == (A0, A1)
    bench.machine.consumed(begun, 15)
    bench.machine.pause(A0)
    assert bench.pulls() == []  # there is no room, and A1 is in hand
    bench.machine.consumed(other)
    assert bench.machine.needs_plan
    issues = bench.pulls()
    assert issues[0].pull.forget == [("a", 0)]
    assert bench.machine.buffer.total == 0
    assert not bench.machine.consumed(begun)
    for issue in issues:
        bench.reply(issue, nothing(20, partition=1))
    bench.machine.resume(A0)
    assert wants(bench.pull()) == [(0, 15, E1)]


# ---------------------------------------------------------------- budget


def test_no_pull_is_sent_that_the_budget_has_no_room_for():
    bench = Bench(worker_buffer_bytes=3 * MIB, credit=2)
    bench.assign()
    issue = bench.pull()
    assert issue.pull.max_bytes == MIB
    bench.reply(issue, got(10, 20, size=MIB))
    second, third = bench.pulls()
    bench.reply(second, got(20, 30, size=MIB))
    assert bench.pulls() == []
    bench.reply(third, got(30, 40, size=MIB))
    assert bench.pulls() == []
    assert bench.machine.reason(A0, bench.now) == "buffer full"
    item = bench.machine.take()
    bench.machine.consumed(item)
    assert bench.machine.needs_plan
    assert len(bench.pulls()) == 1


def test_a_response_counts_until_its_last_slice_is_consumed():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    bench.reply(bench.pull(), got(10, 20, size=100), got(10, 20, partition=1, size=100), size=1000)
    first, second = bench.machine.take(), bench.machine.take()
    bench.machine.consumed(first)
    assert bench.machine.buffer.total == 1000
    bench.machine.consumed(second, 15)
    assert bench.machine.buffer.total == 1000
    bench.machine.consumed(second)
    assert bench.machine.buffer.total == 0


@pytest.mark.parametrize(
    ("partitions", "options", "asked"),
    [
        (1, {}, 16 * MIB),
        (3, {}, 16 * MIB // 3),
        (8, {}, 2 * MIB),
        (9, {}, 2 * MIB),
        (20, {}, 2 * MIB),
        (1, {"max_partition_fetch_bytes": 5000}, 5000),
    ],
)
def test_few_partitions_are_asked_for_more_unless_there_is_a_bound(partitions, options, asked):
    bench = Bench(leaders=[1] * partitions, **options)
    for number in range(partitions):
        bench.assign(TopicPartition("a", number))
    pull = bench.pull().pull
    assert {want.max_bytes for want in pull.wants} == {asked}
    assert pull.max_bytes == min(partitions * asked, 64 * MIB // 3)


def test_a_batch_larger_than_the_budget_is_still_delivered():
    bench = Bench(worker_buffer_bytes=MIB)
    bench.assign()
    bench.reply(bench.pull(), got(10, 11, size=5 * MIB))
    assert bench.pulls() == []
    assert bench.read() == [(0, 10, 11)]
    assert bench.pulls()


def test_each_broker_has_its_own_share():
    bench = Bench(leaders=(1, 2), worker_buffer_bytes=6 * MIB, credit=2)
    bench.assign(A0)
    bench.assign(A1)
    one, two = bench.pulls()
    assert (one.broker, two.broker) == (1, 2)
    assert one.pull.max_bytes == two.pull.max_bytes == MIB
    bench.reply(one, got(10, 20, size=3 * MIB))
    assert bench.pulls() == []
    bench.reply(two, got(10, 20, partition=1))
    assert {i.broker for i in bench.pulls()} == {2}


def test_a_partition_with_a_large_backlog_leaves_room_for_others_and_no_long_poll_holds_it_up():
    bench = Bench(worker_buffer_bytes=8 * MIB, credit=1, fetch_max_wait_ms=500)
    bench.assign(A0)
    bench.assign(A1)
    bench.reply(bench.pull(), got(10, 30, size=4 * MIB + 1), size=100)
    issue = bench.pull()
    assert issue.pull.forget == [("a", 0)]
    assert issue.pull.max_wait_ms == 20
    bench.reply(issue, nothing(10, partition=1))
    bench.machine.take()
    assert bench.machine.needs_plan
    assert wants(bench.pull()) == [(0, 30, E1)]


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("code", [-1, 3, 5, 6, 9, 56, 74, 75, 78, 100, 103, 7, 13])
def test_a_temporary_error_never_moves_the_position(code):
    bench = Bench(retry_backoff_ms=100)
    partition = bench.assign()
    bench.reply(bench.pull(), nothing(10, error_code=code))
    plan = bench.plan()
    assert plan.pulls == []
    assert plan.lookups == []
    assert plan.refresh_metadata == (code not in (-1, 75))
    assert plan.next_wake == pytest.approx(bench.now + 0.1)
    assert "backing off" in bench.machine.reason(A0, bench.now)
    assert wants(bench.pull(after=0.11)) == [(0, 10, E1)]
    assert (partition.position, bench.events) == (10, [])


def test_repeated_errors_back_off_up_to_a_second():
    bench = Bench()
    bench.assign()
    delays = []
    for _ in range(8):
        bench.reply(bench.pull(), nothing(10, error_code=6))
        wakeup = bench.plan().next_wake
        delays.append(round(wakeup - bench.now, 3))
        bench.now = wakeup + 0.001
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]


def test_a_leader_hint_is_followed_at_once():
    bench = Bench(leaders=(1,))
    bench.assign()
    bench.reply(bench.pull(), nothing(10, error_code=6, current_leader_id=2, current_leader_epoch=6))
    plan = bench.plan()
    assert [(i.broker, wants(i)) for i in plan.pulls] == [(2, [(0, 10, E1)])]
    assert plan.refresh_metadata
    bench.machine.update_metadata(snapshot(1, epochs=[5]))
    bench.reply(plan.pulls[0], got(10, 20))
    assert {i.broker for i in bench.pulls()} == {2}, "stale metadata must not win over the broker's own word"


def test_an_error_of_authorization_fails_the_partition_after_what_came_before_it():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    bench.reply(bench.pulls()[0], nothing(20, error_code=29))
    item = bench.machine.take()
    assert item.next_offset == 20
    assert bench.machine.take() is None
    bench.machine.consumed(item)
    with pytest.raises(TopicAuthorizationFailedError) as caught:
        bench.machine.take()
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == ("a", 0, 1)


def test_a_failed_partition_is_reported_in_turn_with_the_records_of_others():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    bench.reply(bench.pull(), nothing(10, error_code=29), got(10, 20, partition=1))
    with pytest.raises(TopicAuthorizationFailedError):
        bench.machine.take()
    assert bench.machine.take().partition == A1
    with pytest.raises(TopicAuthorizationFailedError):
        bench.machine.take()
    bench.machine.revoke(A0)
    assert bench.machine.take() is None


def test_the_error_of_a_failed_partition_is_not_raised_while_it_is_paused():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    bench.reply(bench.pull(), nothing(10, error_code=29), got(10, 20, partition=1))
    bench.machine.pause(A0)
    assert bench.read() == [(1, 10, 20)]
    assert not bench.machine.has_something
    bench.machine.resume(A0)
    with pytest.raises(TopicAuthorizationFailedError):
        bench.machine.take()


def test_a_session_error_is_retried_at_once_but_not_forever():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), error_code=70)
    bench.reply(bench.pull(), error_code=70)
    assert bench.pulls() == []
    assert len(bench.pulls(after=0.06)) == 1


def test_a_throttled_broker_is_left_in_peace():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 20), throttle_ms=300)
    assert bench.pulls() == []
    assert bench.machine.reason(A0, bench.now) == "broker 1: throttled"
    assert bench.pulls(after=0.31)


def test_no_throttle_stops_a_stream_for_days():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 20), throttle_ms=2**31 - 1)
    assert bench.pulls(after=MAX_THROTTLE_S - 1) == []
    assert bench.pulls(after=2)


# ---------------------------------------------------------------- brokers that go away


def test_a_refused_login_fails_the_partitions_and_is_not_tried_again():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    refused = SaslAuthenticationFailedError("no such user")
    bench.machine.on_pull_failed(bench.pull(), refused, bench.now)
    assert bench.plan().pulls == []
    with pytest.raises(SaslAuthenticationFailedError, match="no such user"):
        bench.machine.take()
    assert "no such user" in bench.machine.reason(A0, bench.now)


def test_a_refused_login_is_no_matter_of_partitions_that_went_meanwhile():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    issue = bench.pull()
    bench.machine.revoke(A1)
    bench.machine.on_pull_failed(issue, SaslAuthenticationFailedError("no such user"), bench.now)
    with pytest.raises(SaslAuthenticationFailedError, match="no such user"):
        bench.machine.take()
    bench.machine.revoke(A0)
    assert bench.machine.take() is None


def test_a_dead_source_is_asked_again_from_our_own_position():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    bench.reply(bench.pull(), got(10, 20), got(10, 15, partition=1))
    lost = bench.pulls()
    for issue in lost:
        bench.machine.on_pull_failed(issue, DisconnectedError("gone"), bench.now)
    plan = bench.plan()
    assert (plan.pulls, plan.refresh_metadata) == ([], True)
    issue = bench.pull(after=0.06)
    assert issue.pull.sequence == 0
    assert sorted(wants(issue)) == [(0, 20, E1), (1, 15, E1)]
    bench.reply(lost[0], got(20, 30))
    assert bench.read() == [(0, 10, 20), (1, 10, 15)], "what a dead stream still answers is dropped"


def test_failures_of_one_broker_do_not_hold_up_another():
    bench = Bench(leaders=(1, 2))
    bench.assign(A0)
    bench.assign(A1)
    one, two = bench.pulls()
    bench.machine.on_pull_failed(one, DisconnectedError("gone"), bench.now)
    bench.reply(two, got(10, 20, partition=1))
    assert {i.broker for i in bench.pulls()} == {2}
    assert bench.read() == [(1, 10, 20)]


def test_a_moved_leader_is_asked_at_once_without_waiting_for_the_old_one():
    bench = Bench(leaders=(1, 1))
    bench.assign(A0)
    bench.assign(A1)
    old = bench.pull()
    bench.machine.update_metadata(snapshot(2, 1, epochs=[6, 5]))
    (new,) = bench.pulls()
    assert (new.broker, new.pull.sequence, wants(new)) == (2, 0, [(0, 10, E1)])
    bench.reply(old, got(10, 20), got(10, 20, partition=1))
    assert bench.read() == [(1, 10, 20)]
    assert bench.pulls()[0].pull.forget == [("a", 0)]


def test_without_a_leader_nothing_is_asked():
    bench = Bench(leaders=(-1,))
    bench.assign()
    assert bench.pulls() == []
    assert bench.machine.reason(A0, bench.now) == "no leader"
    bench.machine.update_metadata(snapshot(2, epochs=[6]))
    assert bench.pull().broker == 2


def test_a_preferred_replica_is_used_until_it_expires_or_fails():
    bench = Bench(leaders=(1,), metadata_max_age_ms=1000)
    bench.assign()
    bench.reply(bench.pull(), nothing(10, preferred_read_replica=3))
    issue = bench.pull()
    assert (issue.broker, wants(issue)) == (3, [(0, 10, E1)])
    bench.reply(issue, nothing(10, error_code=1))
    plan = bench.plan()
    assert plan.lookups == [], "a follower's OFFSET_OUT_OF_RANGE is no proof"
    assert [(i.broker, wants(i)) for i in plan.pulls] == [(1, [(0, 10, E1)])]
    bench.reply(plan.pulls[0], nothing(10, preferred_read_replica=3))
    assert bench.pull().broker == 3
    assert bench.pull(after=1.1).broker == 1


def test_a_preferred_replica_that_left_the_cluster_is_replaced_by_the_leader():
    bench = Bench(leaders=(1,))
    bench.assign()
    bench.reply(bench.pull(), nothing(10, preferred_read_replica=3))
    assert bench.pull().broker == 3
    bench.machine.update_metadata(snapshot(1, brokers=(1, 2)))
    assert bench.pull().broker == 1


def test_a_preferred_replica_that_fails_is_left_at_once_and_not_named_again_for_a_while():
    bench = Bench(leaders=(1,), credit=1, metadata_max_age_ms=10_000)
    bench.assign()
    first = bench.pull()
    assert first.pull.followers
    bench.reply(first, nothing(10, preferred_read_replica=3))
    bench.machine.on_pull_failed(bench.pull(), DisconnectedError("gone"), bench.now)
    issue = bench.pull()
    assert (issue.broker, wants(issue), issue.pull.followers) == (1, [(0, 10, E1)], False)
    bench.reply(issue, got(10, 20))
    issue = bench.pull(after=9.9)
    assert not issue.pull.followers
    bench.reply(issue, got(20, 30))
    assert bench.pull(after=0.2).pull.followers


def test_a_preferred_replica_without_a_way_to_it_yet_is_asked_for_again_soon():
    """In a job that starts, its connection actor may still be in the making."""
    bench = Bench(leaders=(1,), credit=1, metadata_max_age_ms=10_000)
    bench.assign()
    bench.reply(bench.pull(), nothing(10, preferred_read_replica=3))
    bench.machine.on_pull_failed(bench.pull(), NodeNotReadyError("no way"), bench.now, sent=False)
    issue = bench.pull()
    assert (issue.broker, issue.pull.followers) == (1, False)
    bench.reply(issue, got(10, 20))
    issue = bench.pull(after=0.1)
    assert (issue.broker, issue.pull.followers) == (1, True)
    bench.reply(issue, nothing(20, preferred_read_replica=3))
    assert bench.pull().broker == 3


def test_a_failed_leader_leaves_followers_in_use():
    bench = Bench(leaders=(1, 2))
    bench.assign()
    bench.assign(A1)
    issues = {i.broker: i for i in bench.pulls()}
    bench.reply(issues[1], nothing(10, preferred_read_replica=3))
    bench.machine.on_pull_failed(issues[2], DisconnectedError("gone"), bench.now)
    assert {i.broker: i.pull.followers for i in bench.pulls(after=0.2)} == {2: True, 3: True}


# ---------------------------------------------------------------- where to start


@pytest.mark.parametrize(
    ("policy", "kind", "seconds"),
    [
        ("earliest", LookupKind.EARLIEST, 0),
        ("latest", LookupKind.LATEST, 0),
        ("by_duration:PT1H", LookupKind.DURATION, 3600),
    ],
)
def test_no_committed_offset_follows_the_policy_with_an_event(policy, kind, seconds):
    bench = Bench(auto_offset_reset=policy)
    bench.assign(offset=None)
    plan = bench.plan()
    assert plan.pulls == []
    (lookup,) = plan.lookups
    assert (lookup.tp, lookup.kind, lookup.seconds) == (A0, kind, seconds)
    assert bench.plan().lookups == [], "one look-up is under way already"
    bench.machine.on_offset(lookup, (42, 3), bench.now)
    assert bench.events == [NoCommittedOffset("a", 0, 42, policy)]
    assert wants(bench.pull()) == [(0, 42, E1)]


def test_policy_none_is_a_typed_error():
    bench = Bench(auto_offset_reset="none")
    bench.assign(offset=None)
    assert bench.plan().lookups == []
    with pytest.raises(NoOffsetForPartitionError):
        bench.machine.take()


def test_an_error_that_is_raised_again_and_again_does_not_grow():
    """Whoever polls on in spite of it would keep the frames of every call."""
    bench = Bench(auto_offset_reset="none")
    bench.assign(offset=None)
    bench.plan()
    lengths = set()
    for _ in range(3):
        with pytest.raises(NoOffsetForPartitionError) as caught:
            bench.machine.take()
        lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(lengths) == 1


@pytest.mark.parametrize("known", [True, False])
def test_an_error_goes_with_its_partition_also_if_nobody_has_heard_of_it(known):
    bench = Bench(auto_offset_reset="none")
    bench.assign(offset=None)
    bench.plan()
    if known:
        with pytest.raises(NoOffsetForPartitionError):
            bench.machine.take()
    bench.assign(epoch=E2)  # somebody has committed an offset
    assert bench.machine.take() is None
    bench.assign(offset=None, epoch=E1)
    bench.plan()
    bench.machine.revoke(A0)
    assert not bench.machine.has_something
    assert bench.machine.take() is None


def test_a_new_partition_starts_at_its_beginning_under_latest():
    bench = Bench(auto_offset_reset="latest")
    bench.assign(offset=None, from_start=True)
    assert [x.kind for x in bench.plan().lookups] == [LookupKind.EARLIEST]


def test_a_failed_lookup_is_repeated_and_changes_nothing():
    bench = Bench()
    partition = bench.assign(offset=None)
    (lookup,) = bench.plan().lookups
    bench.machine.on_offset(lookup, RequestTimedOutError("slow"), bench.now)
    plan = bench.plan()
    assert (plan.lookups, plan.refresh_metadata, partition.state) == ([], True, FetchState.AWAITING_OFFSET)
    assert [x.kind for x in bench.plan(after=0.11).lookups] == [LookupKind.EARLIEST]


def test_an_answer_to_a_lookup_that_a_seek_overtook_is_ignored():
    bench = Bench()
    partition = bench.assign(offset=None)
    (lookup,) = bench.plan().lookups
    bench.machine.seek(A0, 77)
    bench.machine.on_offset(lookup, (0, 3), bench.now)
    assert partition.position == 77


def test_seek_to_the_ends_looks_them_up_silently():
    bench = Bench()
    bench.assign()
    for purpose, kind in (
        (LookupPurpose.SEEK_BEGINNING, LookupKind.EARLIEST),
        (LookupPurpose.SEEK_END, LookupKind.LATEST),
    ):
        bench.machine.seek_to(A0, purpose)
        (lookup,) = bench.plan().lookups
        assert lookup.kind is kind
        bench.machine.on_offset(lookup, (3, 1), bench.now)
    assert bench.events == []
    assert bench.machine.positions.require(A0).position == 3


# ---------------------------------------------------------------- data loss


def out_of_range(bench):
    bench.assign()
    bench.reply(bench.pull(), nothing(10, error_code=1, high_watermark=-1))
    (lookup,) = bench.plan().lookups
    assert lookup.kind is LookupKind.BOUNDS
    return lookup


def test_out_of_range_is_an_error_with_the_bounds_of_the_log():
    bench = Bench()
    bench.machine.on_offset(out_of_range(bench), (50, 90), bench.now)
    with pytest.raises(FetchOffsetOutOfRangeError) as caught:
        bench.machine.take()
    error = caught.value
    assert (error.offset, error.log_start_offset, error.log_end_offset) == (10, 50, 90)
    bench.machine.seek(A0, 50)
    assert bench.machine.take() is None
    assert wants(bench.pull()) == [(0, 50, E1)]


def test_a_reset_follows_the_policy_and_counts_what_was_skipped():
    bench = Bench(on_data_loss="reset")
    bench.machine.on_offset(out_of_range(bench), (50, 90), bench.now)
    (lookup,) = bench.plan().lookups
    assert lookup.kind is LookupKind.EARLIEST
    bench.machine.on_offset(lookup, (50, 4), bench.now)
    assert bench.events == [OffsetReset("a", 0, 10, 50, "out_of_range", 40)]
    assert wants(bench.pull()) == [(0, 50, E1)]


def test_reset_with_policy_none_is_still_the_error():
    bench = Bench(on_data_loss="reset", auto_offset_reset="none")
    bench.machine.on_offset(out_of_range(bench), (50, 90), bench.now)
    with pytest.raises(FetchOffsetOutOfRangeError):
        bench.machine.take()


def test_an_offset_that_the_log_has_after_all_is_not_reset():
    bench = Bench(on_data_loss="reset")
    bench.machine.on_offset(out_of_range(bench), (0, 90), bench.now)
    assert bench.plan().lookups == []
    assert wants(bench.pull(after=0.11)) == [(0, 10, E1)]
    assert bench.events == []


def test_good_records_come_before_the_question_whether_the_rest_is_out_of_range():
    bench = Bench(on_data_loss="reset")
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    second, third = bench.pulls()
    bench.reply(second, nothing(20, error_code=1))
    bench.reply(third)
    assert bench.plan().lookups == []
    assert bench.read() == [(0, 10, 20)]
    issue = bench.pulls(after=0.2)[0]
    bench.reply(issue, nothing(20, error_code=1))
    assert [x.kind for x in bench.plan().lookups] == [LookupKind.BOUNDS]


def validating(bench, *, position_epoch=5):
    bench.assign(leader_epoch=position_epoch)
    bench.pulls()
    bench.machine.update_metadata(snapshot(2, epochs=[6]))
    return bench.plan().validations


def test_a_new_leader_epoch_is_checked_before_anything_is_read():
    bench = Bench(leaders=(1,))
    ((tp, version, current, epoch),) = validating(bench)
    assert (tp, current, epoch) == (A0, 6, 5)
    assert bench.pulls() == []
    bench.machine.on_epoch_end(tp, version, (5, 10), bench.now)
    issue = bench.pull()
    assert (issue.broker, wants(issue)) == (2, [(0, 10, E1)])
    assert bench.events == []


def test_an_unknown_epoch_is_never_a_rewind():
    bench = Bench(leaders=(1,), on_data_loss="reset")
    ((tp, version, _, _),) = validating(bench)
    bench.machine.on_epoch_end(tp, version, (-1, -1), bench.now)
    assert wants(bench.pull()) == [(0, 10, E1)]
    assert bench.events == []


def test_a_position_of_unknown_epoch_is_not_doubted():
    bench = Bench(leaders=(1,))
    assert validating(bench, position_epoch=-1) == []
    assert bench.machine.positions.require(A0).state is FetchState.FETCHING


def test_a_truncated_log_is_an_error_with_the_divergence():
    bench = Bench(leaders=(1,))
    ((tp, version, _, _),) = validating(bench)
    bench.machine.on_epoch_end(tp, version, (4, 7), bench.now)
    with pytest.raises(LogTruncationError) as caught:
        bench.machine.take()
    error = caught.value
    assert (error.offset, error.divergent_offset, error.divergent_epoch) == (10, 7, 4)


def test_a_reset_after_truncation_goes_to_the_divergence_and_is_told_once():
    bench = Bench(leaders=(1,), on_data_loss="reset", auto_offset_reset="latest")
    ((tp, version, _, _),) = validating(bench)
    bench.machine.on_epoch_end(tp, version, (4, 7), bench.now)
    assert wants(bench.pull()) == [(0, 7, E1)]
    assert bench.events == [OffsetReset("a", 0, 10, 7, "truncated", 0)]


def test_a_divergence_told_by_the_fetch_itself_counts_as_well():
    bench = Bench(on_data_loss="reset")
    bench.assign()
    bench.reply(bench.pull(), nothing(10, diverging_epoch=4, diverging_end_offset=7))
    assert wants(bench.pull()) == [(0, 7, E1)]


def test_what_is_in_the_users_hands_is_consumed_before_the_check():
    bench = Bench(leaders=(1,))
    bench.assign(leader_epoch=5)
    bench.reply(bench.pull(), got(10, 20))
    bench.reply(bench.pulls()[0], got(20, 30))
    item = bench.machine.take()
    bench.machine.update_metadata(snapshot(2, epochs=[6]))
    assert bench.plan().validations == []
    assert bench.machine.take() is None, "what was fetched and not handed out is fetched again"
    bench.machine.consumed(item)
    assert bench.machine.needs_plan
    ((tp, version, _, _),) = bench.plan().validations
    bench.machine.on_epoch_end(tp, version, (5, 30), bench.now)
    assert wants(bench.pull()) == [(0, 20, E1)]


def test_endless_failures_of_the_check_back_off():
    bench = Bench(leaders=(1,))
    ((tp, version, _, _),) = validating(bench)
    bench.machine.on_epoch_end(tp, version, RequestTimedOutError("slow"), bench.now)
    assert bench.plan().validations == []
    assert len(bench.plan(after=0.11).validations) == 1


def test_a_recreated_topic_is_an_error_of_its_own():
    bench = Bench(leaders=(1,))
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    bench.machine.update_metadata(snapshot(1, topic_id=b"j" * 16, epochs=[0]))
    with pytest.raises(TopicRecreatedError) as caught:
        bench.machine.take()
    assert caught.value.offset == 10
    assert "6a6a" in str(caught.value)


@pytest.mark.parametrize("leaders", [(), (1,)], ids=["gone at first", "made anew before"])
def test_offsets_of_one_topic_are_not_read_in_another_of_its_name(leaders):
    """As a task of Spark knows it from its plan."""
    bench = Bench(leaders=leaders)
    bench.assign(topic_id=b"h" * 16)
    bench.machine.update_metadata(snapshot(1, epochs=[0]))
    with pytest.raises(TopicRecreatedError, match="6868"):
        bench.machine.take()
    assert bench.plan().pulls == []


def test_a_reset_reads_the_recreated_topic_by_policy_and_nothing_of_the_old_one_counts():
    bench = Bench(leaders=(1,), on_data_loss="reset")
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    item = bench.machine.take()
    bench.machine.update_metadata(snapshot(1, topic_id=b"j" * 16, epochs=[0]))
    assert not bench.machine.consumed(item)
    (lookup,) = bench.plan().lookups
    bench.machine.on_offset(lookup, (0, 0), bench.now)
    assert bench.events == [OffsetReset("a", 0, 10, 0, "recreated", 0)]
    want = bench.pulls()[-1].pull.wants[0]
    assert (want.fetch_offset, want.topic_id, want.leader_epoch) == (0, b"j" * 16, 0)


@pytest.mark.parametrize("auto_offset_reset", ["earliest", "latest", "by_duration:PT1H"])
@pytest.mark.parametrize("offset", [10, None])
def test_a_topic_that_was_made_anew_is_read_from_its_start_whatever_it_held(auto_offset_reset, offset):
    """As the group knows it from a commit, or the member from before: nothing of the new topic has been read."""
    bench = Bench(leaders=(1,), on_data_loss="reset", auto_offset_reset=auto_offset_reset)
    partition = bench.assign(offset=offset, topic_id=b"h" * 16)
    assert partition.where is None
    (lookup,) = bench.plan().lookups
    assert lookup.kind is LookupKind.EARLIEST
    bench.machine.on_offset(lookup, (3, 0), bench.now)
    old, skipped = (-1, None) if offset is None else (offset, 0)
    assert bench.events == [OffsetReset("a", 0, old, 3, "recreated", skipped)]
    assert partition.where == CommitPosition(3, 0, b"i" * 16)


@pytest.mark.parametrize(
    "options", [{"on_data_loss": "fail"}, {"on_data_loss": "reset", "auto_offset_reset": "none"}]
)
@pytest.mark.parametrize("offset", [10, None])
def test_a_topic_that_was_made_anew_has_no_position_under_a_policy_that_forbids_one(options, offset):
    bench = Bench(leaders=(1,), **options)
    partition = bench.assign(offset=offset, topic_id=b"h" * 16)
    with pytest.raises(TopicRecreatedError, match="6868"):
        bench.machine.take()
    assert partition.where is None
    bench.machine.seek(A0, 0)
    assert partition.where == CommitPosition(0, -1, b"i" * 16)


def test_a_position_is_of_the_topic_in_which_it_was_read():
    bench = Bench(leaders=(1,), on_data_loss="reset")
    partition = bench.assign()
    assert partition.where == CommitPosition(10, -1, b"i" * 16)
    bench.machine.update_metadata(snapshot(1, topic_id=b"j" * 16, epochs=[0]))
    assert partition.position_id == b"i" * 16
    assert partition.where is None
    (lookup,) = bench.plan().lookups
    bench.machine.on_offset(lookup, (0, 0), bench.now)
    assert partition.where == CommitPosition(0, 0, b"j" * 16)


def test_an_unknown_topic_id_with_unchanged_metadata_is_a_temporary_error():
    bench = Bench(leaders=(1,))
    partition = bench.assign()
    bench.reply(bench.pull(), nothing(10, error_code=100))
    bench.machine.update_metadata(snapshot(1))
    assert partition.state is FetchState.FETCHING
    assert partition.position == 10


# ---------------------------------------------------------------- records that can't be read


def bad(offset, next_offset):
    return CorruptRecordBatchError("a", 0, offset, next_offset, "checksum", "corrupt")


def test_a_bad_batch_fails_the_partition_behind_the_good_ones():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 30))
    item = bench.machine.take()
    bench.machine.consumed(item, 20)
    bench.machine.bad_batch(item, bad(20, 25))
    with pytest.raises(CorruptRecordBatchError):
        bench.machine.take()
    assert bench.machine.positions.require(A0).position == 20
    assert bench.machine.buffer.total == 0


def test_a_bad_batch_can_be_skipped_with_an_event():
    bench = Bench(on_bad_batch="skip")
    bench.assign()
    bench.reply(bench.pull(), got(10, 30))
    item = bench.machine.take()
    bench.machine.consumed(item, 20)
    bench.machine.bad_batch(item, bad(20, 25))
    assert bench.events == [BadBatchSkipped("a", 0, 20, 25, "corrupt")]
    assert wants(bench.pulls()[0]) == [(0, 25, E1)]


def test_what_follows_a_skipped_batch_waits_for_its_turn():
    """As the first records of a partition it could be worked on before what a linger holds back of those in front."""
    bench = Bench(on_bad_batch="skip")
    bench.assign()
    bench.reply(bench.pull(), got(10, 30))
    bench.machine.bad_batch(bench.machine.take(), bad(20, 25))
    bench.reply(bench.pulls()[0], got(25, 40))
    assert bench.machine.buffer.ready
    assert not bench.machine.buffer.newcomer


def test_a_partition_that_comes_back_goes_first():
    for how in ("revoked", "assigned anew"):
        bench = Bench()
        bench.assign()
        bench.reply(bench.pull(), got(10, 20))
        bench.machine.take()
        if how == "revoked":
            bench.machine.revoke(A0)
        bench.assign(epoch=E2)
        bench.reply(bench.pulls()[-1], got(10, 20, epoch=E2))
        assert bench.machine.buffer.newcomer, how


def test_a_bad_batch_whose_end_is_unknown_cannot_be_skipped():
    bench = Bench(on_bad_batch="skip")
    bench.assign()
    bench.reply(bench.pull(), got(10, 30))
    bench.machine.bad_batch(bench.machine.take(), bad(10, None))
    with pytest.raises(CorruptRecordBatchError):
        bench.machine.take()


def test_a_bad_batch_at_the_end_of_a_response_is_fetched_again_with_what_follows():
    bench = Bench(on_bad_batch="skip")
    bench.assign()
    bench.reply(bench.pull(), got(10, 30))
    item = bench.machine.take()
    bench.machine.consumed(item, 20)
    assert bench.machine.bad_batch(item, bad(20, None)) == 20
    assert bench.events == []
    issue = bench.pulls()[0]
    assert wants(issue) == [(0, 20, E1)]
    bench.reply(issue, got(20, 40))
    item = bench.machine.take()
    assert bench.machine.bad_batch(item, bad(20, 25)) == 25
    assert bench.events == [BadBatchSkipped("a", 0, 20, 25, "corrupt")]
    # And where that doesn't help, it is an error that says so.
    bench.reply(bench.pulls()[0], got(25, 40))
    assert bench.machine.bad_batch(bench.machine.take(), bad(25, None)) is None
    with pytest.raises(CorruptRecordBatchError, match='on_bad_batch="skip"'):
        bench.machine.take()


def test_the_position_behind_a_skipped_batch_is_committed_without_a_leader_epoch():
    bench = Bench(on_bad_batch="skip")
    bench.assign()
    bench.reply(bench.pull(), got(10, 30))
    item = bench.machine.take()
    item.leader_epoch = 5
    bench.machine.consumed(item, 20)
    assert bench.machine.positions.require(A0).position_epoch == 5
    bench.machine.bad_batch(item, bad(20, 25))
    assert bench.machine.positions.require(A0).position_epoch == -1


def test_unreadable_bytes_are_not_fetched_again_before_the_decoder_has_seen_them():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 10))
    assert bench.pulls(after=60) == []
    item = bench.machine.take()
    bench.machine.bad_batch(item, bad(10, None))
    with pytest.raises(CorruptRecordBatchError):
        bench.machine.take()


@pytest.mark.parametrize("change", ["leader epoch", "rewind"])
def test_unreadable_bytes_that_were_dropped_before_the_decoder_saw_them_are_fetched_again(change):
    bench = Bench()
    bench.assign(leader_epoch=5)
    bench.reply(bench.pull(), got(10, 10))
    if change == "leader epoch":
        bench.machine.update_metadata(snapshot(1, 1, epochs=[6, 6]))
        assert bench.plan().validations
    else:
        bench.machine.positions.rewind(A0)
        assert wants(bench.pulls()[0]) == [(0, 10, E1)]


# ---------------------------------------------------------------- bounded runs


def test_a_bounded_partition_ends_at_its_position_not_at_a_record():
    bench = Bench()
    bench.assign(end_offset=25)
    bench.reply(bench.pull(), got(10, 22))
    bench.reply(bench.pulls()[0], got(22, 31))
    assert bench.machine.positions.require(A0).state is FetchState.AT_END
    assert not bench.machine.end_reached(A0)
    first, second = bench.machine.take(), bench.machine.take()
    bench.machine.consumed(first)
    assert not bench.machine.end_reached(A0)
    bench.machine.consumed(second, 25)
    assert bench.machine.end_reached(A0)


def test_a_bounded_partition_goes_on_behind_a_skipped_batch_though_all_was_fetched():
    bench = Bench(on_bad_batch="skip")
    bench.assign(end_offset=30)
    bench.reply(bench.pull(), got(10, 30))
    item = bench.machine.take()
    bench.machine.consumed(item, 20)
    bench.machine.bad_batch(item, bad(20, 25))
    issue = bench.pulls()[0]
    assert wants(issue) == [(0, 25, E1)]
    bench.reply(issue, got(25, 30))
    assert bench.read() == [(0, 25, 30)]
    assert bench.machine.end_reached(A0)


def test_a_bounded_partition_whose_last_batch_is_skipped_is_at_its_end():
    bench = Bench(on_bad_batch="skip")
    bench.assign(end_offset=30)
    bench.reply(bench.pull(), got(10, 30))
    item = bench.machine.take()
    bench.machine.consumed(item, 25)
    bench.machine.bad_batch(item, bad(25, 30))
    assert bench.machine.end_reached(A0)
    assert [wants(issue) for issue in bench.pulls()] in ([], [[]])


def test_a_bounded_partition_that_is_already_there_is_not_fetched():
    bench = Bench()
    bench.assign(offset=25, end_offset=25)
    assert bench.pulls() == []
    assert bench.machine.end_reached(A0)


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize("state", FetchState)
@pytest.mark.parametrize("happening", Trigger)
def test_every_pair_that_is_not_in_the_table_is_refused(state, happening):
    bench = Bench()
    partition = bench.assign()
    partition.state = state
    if (state, happening) in TRANSITIONS:
        partition.move(happening)
        assert partition.state is TRANSITIONS[state, happening]
    else:
        with pytest.raises(UsageError):
            partition.move(happening)
        assert partition.state is state


def test_a_broker_that_is_silent_behind_its_long_poll_has_metadata_asked_for():
    bench = Bench(fetch_max_wait_ms=500)
    bench.assign()
    issue = bench.pull()
    plan = bench.plan(after=1.9)
    assert not plan.refresh_metadata
    assert plan.next_wake == pytest.approx(102.0), "nobody else would wake it up"
    assert bench.plan(after=0.2).refresh_metadata
    assert not bench.plan(after=1.0).refresh_metadata, "asked again, but not all the time"
    assert bench.plan(after=1.0).refresh_metadata
    bench.reply(issue)
    assert not bench.plan(after=0.1).refresh_metadata
    assert not bench.plan(after=1.9).refresh_metadata, "an answer begins it anew"


def test_partitions_of_a_silent_broker_are_read_from_its_successor_at_once():
    bench = Bench(leaders=(1, 1))
    bench.assign()
    assert bench.pull().broker == 1
    bench.machine.update_metadata(snapshot(2, 2, epochs=[6, 6], brokers=(2, 3)))
    plan = bench.plan(after=1.0)
    for tp, version, _, _ in plan.validations:
        bench.machine.on_epoch_end(tp, version, (5, 10), bench.now)
    assert [issue.broker for issue in [*plan.pulls, *bench.pulls()]] == [2]


def test_a_backlog_of_small_responses_is_handed_out_at_once():
    bench = Bench(together=1_000)
    bench.assign()
    bench.assign(A1)
    for n in range(3):
        first, second = 10 + n, 11 + n
        bench.reply(bench.pulls()[0], got(first, second), got(first, second, partition=1))
    assert bench.read() == [(0, 10, 13), (1, 10, 13)]
    assert bench.machine.buffer.total == 0
