"""The producer's machines against partitions of `FakeKafka` whose brokers lose requests and answers, move leaders and make errors.

The partitions compare epochs, know the last five batches of a producer, take only the sequence that follows them, 0 under a new
epoch, and any sequence of a producer that they don't know, or have forgotten (`producer.id.expiration.ms`). That a broker really
does so is tried in tests/integration/test_fake_kafka_differential.py and test_producer_faults.py.

Each node has a log of its own. A batch is acknowledged once all in-sync replicas have it; one that isn't may be in some logs and not in
others, and which of them stays is decided by who leads next. A leader that was deposed while it stood still answers by its own
log until it hears of it, but nothing that it takes is acknowledged.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict, deque

import pytest
from fakes.fake_wire import record_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.errors import DeliveryTimeoutError, DisconnectedError, NodeNotReadyError
from kafka_actors.producer.machines.batch import ProducerBatch
from kafka_actors.producer.machines.produce_requests import ProduceAnswer, ProduceOrder
from kafka_actors.producer.machines.sender import Sender, SenderOptions, SettledBatch
from kafka_actors.testing.fake_kafka.machines.error_answers import Refused
from kafka_actors.testing.fake_kafka.machines.partition_log import LogLimits, PartitionLog
from kafka_actors.testing.fake_kafka.machines.producer_state import ProducerStates
from kafka_actors.testing.fake_kafka.machines.record_batches import parse
from kafka_actors.types import TopicPartition

NODES = 3
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
TIMEOUT = 30.0
EXPIRATION = 300.0
"""Seconds after which a broker forgets a producer that has written nothing."""
# codes: (appended before the error is answered, code)
ERRORS = [(False, 19), (True, 20), (False, 6), (True, 7), (True, 6), (False, 56)]
INVALID = 17
"""A batch with a record whose number is a multiple of it is refused for good (INVALID_RECORD)."""
TOO_LARGE = 5
"""So many records are too large for a batch (MESSAGE_TOO_LARGE), unless max.message.bytes was raised."""


class Content:
    """Records by number."""

    def __init__(self, ids):
        self.ids = tuple(ids)

    @property
    def count(self):
        return len(self.ids)

    @property
    def used(self):
        return 61 + 10 * len(self.ids)


def halves(batch):
    middle = batch.records // 2
    parts = []
    for lo, ids in ((0, batch.content.ids[:middle]), (middle, batch.content.ids[middle:])):
        part = ProducerBatch(batch.partition, Content(ids), batch.created, batch.ticket, batch.first + lo)
        part.ready, part.attempts, part.last_error = True, batch.attempts, batch.last_error
        parts.append(part)
    return parts


class Log:
    """One partition of `FakeKafka`, without its brokers: batches of numbers as records."""

    def __init__(self):
        # A check at each millisecond: what is over is forgotten at once.
        self._log = PartitionLog(ProducerStates(expiration_ms=int(EXPIRATION * 1000), check_ms=1))

    @property
    def records(self):
        return [int(record.value) for record in self._log.records()]

    def append(self, producer, epoch, sequence, ids, now=0.0):
        """(error code, base offset)."""
        now_ms = int(now * 1000)
        data = record_batch(
            *(b"%d" % number for number in ids),
            producer=(producer, epoch, sequence),
            timestamps=[now_ms] * len(ids),
        )
        try:
            return 0, self._log.append(parse(data), 0, LogLimits(), now_ms).base_offset
        except Refused as refused:
            return refused.code, -1

    def reload(self):
        """The broker starts again: it remembers the last batch of each producer."""
        self._log.producers.reload()

    def forget(self, now):
        """Forgets the producers that have written nothing for long."""
        self._log.producers.expire(int(now * 1000))


class Replicas:
    """The logs of one partition, one for each node, and who leads."""

    def __init__(self):
        self.leader = 0
        self.stale = set()
        """Nodes that led, and don't know yet that they do no longer; they are not in sync."""
        self.lags = False
        """Whether the followers, which are in sync, don't fetch for now."""
        self._denied_by = -1
        """The node that said last that it lacks what came before a batch. It doesn't get that batch from another one and lead again before
        it is asked anew: then it would take it under a new epoch, and no client can know."""
        self._logs = [Log() for _ in range(NODES)]
        self._written = [[] for _ in range(NODES)]  # what a follower copies

    @property
    def records(self):
        return self._logs[self.leader].records

    def takes(self, node):
        """Whether a node believes that it leads."""
        return node == self.leader or node in self.stale

    def append(self, node, batch, now):
        """(error code, base offset) by the log of this node alone."""
        log = self._logs[node]
        before = len(log.records)
        code, offset = log.append(*batch, now)
        self._denied_by = node if code == 45 else -1
        if len(log.records) > before:
            self._written[node].append((batch, now))
        return code, offset

    def commit(self, now):
        """All replicas that are in sync get what the leader has."""
        self.lags = False
        for node in range(NODES):
            if node not in self.stale:
                self.follow(node, now)

    def follow(self, node, now):
        """A replica becomes like the leader: what differs goes."""
        self.stale.discard(node)
        theirs, own = self._written[self.leader], self._written[node]
        if own != theirs[: len(own)]:
            self._logs[node], own = Log(), self._written[node]
            own.clear()
        for batch, at in theirs[len(own) :]:
            self._logs[node].append(*batch, at)
            own.append((batch, at))
        self._logs[node].forget(now)

    def move(self, *, stale):
        """Another replica that is in sync leads, with its log as it is; `stale`: the old leader doesn't hear of it."""
        others = [(self.leader + i) % NODES for i in range(1, NODES)]
        old = self.leader
        self.leader = next((node for node in others if node not in {*self.stale, self._denied_by}), old)
        self.lags = False
        if stale and self.leader != old:
            self.stale.add(old)

    def restart(self, node):
        self._logs[node].reload()

    def forget(self, now):
        for log in self._logs:
            log.forget(now)


class World:
    """A sender, brokers, and the wires between them."""

    def __init__(self, window):
        options = SenderOptions(
            idempotent=True,
            window=window,
            max_request_bytes=200,
            delivery_timeout=TIMEOUT,
            retry_backoff=0.1,
            retry_backoff_max=1.0,
        )
        self.sender = Sender(
            options,
            halves,
            lambda: 0.5,
            leader=lambda tp: self.believed.get(tp),
            topic_id=lambda topic: None,
            connected=lambda node: True,
        )
        self.sender.identify(7, 0)
        self.now = 0.0
        self.logs = {tp: Replicas() for tp in PARTITIONS}
        self.believed = self.leaders()
        self.wires = [deque() for _ in range(NODES)]  # (order, frozen batches), not yet with the broker
        self.answers = [deque() for _ in range(NODES)]  # (order, answers), not yet with us
        self.zombies = [deque() for _ in range(NODES)]  # of connections that we gave up
        self.error = None
        self.limit = TOO_LARGE
        self.numbers = itertools.count()
        self.outcomes = {}  # record: (offset or -1, error)
        self.sent = defaultdict(list)

    def leaders(self):
        return {tp: log.leader for tp, log in self.logs.items()}

    # -- what happens

    def send(self, tp, count):
        ids = [next(self.numbers) for _ in range(count)]
        batch = ProducerBatch(tp, Content(ids), self.now)
        batch.ready = True
        self.sent[tp] += ids
        self.sender.add(batch)

    def turn(self):
        ready = self.sender.poll(self.now)
        self.settle(action for action in ready.actions if isinstance(action, SettledBatch))
        for order in [action for action in ready.actions if isinstance(action, ProduceOrder)]:
            frozen = [
                (b.partition, b.producer_id, b.producer_epoch, b.sequence, b.content.ids)
                for b in order.batches
            ]
            assert len({f[0] for f in frozen}) == len(frozen), "one batch of a partition in a request"
            self.wires[order.node].append((order, frozen))
        if RefreshMetadata in map(type, ready.actions):
            self.believed = self.leaders()

    def carry_out(self, node, frozen):
        answers = {}
        for tp, *batch in frozen:
            log, ids = self.logs[tp], batch[-1]
            appended, code = self.error or (True, 0)
            if not log.takes(node):
                appended, code = False, 6
            elif len(ids) >= self.limit:
                appended, code = False, 10
            elif any(i % INVALID == 0 for i in ids):
                appended, code = False, 87
            found, offset = log.append(node, batch, self.now) if appended else (code, -1)
            if not found and node != log.leader:
                code = 6  # it waited for replicas in vain
            elif not found and not code and log.lags:
                code = 7
            elif not found and not code:
                log.commit(self.now)
            answers[tp] = ProduceAnswer(code or found, offset if not code else -1)
        self.error = None
        return answers

    def deliver(self, node):
        while self.zombies[node]:  # a broker takes requests in the order in which it has read them
            self.haunt(node)
        if self.wires[node]:
            order, frozen = self.wires[node].popleft()
            self.answers[node].append((order, self.carry_out(node, frozen)))

    def answer(self, node):
        if self.answers[node]:
            order, answers = self.answers[node].popleft()
            self.after(self.sender.answered(order, answers, self.now))

    def cut(self, node, arrived):
        """The connection is lost; of what was under way, the first `arrived` requests reach the broker later."""
        lost = [order for order, _ in (*self.answers[node], *self.wires[node])]
        self.zombies[node].extend(frozen for _, frozen in list(self.wires[node])[:arrived])
        self.answers[node].clear()
        self.wires[node].clear()
        for order in lost:
            error = DisconnectedError("cut")
            self.after(self.sender.failed(order, error, self.now, maybe_written=True))

    def refuse(self, node):
        """The last request could not even be sent."""
        if self.wires[node]:
            order, _ = self.wires[node].pop()
            error = NodeNotReadyError("busy")
            self.after(self.sender.failed(order, error, self.now, maybe_written=False))

    def haunt(self, node):
        if self.zombies[node]:
            self.carry_out(node, self.zombies[node].popleft())

    def lull(self):
        """So long a pause that brokers forget who wrote before it. No request takes as long as that."""
        for node in range(NODES):
            while self.zombies[node] or self.wires[node] or self.answers[node]:
                self.deliver(node)
                self.answer(node)
        self.now += EXPIRATION
        for log in self.logs.values():
            log.forget(self.now)

    def resize(self, limit):
        """max.message.bytes is changed."""
        self.limit = limit

    def move(self, tp, stale):
        for node in range(NODES):
            while self.zombies[node]:
                self.haunt(node)
        self.logs[tp].move(stale=stale)

    def restart(self, node):
        for log in self.logs.values():
            log.restart(node)

    def lag(self, tp):
        self.logs[tp].lags = True

    def follow(self, tp, node):
        self.logs[tp].follow(node, self.now)

    def after(self, outcome):
        self.settle(outcome.settled)
        if outcome.wants_metadata:
            self.believed = self.leaders()

    def settle(self, settled):
        for s in settled:
            for i, number in enumerate(s.batch.content.ids):
                assert number not in self.outcomes, "one outcome each"
                self.outcomes[number] = (s.base_offset + i if s.base_offset >= 0 else -1, s.error)

    # -- what has to hold

    def heal(self):
        """No more trouble: all gets its outcome long before its time is over."""
        self.error = None
        for log in self.logs.values():
            log.commit(self.now)
        until = self.now + TIMEOUT / 2
        while self.sender.partitions and self.now < until:
            self.turn()
            for node in range(NODES):
                while self.wires[node] or self.answers[node]:
                    self.deliver(node)
                    self.answer(node)
            self.now += 0.1
        assert not self.sender.partitions, "everything is settled"
        assert self.sender.poll(self.now).next_wake is None

    def check(self):
        assert sorted(self.outcomes) == list(range(next(self.numbers)))
        for tp, log in self.logs.items():
            records = log.records
            assert len(set(records)) == len(records), "nothing is there twice"
            acked = [n for n in self.sent[tp] if self.outcomes[n][1] is None]
            there = set(acked)
            assert [n for n in records if n in there] == acked, "all acknowledged, in order"
            for number in self.sent[tp]:
                offset, error = self.outcomes[number]
                if offset >= 0:
                    assert records[offset] == number
                if isinstance(error, DeliveryTimeoutError) and not error.maybe_written:
                    assert number not in records


OFTEN = {"send": 6, "turn": 10, "deliver": 10, "answer": 8, "tick": 6, "cut": 1, "haunt": 1, "error": 1} | {
    "move": 0.7, "lag": 0.2, "follow": 1, "lull": 0.2, "resize": 0.5, "restart": 1
}  # fmt: skip
CONTESTED = {"send": 0.3, "turn": 10, "deliver": 10, "answer": 10, "tick": 6, "cut": 3, "metadata": 3} | {
    "move": 3, "lag": 3, "follow": 0.5, "restart": 1
}  # fmt: skip
"""How often what happens in random runs, compared with the rest."""
NODE = st.integers(0, NODES - 1)
OPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(PARTITIONS), st.integers(1, 6)),
    st.tuples(st.just("turn")),
    st.tuples(st.just("deliver"), NODE),
    st.tuples(st.just("answer"), NODE),
    st.tuples(st.just("cut"), NODE, st.integers(0, 3)),
    st.tuples(st.just("refuse"), NODE),
    st.tuples(st.just("haunt"), NODE),
    st.tuples(st.just("move"), st.sampled_from(PARTITIONS), st.booleans()),
    st.tuples(st.just("restart"), NODE),
    st.tuples(st.just("lag"), st.sampled_from(PARTITIONS)),
    st.tuples(st.just("follow"), st.sampled_from(PARTITIONS), NODE),
    st.tuples(st.just("error"), st.sampled_from(ERRORS)),
    st.tuples(st.just("tick"), st.sampled_from([0.05, 0.3, 1.5, 12.0])),
    st.tuples(st.just("lull")),
    st.tuples(st.just("resize"), st.sampled_from([TOO_LARGE, 100])),
)


def play(ops, window):
    world = World(window)
    for op, *arguments in ops:
        if op == "tick":
            world.now += arguments[0]
        elif op == "error":
            world.error = arguments[0]
        else:
            getattr(world, op)(*arguments)
    world.heal()
    world.check()
    return world


@settings(max_examples=600)
@given(st.lists(OPS, max_size=80), st.sampled_from([1, 2, 5]))
def test_each_acknowledged_record_is_there_once_and_in_order(ops, window):
    play(ops, window)


@settings(max_examples=400)
@given(st.integers(0, 2**32), st.sampled_from([1, 5]))
def test_the_same_under_long_random_trouble(seed, window):
    """Long runs that hypothesis would not draw: mostly progress, some of it lost."""
    rand, ops = random.Random(seed), []
    for _ in range(400):
        (name,) = rand.choices([*OFTEN], [*OFTEN.values()])
        node, tp = rand.randrange(NODES), rand.choice(PARTITIONS)
        ops.append(
            {
                "send": ("send", tp, rand.randint(1, 6)),
                "turn": ("turn",),
                "lull": ("lull",),
                "resize": ("resize", rand.choice([TOO_LARGE, 100])),
                "cut": ("cut", node, rand.randint(0, 3)),
                "move": ("move", tp, rand.random() < 0.5),
                "lag": ("lag", tp),
                "follow": ("follow", tp, node),
                "error": ("error", rand.choice(ERRORS)),
                "tick": ("tick", rand.choice([0.05, 0.3, 1.0, 12.0])),
            }.get(name, (name, node))
        )
    play(ops, window)


@settings(max_examples=400)
@given(st.integers(0, 2**32))
def test_the_same_where_leaders_change_before_others_have_what_they_took(seed):
    """A leader takes some batches, of which the first fails for good, that its followers lack, or some of them; then leaders
    change."""
    rand, world, tp = random.Random(seed), World(5), PARTITIONS[0]

    def step(node):
        world.turn()
        world.deliver(node)
        world.answer(node)

    world.send(tp, 1)
    world.send(tp, 1)
    step(0)  # record 0 is refused for good
    step(0)  # from now on the leader knows the producer
    world.lag(tp)
    for number in range(rand.randint(2, 5)):
        world.send(tp, rand.randint(1, 4))
        world.turn()
        world.error = (True, -1) if number == 0 else None
        world.deliver(0)
        for node in range(1, NODES):
            if rand.random() < 0.2:
                world.follow(tp, node)
    while world.answers[0]:
        world.answer(0)
    for _ in range(rand.randint(20, 80)):
        (name,) = rand.choices([*CONTESTED], [*CONTESTED.values()])
        node = rand.randrange(NODES)
        if name == "tick":
            world.now += rand.choice([0.1, 0.3, 1.0])
        elif name == "metadata":
            world.believed = world.leaders()
        elif name == "turn":
            world.turn()
        elif name == "move":
            world.move(tp, rand.random() < 0.2)
        elif name == "lag":
            world.lag(tp)
        elif name == "follow":
            world.follow(tp, node)
        elif name == "send":
            world.send(tp, 1)
        elif name == "cut":
            world.cut(node, rand.randint(0, 3))
        else:
            getattr(world, name)(node)
    world.heal()
    world.check()


def test_the_model_would_notice_a_duplicate():
    """A positive control: without sequences, a lost answer writes twice."""
    world = World(5)
    world.send(PARTITIONS[0], 2)
    world.turn()
    (_, frozen) = world.wires[0][0]
    log = world.logs[PARTITIONS[0]]
    log.append(0, frozen[0][1:], 0.0)
    log.append(0, (99, *frozen[0][2:]), 0.0)
    world.deliver(0)
    world.answer(0)
    with pytest.raises(AssertionError, match="twice"):
        world.check()


def test_a_leader_that_lacks_a_batch_speaks_for_its_own_log_alone():
    """A batch whose predecessor was given up is refused by a leader that has neither, and written under a new epoch there. Before that
    is acknowledged, a replica that has both leads again."""
    world, tp = World(5), PARTITIONS[0]
    written_but_not_everywhere = (True, 7)

    def step(node, error=None):
        world.turn()
        world.error = error
        world.deliver(node)
        world.answer(node)

    world.send(tp, 1)
    world.send(tp, 1)
    step(0)  # record 0 is refused for good: epoch 1 begins
    step(0)  # from now on the leader knows the producer
    world.send(tp, 1)
    world.turn()
    world.now += 12.0
    world.send(tp, 1)
    world.turn()
    for _ in range(2):
        world.error = written_but_not_everywhere
        world.deliver(0)
    world.follow(tp, 2)
    world.answer(0)
    world.answer(0)
    world.move(tp, False)
    world.now += TIMEOUT - 11.0
    world.believed = world.leaders()
    step(1)  # the first is given up; the second misses it here
    world.now += 1.0
    world.turn()
    assert [frozen[0][2] for _, frozen in world.wires[1]] == [2], "a new epoch"
    world.move(tp, False)
    world.cut(1, 0)
    world.heal()
    world.check()
