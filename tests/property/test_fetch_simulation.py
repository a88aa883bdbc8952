"""Random histories of brokers, sessions and a worker: every offset is handed out once and in order, whatever
happens between: leaders move, connections break, sessions are lost, answers carry errors, the user pauses and seeks.
"""

import uuid

from fakes.planned import planned
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch.machines.fetch_machine import FetchMachine
from kafka_actors.fetch.machines.fetch_session import FetchSession, SequenceGap
from kafka_actors.fetch.machines.partition_state import PartitionStart
from kafka_actors.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kafka_actors.types import TopicPartition

TOPIC, ID = "t", uuid.UUID(int=9)
PARTITIONS, BROKERS, BATCH = 3, 2, 10
SMALL = 3  # bytes of a response behind which others to the same pull may come

ACTIONS = st.one_of(
    st.tuples(st.just("answer"), st.integers(0, BROKERS - 1)),
    st.tuples(st.just("answer"), st.integers(0, BROKERS - 1)),
    st.tuples(st.just("take"), st.integers(1, 4)),
    st.tuples(st.just("take"), st.integers(1, 4)),
    st.tuples(st.just("put back"), st.integers(0, 25)),
    st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("move"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("learn"), st.just(0)),
    st.tuples(st.just("break"), st.integers(0, BROKERS - 1)),
    st.tuples(st.just("forget session"), st.integers(0, BROKERS - 1)),
    st.tuples(st.just("fail next"), st.sampled_from([-1, 3, 6, 9, 56, 74, 75, 78, 100])),
    st.tuples(st.just("pause"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("resume"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("seek"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("reassign"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("wait"), st.integers(1, 3)),
)


class Broker:
    """The server's side of sessions, enough to catch a client that breaks their rules (KIP-227)."""

    def __init__(self, world, number):
        self.world, self.number = world, number
        self.session = None
        self.epoch = 0
        self.cached = {}

    def fetch(self, request):
        if request.session_epoch == 0:
            self.session, self.epoch, self.cached = self.world.next_session(), 1, {}
        elif request.session_id != self.session:
            return FetchResponse(error_code=70)
        elif request.session_epoch != self.epoch:
            return FetchResponse(error_code=71)
        else:
            self.epoch += 1
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                self.cached.pop(partition, None)
        named = {p.partition: p.fetch_offset for t in request.topics for p in t.partitions}
        self.cached.update(named)
        parts = [self.partition(p, offset, p in named) for p, offset in list(self.cached.items())]
        parts = [p for p in parts if p is not None]
        answer = [FetchableTopicResponse(topic_id=ID, partitions=parts)] if parts else []
        return FetchResponse(session_id=self.session, responses=answer)

    def partition(self, partition, offset, named):
        world = self.world
        code = world.take_error() or (0 if world.leaders[partition] == self.number else 6)
        if code:
            hint = {}
            return PartitionData(partition_index=partition, error_code=code, **hint)
        end = world.ends[partition]
        if offset < end:
            behind = min(end, offset + BATCH)
            return PartitionData(partition_index=partition, records=b"%d" % behind, high_watermark=end)
        return PartitionData(partition_index=partition, high_watermark=end) if named else None


class World:
    def __init__(self, credit, at_a_time, *, small=False):
        self.small = small
        self.under_way = [None] * BROKERS  # pulls that have had answers, and will have more
        self.ending = [False] * BROKERS
        self.now = 0.0
        self.at_a_time = at_a_time
        self.sessions = 0
        self.errors = []
        self.ends = dict.fromkeys(range(PARTITIONS), 25)
        self.leaders = {p: p % BROKERS for p in range(PARTITIONS)}
        self.epochs = dict.fromkeys(range(PARTITIONS), 0)
        self.brokers = [Broker(self, n) for n in range(BROKERS)]
        self.connections = [self.connection(n) for n in range(BROKERS)]
        self.broken = [True] * BROKERS
        self.queues = [[] for _ in range(BROKERS)]
        config = build(ConsumerConfig, auto_offset_reset="earliest", worker_buffer_bytes=200)
        self.machine = FetchMachine(config, rand=lambda: 0.5, credit=credit)
        self.expected = dict.fromkeys(range(PARTITIONS), 0)
        self.assigned = 0
        self.learn()
        for p in range(PARTITIONS):
            self.assign(p, 0)
        self.plan()

    def connection(self, n):
        return FetchSession(broker=n, at_a_time=self.at_a_time)

    def next_session(self):
        self.sessions += 1
        return self.sessions

    def take_error(self):
        return self.errors.pop() if self.errors else 0

    def snapshot(self):
        partitions = {p: PartitionMetadata(p, self.leaders[p], self.epochs[p]) for p in range(PARTITIONS)}
        return ClusterSnapshot(
            brokers={n: BrokerMetadata(n, "h", n) for n in range(BROKERS)},
            topics={TOPIC: TopicMetadata(TOPIC, ID.bytes, partitions=partitions)},
        )

    def learn(self):
        self.machine.update_metadata(self.snapshot())

    def assign(self, p, offset):
        self.assigned += 1
        self.machine.assign(TopicPartition(TOPIC, p), PartitionStart((0, self.assigned), offset))
        self.expected[p] = offset

    def plan(self):
        plan = planned(self.machine, self.now)
        assert not plan.lookups
        assert not plan.validations
        for issue in plan.pulls:
            self.queues[issue.broker].append(issue)
        for n, issue in enumerate(self.under_way):
            self.ending[n] |= issue is not None and issue.token in plan.ended
        for queue in self.queues:
            assert len(queue) <= 4, "more pulls than credit"

    def answer(self, n):
        """The connection side carries out its oldest pull, or goes on with the one that has had answers."""
        issue, self.under_way[n] = self.under_way[n], None
        if issue is not None:
            self.go_on(n, issue)
            return
        if not self.queues[n]:
            return
        issue = self.queues[n].pop(0)
        session = self.connections[n]
        if self.broken[n] and issue.pull.sequence == 0:
            self.broken[n] = False
            session = self.connections[n] = self.connection(n)
        try:
            if self.broken[n]:
                raise SequenceGap
            session.apply(issue.pull)
        except SequenceGap:
            self.broken[n] = True
            self.machine.on_pull_failed(issue, DisconnectedError("gone"), self.now)
            return
        self.exchange(n, issue)

    def go_on(self, n, issue):
        session = self.connections[n]
        if self.broken[n]:
            self.machine.on_pull_failed(issue, DisconnectedError("gone"), self.now)
        elif self.ending[n]:
            self.machine.on_reply(issue, session.serve(()), [], self.now)
        else:
            self.exchange(n, issue)

    def exchange(self, n, issue):
        session = self.connections[n]
        request, _ = session.request(17)
        response = self.brokers[n].fetch(request)
        full = any(data.records for topic in response.responses for data in topic.partitions)
        reply, records = session.digest(
            response, next_offset=int, size=(SMALL if self.small else 100) if full else 0
        )
        changes = any(waiting.pull.changes for waiting in self.queues[n])
        if self.small and not changes and not reply.error_code and session.steady():
            reply = replace(reply, more=True)
            self.under_way[n], self.ending[n] = issue, False
        self.machine.on_reply(issue, reply, records, self.now)

    def take(self, count):
        for _ in range(count):
            item = self.machine.take()
            if item is None:
                return
            p = item.partition.partition
            assert item.fetch_offset == self.expected[p], "a gap, a repetition or another order"
            assert self.machine.consumed(item)
            self.expected[p] = item.next_offset

    def put_back(self, rows):
        """Takes two items ahead, consumes some of the first, and gives the rest back."""
        first, *_ = taken = [self.machine.take(), self.machine.take_more()]
        if first is None:
            return
        p = first.partition.partition
        assert first.fetch_offset == self.expected[p]
        self.expected[p] = min(first.next_offset, first.fetch_offset + rows)
        assert self.machine.consumed(first, self.expected[p])
        for tp in {item.partition for item in taken if item is not None}:
            self.machine.put_back(tp)

    def do(self, name, value):
        tp = TopicPartition(TOPIC, value if value in self.ends else 0)
        match name:
            case "answer":
                self.answer(value)
            case "take":
                self.take(value)
            case "put back":
                self.put_back(value)
            case "append":
                self.ends[value] += 15
            case "move":
                self.leaders[value] = (self.leaders[value] + 1) % BROKERS
                self.epochs[value] += 1
            case "learn":
                self.learn()
            case "break":
                self.broken[value] = True
            case "forget session":
                self.brokers[value].session = None
            case "fail next":
                self.errors.append(value)
            case "pause":
                self.machine.pause(tp)
            case "resume":
                self.machine.resume(tp)
            case "seek":
                self.expected[value] = min(7, self.ends[value])
                self.machine.seek(tp, self.expected[value])
            case "reassign":
                self.machine.revoke(tp)
                self.assign(value, self.expected[value])
            case "wait":
                self.now += value * 0.2
        self.plan()

    def settle(self):
        """All is well again: everything written has to come."""
        self.errors.clear()
        for p in range(PARTITIONS):
            self.machine.resume(TopicPartition(TOPIC, p))
        for _ in range(300):
            self.now += 0.2
            self.learn()
            self.plan()
            for n in range(BROKERS):
                self.answer(n)
            self.take(10)
            if self.expected == self.ends:
                return True
        return False


@settings(max_examples=150)
@given(st.lists(ACTIONS, max_size=60), st.integers(1, 3), st.sampled_from([1, 16]), st.booleans())
def test_every_offset_comes_once_and_in_order_whatever_happens(actions, credit, at_a_time, small):
    world = World(credit, at_a_time, small=small)
    for name, value in actions:
        world.do(name, value)
    assert world.settle(), (world.expected, world.ends)
    world.take(100)
    assert world.machine.buffer.total == 0
