"""A worker's commits: what is asked, in which order, and what ends a session."""

import threading
from types import SimpleNamespace

import pytest
from fakes.loop import in_loop

from kafka_actors.config import JobConfig, build
from kafka_actors.errors import (
    DisconnectedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaTimeoutError,
    ProducerFencedError,
    UnknownMemberIdError,
)
from kafka_actors.group.commit_metadata import unpack
from kafka_actors.job.messages import CommitReply, Grant, Orders
from kafka_actors.job.transactions import ProducerGrant
from kafka_actors.job.worker import producer_sessions, transactions
from kafka_actors.job.worker.machines.worker_assignment import WorkerAssignment
from kafka_actors.job.worker.outputs import OutputsSpec
from kafka_actors.job.worker.transactions import WorkerTransactions
from kafka_actors.job.worker.user_function import FunctionSpec, UserFunction
from kafka_actors.sinks import KafkaSink
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.types import ConsumerGroupMetadata, ProducerIdentity, TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
GROUP = ConsumerGroupMetadata("g", 3, "m", None)
NEWER = ConsumerGroupMetadata("g", 4, "m", None)
ID = bytes(range(16))


class Scripted:
    """In place of a `SessionProducer`: `seen` is what was asked of it, `errors` what the next offsets are answered with."""

    def __init__(self, config, identity):
        self.seen, self.errors, self.offsets = [], [], []
        self.failure = None
        self.end = lambda: None

    def begin_transaction(self):
        self.seen.append("begin")

    def flush(self):
        self.seen.append("flush")

    def send_offsets(self, offsets, group):
        self.seen.append(("offsets", group.generation_id))
        self.offsets.append(offsets)
        if self.errors:
            raise self.errors.pop(0)

    def commit_until_known(self):
        self.end()
        self.seen.append("end")

    def discard(self):
        self.seen.append("discarded")


class Scene:
    """A worker with two partitions in one session. It is its own coordinator."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(producer_sessions, "SessionProducer", Scripted)
        monkeypatch.setattr(transactions, "time", SimpleNamespace(sleep=lambda seconds: None))
        config = build(JobConfig, group_id="g", bootstrap_servers="localhost:9092")
        spec = FunctionSpec(print, "batch", 0, "fail", OutputsSpec((KafkaSink("scored"),), None, {}))
        self.assignment, self.lock, self.ended = WorkerAssignment(), threading.Lock(), []
        self.asked, self.replies, self.flushed = [], [], 0
        snapshot = SimpleNamespace(topic_id=lambda topic: ID, cluster_id="cluster")
        self.own = WorkerTransactions(
            "worker-0.1",
            config,
            UserFunction(spec, config),
            self.assignment,
            self.lock,
            self,
            snapshot=lambda: snapshot,
            on_end=self.ended.append,
            on_final=self.ended.append,
            recorder=Recorder(),
            clock=lambda: 5.0,
        )
        producer = ProducerGrant((1, 9), ProducerIdentity("id", 1, 1))
        orders = Orders((1, 1), [Grant(P0, (1, 1), 100), Grant(P1, (1, 2), 200)], [], 60.0, producer=producer)
        self.own.sessions.follow(orders, self.assignment.apply(orders))
        self.processed(P0, 110)
        self.processed(P1, 205)

    def processed(self, partition, offset):
        epoch = self.assignment.held[partition].epoch
        self.assignment.begin(partition, epoch)
        self.assignment.done(partition, epoch, offset)

    @property
    def producer(self):
        return self.own.sessions.present.producer

    async def commit(self, request):
        self.asked.append(request)
        if request.done:
            return CommitReply(request.sequence, request.entries, [], [])
        reply = self.replies.pop(0) if self.replies else GROUP
        if isinstance(reply, Exception):
            raise reply
        refused, group = (
            (reply, GROUP) if isinstance(reply, list) else ([], None if reply == "no group" else reply)
        )
        return CommitReply(request.sequence, [], refused, [], group)

    def flush(self):
        self.flushed += 1
        self.producer.seen.append("user's flush")

    async def commits(self):
        return await self.own.commit(self.flush, at_once=False)

    def committed(self):
        return {p.partition: h.committed for p, h in self.assignment.held.items()}


@pytest.fixture
def scene(monkeypatch):
    return Scene(monkeypatch)


@in_loop
async def test_a_commit_asks_makes_the_cut_and_tells(scene):
    assert await scene.commits()
    assert scene.producer.seen == ["user's flush", "begin", ("offsets", 3), "end"]
    assert scene.committed() == {0: 110, 1: 205}
    (offsets,) = scene.producer.offsets
    assert {p.partition: o.offset for p, o in offsets.items()} == {0: 110, 1: 205}
    assert unpack(offsets[P0].metadata)[1:] == (ID, "cluster", "")
    asked, told = scene.asked
    assert (asked.session, asked.done, told.session, told.done) == ((1, 9), False, (1, 9), True)
    assert {e.partition: e.offset for e in told.entries} == {P0: 110, P1: 205}


@in_loop
async def test_what_is_processed_after_the_cut_is_in_the_next_transaction(scene):
    def meanwhile():
        assert scene.own.sessions.cut._is_owned()  # nothing is written while the transaction is ended

    scene.producer.end = meanwhile
    assert await scene.commits()
    scene.processed(P0, 120)
    assert await scene.commits()
    assert [o.get(P0).offset for o in scene.producer.offsets] == [110, 120]
    assert P1 not in scene.producer.offsets[1]


@pytest.mark.parametrize("error", [IllegalGenerationError, UnknownMemberIdError, FencedInstanceIdError])
@in_loop
async def test_a_rebalance_alone_aborts_nothing(scene, error):
    scene.producer.errors = [error("of before")]
    scene.replies = [GROUP, NEWER]
    assert await scene.commits()
    assert scene.producer.seen[2:] == [("offsets", 3), ("offsets", 4), "end"]
    assert scene.ended == []


@in_loop
async def test_a_membership_that_stays_refused_leaves_the_transaction_as_it_is(scene, monkeypatch):
    monkeypatch.setattr(transactions, "ASK_S", -1.0)
    scene.producer.errors = [IllegalGenerationError("of before")]
    assert not await scene.commits()
    assert scene.own.sessions.present is not None
    assert "end" not in scene.producer.seen
    assert await scene.commits()
    assert scene.producer.seen.count("begin") == 1


@pytest.mark.parametrize("reply", ["no group", DisconnectedError("no coordinator"), [P0]])
@in_loop
async def test_without_leave_for_all_that_is_in_it_a_transaction_is_not_ended(scene, reply):
    scene.replies = [reply]
    assert not await scene.commits()
    assert "end" not in scene.producer.seen
    assert scene.own.sessions.present is not None
    assert await scene.commits()
    assert scene.producer.seen[-1] == "end"


@in_loop
async def test_an_error_of_the_transaction_ends_the_session_and_drops_all(scene):
    def fenced():
        raise ProducerFencedError("fenced")

    scene.producer.end = fenced
    assert await scene.commits()
    assert scene.own.sessions.present is None
    assert [sorted(dropped) for dropped in scene.ended] == [[P0, P1]]
    assert scene.assignment.held == {}
    report = scene.own.sessions.report()
    assert (report.failed, report.aborted, report.lost) == ((1, 9), 1, 15)
    assert await scene.commits()  # there is nothing to commit


@in_loop
async def test_a_session_that_was_fenced_while_its_transaction_ended_counts_nothing(scene):
    def fenced():
        orders = Orders((1, 2), [], [], 60.0)
        with scene.lock:
            scene.own.sessions.follow(orders, scene.assignment.apply(orders))

    scene.producer.end = fenced
    await scene.commits()
    assert scene.own.sessions.report().committed == 0
    assert scene.assignment.held == {}


@in_loop
@pytest.mark.parametrize("error", [OSError("disk"), KafkaTimeoutError("of the user's own producer")])
async def test_an_error_of_the_users_flush_is_raised_and_nothing_is_committed(scene, error):
    """It is none of the transaction: to abort that and go on would end alike, for ever."""

    def flush():
        raise error

    with pytest.raises(type(error)) as caught:
        await scene.own.commit(flush, at_once=False)
    assert caught.value is error
    assert scene.producer.offsets == []
    assert scene.ended == []


@in_loop
async def test_an_open_transaction_is_flushed_before_the_cut(scene):
    scene.own.sessions.begin(scene.own.sessions.present)
    await scene.commits()
    assert scene.producer.seen[:3] == ["begin", "flush", "user's flush"]
