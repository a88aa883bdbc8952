"""The division of the byte budget: shares of brokers, paused partitions, backlogs, and long calls under `one_by_one`."""

import pytest
from fakes.planned import planned

from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.fetch.machines.fetch_machine import FetchMachine
from kafka_actors.fetch.machines.partition_state import PartitionStart
from kafka_actors.fetch.messages import FetchedPartition, FetchReply
from kafka_actors.types import TopicPartition
from tests.fakes.fetching import A0, A1, E1, MIB, Harness, got, nothing, wants

EPOCH = (1, 1)
END = 3 * MIB
"""Length of each log, in which an offset is a byte."""
EACH = 5
"""Largest number of batches of a partition in a response."""


class Scene:
    """A machine and its one broker, which leads all partitions, and a clock that goes on with every turn."""

    def __init__(self, partitions, *, budget, batch, blocked=()):
        self.batch = batch
        self.tps = [TopicPartition("a", number) for number in range(partitions)]
        self.blocked = {self.tps[number] for number in blocked}
        self.machine = FetchMachine(
            build(ConsumerConfig, {"worker_buffer_bytes": budget}), rand=lambda: 0.5, one_by_one=True
        )
        self.machine.update_metadata(
            ClusterSnapshot(
                brokers={1: BrokerMetadata(1, "h", 1)},
                topics={
                    "a": TopicMetadata(
                        "a",
                        b"i" * 16,
                        partitions={tp.partition: PartitionMetadata(tp.partition, 1, 5) for tp in self.tps},
                    )
                },
            )
        )
        for tp in self.tps:
            self.machine.assign(tp, PartitionStart(EPOCH, 0))
        self.session = {}
        self.in_hand = {tp: [] for tp in self.tps}
        self.most = 0
        self.now = 100.0

    def turn(self):
        """The broker answers what is asked; the user takes all there is, and is done with what is not blocked."""
        self.now += 0.1
        for issue in planned(self.machine, self.now).pulls:
            self._answer(issue)
        while (item := self.machine.take()) is not None:
            held = self.in_hand[item.partition]
            assert not held or held[-1].next_offset == item.fetch_offset
            held.append(item)
        self.most = max(self.most, self.machine.buffer.total)
        for tp in self.tps:
            if tp not in self.blocked:
                self.done(tp)

    def done(self, tp):
        items, self.in_hand[tp] = self.in_hand[tp], []
        for item in items:
            assert sum(len(piece.data) for piece in item.slices) == item.next_offset - item.fetch_offset
            assert self.machine.consumed(item)

    def _answer(self, issue):
        pull = issue.pull
        for tp in pull.forget:
            self.session.pop(tp[1])
        self.session.update({want.partition: want.fetch_offset for want in pull.wants})
        parts = []
        left = pull.max_bytes
        for number, offset in list(self.session.items()):
            batches = max(left // self.batch, not parts)  # the first one comes whole, whatever was asked for
            to = min(END, offset + min(batches, EACH) * self.batch)
            if to > offset:
                del self.session[number]  # it comes last the next time
                self.session[number] = to
                left -= to - offset
                parts.append(
                    FetchedPartition("a", number, EPOCH, offset, to, size=to - offset, high_watermark=END)
                )
        size = sum(part.size for part in parts)
        reply = FetchReply(1, pull.sequence, parts, size=size)
        self.machine.on_reply(issue, reply, [bytes(part.size) for part in parts], self.now)

    def positions(self):
        return [self.machine.partitions.require(tp).position for tp in self.tps]


@pytest.mark.parametrize(
    ("blocked", "batch"),
    [
        ((0,), MIB // 64),
        ((0, 3), MIB // 64),
        ((0,), MIB // 4),
        ((0, 3), MIB // 4),
        ((0, 3), MIB // 2),
        ((0,), MIB),
    ],
)
def test_what_is_worked_on_for_long_leaves_the_other_partitions_room(blocked, batch):
    """Also where it takes as much as the budget."""
    scene = Scene(4, budget=MIB, batch=batch, blocked=blocked)
    for _ in range(200):
        scene.turn()
    assert scene.positions() == [0 if number in blocked else END for number in range(4)]
    assert scene.most <= 2 * MIB + 2 * batch
    scene.blocked.clear()
    for _ in range(100):
        scene.turn()
    assert scene.positions() == [END] * 4


def test_paused_partitions_never_keep_the_room_of_the_others():
    harness = Harness(worker_buffer_bytes=3 * MIB, credit=2)
    harness.assign(A0)
    harness.assign(A1)
    harness.reply(harness.pull(), got(10, 20, size=3 * MIB))
    harness.machine.pause(A0)
    issues = harness.pulls()
    assert issues[0].pull.forget == [("a", 0)]
    assert harness.machine.buffer.total == 0
    harness.reply(issues[0], got(10, 20, partition=1))
    assert harness.read() == [(1, 10, 20)]
    harness.machine.resume(A0)
    assert (0, 10, E1) in [w for i in harness.pulls() for w in wants(i)]


def test_what_was_taken_ahead_of_paused_partitions_keeps_no_room_of_the_others():
    harness = Harness(worker_buffer_bytes=3 * MIB, credit=2)
    harness.assign(A0)
    harness.assign(A1)
    harness.reply(harness.pull(), got(10, 20), got(10, 20, partition=1), size=3 * MIB)
    begun, other = harness.machine.take(), harness.machine.take()
    assert (begun.partition, other.partition) == (A0, A1)
    harness.machine.consumed(begun, 15)
    harness.machine.pause(A0)
    assert harness.pulls() == []  # there is no room, and A1 is in hand
    harness.machine.consumed(other)
    assert harness.machine.partitions.needs_plan
    issues = harness.pulls()
    assert issues[0].pull.forget == [("a", 0)]
    assert harness.machine.buffer.total == 0
    assert not harness.machine.consumed(begun)
    for issue in issues:
        harness.reply(issue, nothing(20, partition=1))
    harness.machine.resume(A0)
    assert wants(harness.pull()) == [(0, 15, E1)]


def test_no_pull_is_sent_that_the_budget_has_no_room_for():
    harness = Harness(worker_buffer_bytes=3 * MIB, credit=2)
    harness.assign()
    issue = harness.pull()
    assert issue.pull.max_bytes == MIB
    harness.reply(issue, got(10, 20, size=MIB))
    second, third = harness.pulls()
    harness.reply(second, got(20, 30, size=MIB))
    assert harness.pulls() == []
    harness.reply(third, got(30, 40, size=MIB))
    assert harness.pulls() == []
    assert harness.machine.reason(A0, harness.now) == "buffer full"
    item = harness.machine.take()
    harness.machine.consumed(item)
    assert harness.machine.partitions.needs_plan
    assert len(harness.pulls()) == 1


def test_a_response_counts_until_its_last_slice_is_consumed():
    harness = Harness()
    harness.assign(A0)
    harness.assign(A1)
    harness.reply(harness.pull(), got(10, 20, size=100), got(10, 20, partition=1, size=100), size=1000)
    first, second = harness.machine.take(), harness.machine.take()
    harness.machine.consumed(first)
    assert harness.machine.buffer.total == 1000
    harness.machine.consumed(second, 15)
    assert harness.machine.buffer.total == 1000
    harness.machine.consumed(second)
    assert harness.machine.buffer.total == 0


@pytest.mark.parametrize(
    ("partitions", "options", "wanted"),
    [
        (1, {}, 16 * MIB),
        (3, {}, 16 * MIB // 3),
        (8, {}, 2 * MIB),
        (9, {}, 2 * MIB),
        (20, {}, 2 * MIB),
        (1, {"max_partition_fetch_bytes": 5000}, 5000),
    ],
)
def test_few_partitions_are_asked_for_more_unless_there_is_a_bound(partitions, options, wanted):
    harness = Harness(leaders=[1] * partitions, **options)
    for number in range(partitions):
        harness.assign(TopicPartition("a", number))
    pull = harness.pull().pull
    assert {want.max_bytes for want in pull.wants} == {wanted}
    assert pull.max_bytes == min(partitions * wanted, 64 * MIB // 3)


def test_a_batch_larger_than_the_budget_is_still_delivered():
    harness = Harness(worker_buffer_bytes=MIB)
    harness.assign()
    harness.reply(harness.pull(), got(10, 11, size=5 * MIB))
    assert harness.pulls() == []
    assert harness.read() == [(0, 10, 11)]
    assert harness.pulls()


def test_each_broker_has_its_own_share():
    harness = Harness(leaders=(1, 2), worker_buffer_bytes=6 * MIB, credit=2)
    harness.assign(A0)
    harness.assign(A1)
    one, two = harness.pulls()
    assert (one.broker, two.broker) == (1, 2)
    assert one.pull.max_bytes == two.pull.max_bytes == MIB
    harness.reply(one, got(10, 20, size=3 * MIB))
    assert harness.pulls() == []
    harness.reply(two, got(10, 20, partition=1))
    assert {i.broker for i in harness.pulls()} == {2}


def test_a_partition_with_a_large_backlog_leaves_room_for_others_and_no_long_poll_holds_it_up():
    harness = Harness(worker_buffer_bytes=8 * MIB, credit=1, fetch_max_wait_ms=500)
    harness.assign(A0)
    harness.assign(A1)
    harness.reply(harness.pull(), got(10, 30, size=4 * MIB + 1), size=100)
    issue = harness.pull()
    assert issue.pull.forget == [("a", 0)]
    assert issue.pull.max_wait_ms == 20
    harness.reply(issue, nothing(10, partition=1))
    harness.machine.take()
    assert harness.machine.partitions.needs_plan
    assert wants(harness.pull()) == [(0, 30, E1)]
