"""Whoever works on several partitions at a time, and for long on one of them, gets the others all the same."""

import pytest
from fakes.planned import planned

from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.fetch.machines.fetch_machine import FetchMachine
from kafka_actors.fetch.machines.partition_state import PartitionStart
from kafka_actors.fetch.messages import FetchedPartition, FetchReply
from kafka_actors.types import TopicPartition

EPOCH = (1, 1)
MIB = 1024 * 1024
END = 3 * MIB
"""Of each log, in which an offset is a byte."""
EACH = 5
"""So many batches of a partition are in a response at most."""


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
        return [self.machine.positions.require(tp).position for tp in self.tps]


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
