"""Cut between a worker's transactions: which results are in which one, and what ends a session."""

import threading
from functools import partial

import pyarrow as pa
import pytest
from fakes.records import records

from kafka_actors.config import JobConfig, build
from kafka_actors.errors import (
    DeliveryTimeoutError,
    KafkaTimeoutError,
    MessageTooLargeError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
)
from kafka_actors.job.messages import Drain, Grant, Orders
from kafka_actors.job.transactions import ProducerGrant
from kafka_actors.job.worker import producer_sessions
from kafka_actors.job.worker.calls import LOST
from kafka_actors.job.worker.machines.worker_assignment import WorkerAssignment
from kafka_actors.job.worker.outputs import OutputsSpec
from kafka_actors.job.worker.producer_sessions import ProducerSessions
from kafka_actors.job.worker.user_function import CallFailed, FunctionSpec, UserFunction
from kafka_actors.sinks import KafkaSink
from kafka_actors.sinks.transactional import TransactionalWriter
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.types import ProducerIdentity, TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
E1, E2, E3 = (1, 1), (1, 2), (1, 3)
S1, S2 = (1, 11), (1, 12)


class Written:
    """In place of a `SessionProducer`: what it sends, and how it fails."""

    def __init__(self, config, identity):
        self.epoch = identity.producer_epoch
        self.seen = []
        self.error = None
        self.failure = None
        self.before_send = lambda: None

    def begin_transaction(self):
        self.seen.append("begin")

    def send_batch(self, batch, topic):
        self.before_send()
        if self.error is not None:
            raise self.error
        self.seen.append((topic, batch["value"].to_pylist()))

    def discard(self):
        self.seen.append("discarded")

    def close(self, timeout_ms):
        self.seen.append("closed")


class Scene:
    """A worker's assignment and its sessions; the function's results are given by the test."""

    def __init__(self, monkeypatch, *, unit="batch", sinks=("scored",)):
        monkeypatch.setattr(producer_sessions, "SessionProducer", Written)
        config = build(JobConfig, group_id="g", bootstrap_servers="localhost:9092")
        spec = FunctionSpec(
            lambda batch: batch, unit, 0, "fail", OutputsSpec((KafkaSink("scored"),), None, {})
        )
        self.function = UserFunction(spec, config)
        outputs = self.function.outputs
        outputs._sinks = [(topic, TransactionalWriter(outputs.slot, topic)) for topic in sinks]
        self.function._made = spec.target
        self.assignment, self.lock = WorkerAssignment(), threading.Lock()
        self.ended, self.final = [], []
        self.sessions = ProducerSessions(
            "worker-0.1",
            config,
            self.function,
            self.assignment,
            self.lock,
            on_end=self.ended.append,
            on_final=self.final.append,
            recorder=Recorder(),
            clock=lambda: 5.0,
        )
        self._versions = 0

    def orders(self, session, grants, draining=()):
        """Applies orders. Returns what is left to do."""
        self._versions += 1
        producer = None
        if session is not None:
            producer = ProducerGrant(session, ProducerIdentity("g-n-worker-0", 7, session[1]))
        orders = Orders(
            (1, self._versions),
            [Grant(p, epoch, 100) for p, epoch in grants.items()],
            [Drain(p, epoch) for p, epoch in dict(draining).items()],
            60.0,
            producer=producer,
        )
        return self.sessions.follow(orders, self.assignment.apply(orders))

    @property
    def producer(self):
        return self.sessions.present.producer

    def call(self, partition, epoch, *values, first=100, fails=None, **more):
        """A call of the function for these values, and what becomes of its results."""
        batch = rows(partition, first, *values)
        self.assignment.begin(partition, epoch)
        self.function.call(batch)
        written = self.put_out(partition, epoch, fails, **more)
        if written is None:
            self.assignment.done(partition, epoch, first + len(values))
        return written

    def put_out(self, partition, epoch, fails=None, **more):
        for _ in self.sessions.enter():
            raise AssertionError("nobody has the cut")
        try:
            return self.sessions.put_out(partition, epoch, 0, fails, **more)
        finally:
            self.sessions.leave()

    def committed(self):
        session, entries = self.sessions.present, self.assignment.commits()
        self.sessions.committed(session, entries)
        return {entry.partition.partition: entry.offset for entry in entries}


def rows(partition, first, *values):
    return records(list(values), partition=partition.partition, first=first)


@pytest.fixture
def scene(monkeypatch):
    made = Scene(monkeypatch)
    made.orders(S1, {P0: E1, P1: E2})
    return made


def test_results_are_written_when_the_call_has_returned_and_with_their_offset(scene):
    assert scene.call(P0, E1, b"a", b"b") is None
    assert scene.producer.seen == ["begin", ("scored", [b"a", b"b"])]
    assert scene.call(P1, E2, b"c") is None
    assert scene.producer.seen[2:] == [("scored", [b"c"])]
    assert scene.committed() == {0: 102, 1: 101}
    assert scene.call(P0, E1, b"d", first=102) is None
    assert scene.producer.seen[3:] == ["begin", ("scored", [b"d"])]
    assert scene.sessions.report().committed == 1


def test_a_commit_keeps_results_out_until_it_is_over(scene):
    scene.sessions.cut.acquire()
    batch = rows(P0, 100, b"late")
    scene.function.call(batch)
    done = threading.Thread(target=scene.put_out, args=(P0, E1))
    done.start()
    assert scene.producer.seen == []  # the call has returned, and nothing of it is written
    scene.sessions.cut.release()
    done.join()
    assert scene.producer.seen == ["begin", ("scored", [b"late"])]


def test_an_async_function_waits_for_the_cut_without_holding_up_its_loop(scene):
    scene.sessions._async = True
    taken, let_go = threading.Event(), threading.Event()

    def commit():
        with scene.sessions.cut:
            taken.set()
            let_go.wait()

    thread = threading.Thread(target=commit)
    thread.start()
    taken.wait()
    waits = scene.sessions.enter()
    assert next(waits).seconds > 0
    let_go.set()
    thread.join()
    assert list(waits) == []
    scene.sessions.leave()


def test_results_of_a_partition_that_was_taken_are_dropped(scene):
    scene.function.call(rows(P0, 100, b"a"))
    scene.orders(S1, {P1: E2})
    assert scene.put_out(P0, E1) is LOST
    assert scene.producer.seen == []
    scene.orders(S1, {P0: E3, P1: E2})
    scene.function.call(rows(P0, 100, b"of the old grant"))
    assert scene.put_out(P0, E1) is LOST
    assert scene.producer.seen == []


def test_a_partition_taken_with_open_results_ends_the_session_and_all_is_dropped(scene):
    scene.call(P0, E1, b"a")
    scene.call(P1, E2, b"b")
    producer = scene.producer
    changes = scene.orders(S1, {P1: E2})
    assert (changes.begin, set(changes.drop)) == ([], {P0, P1})
    assert scene.assignment.held == {}
    report = scene.sessions.report()
    assert (report.session, report.failed, report.aborted, report.lost) == (None, S1, 1, 2)
    assert "orders-0" in report.cause
    scene.sessions._closing.shutdown()
    assert producer.seen[-1] == "discarded"


def test_a_session_ends_also_where_the_system_gives_no_thread(scene, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    scene.call(P0, E1, b"a")
    monkeypatch.setattr(threading.Thread, "start", refused)
    producer = scene.producer
    scene.sessions.fail(scene.sessions.present, DeliveryTimeoutError("scored", 0, 1, 120_000, True))
    assert [set(dropped) for dropped in scene.ended] == [{P0, P1}]
    scene.sessions._closing.shutdown()
    assert producer.seen[-1] == "discarded"


def test_a_partition_taken_while_its_results_are_written_ends_the_session(scene):
    producer = scene.producer
    producer.before_send = partial(scene.orders, S1, {P1: E2})
    scene.call(P0, E1, b"a")
    assert scene.sessions.present is None
    assert scene.sessions.report().failed == S1
    assert scene.assignment.held == {}


def test_results_go_to_the_session_in_which_they_were_found_to_count(scene):
    old = scene.producer
    old.before_send = partial(scene.orders, S2, {P0: E3})
    scene.call(P0, E1, b"a")
    assert ("scored", [b"a"]) in old.seen
    assert scene.producer is not old
    assert scene.producer.seen == []


def test_a_drain_that_was_committed_ends_no_session(scene):
    scene.call(P0, E1, b"a")
    scene.orders(S1, {P1: E2}, {P0: E1})
    scene.committed()
    assert scene.assignment.release_drained() == [P0]
    scene.orders(S1, {P1: E2})
    assert scene.sessions.present.number == S1
    assert set(scene.assignment.held) == {P1}


def test_another_session_begins_with_partitions_under_other_epochs_alone(scene):
    scene.call(P0, E1, b"a")
    old = scene.producer
    changes = scene.orders(S2, {P0: E3, P1: E2})
    assert [grant.partition for grant in changes.begin] == [P0]
    assert set(scene.assignment.held) == {P0}  # P1 was not granted anew
    assert scene.producer is not old
    assert scene.producer.epoch == 12


def test_without_a_session_nothing_begins(scene):
    changes = scene.orders(None, {P0: E3})
    assert changes.begin == []
    assert scene.assignment.held == {}


def test_an_error_of_the_producer_drops_all_and_the_same_grants_do_not_bring_it_back(scene):
    scene.call(P0, E1, b"a")
    scene.sessions.fail(scene.sessions.present, ProducerFencedError("fenced"))
    assert [sorted(dropped) for dropped in scene.ended] == [[P0, P1]]
    assert scene.final == []
    changes = scene.orders(S1, {P0: E1, P1: E2})  # from before the coordinator heard of it
    assert changes.begin == []
    assert scene.assignment.held == {}
    changes = scene.orders(S2, {P0: E3})
    assert [grant.epoch for grant in changes.begin] == [E3]
    assert scene.sessions.present.number == S2


def test_an_error_that_the_next_session_has_too_ends_the_job(scene):
    error = TopicAuthorizationFailedError("no")
    scene.sessions.fail(scene.sessions.present, error)
    assert scene.final == [error]


def test_a_result_that_can_not_be_sent_is_a_failure_of_its_call(scene):
    scene.producer.error = MessageTooLargeError("too large")
    failure = scene.call(P0, E1, b"a", b"b")
    assert isinstance(failure, CallFailed)
    assert (failure.first, failure.last) == (100, 101)
    assert scene.sessions.present.number == S1


def test_brokers_that_take_nothing_end_the_session_and_no_policy_takes_records_out(scene):
    scene.producer.error = KafkaTimeoutError("no room")
    assert scene.call(P0, E1, b"a") is LOST
    assert scene.sessions.report().failed == S1


@pytest.mark.parametrize(
    "error", [DeliveryTimeoutError("scored", 0, 1, 120_000, True), KafkaTimeoutError("no room")]
)
def test_brokers_that_are_away_for_long_end_the_session_and_not_the_job(scene, error):
    scene.call(P0, E1, b"a")
    scene.sessions.fail(scene.sessions.present, error)
    assert scene.sessions.report().aborted == 1
    assert scene.final == []


def test_a_result_written_in_part_aborts_and_is_not_begun_again(monkeypatch):
    scene = Scene(monkeypatch, sinks=("first", "second"))
    scene.orders(S1, {P0: E1})

    def refuse():
        scene.producer.error = MessageTooLargeError("too large") if scene.producer.seen[1:] else None

    scene.producer.before_send = refuse
    assert scene.call(P0, E1, b"a") is LOST
    assert scene.sessions.report().failed == S1
    scene.orders(S2, {P0: E3})
    failure = scene.call(P0, E3, b"a")
    assert isinstance(failure, CallFailed)
    assert isinstance(failure.cause, MessageTooLargeError)
    assert scene.producer.seen == []


def in_parts(batch):
    """Two batches, as a function may return them; the second one is refused by `refuse_second`."""
    batch = batch.select(["key", "value"])
    return [batch.slice(0, 1), batch.slice(1)]


def refuse_second(producer):
    def refuse():
        producer.error = MessageTooLargeError("too large") if producer.seen[1:] else None

    producer.before_send = refuse


def test_a_result_written_in_part_is_not_begun_again_with_records_that_came_meanwhile(scene):
    scene.function._made = in_parts
    refuse_second(scene.producer)
    assert scene.call(P0, E1, b"a", b"b") is LOST
    scene.orders(S2, {P0: E3})
    failure = scene.call(P0, E3, b"a", b"b", b"came meanwhile")
    assert isinstance(failure, CallFailed)
    assert isinstance(failure.cause, MessageTooLargeError)
    assert (failure.first, failure.last) == (100, 102)
    assert scene.producer.seen == []


def test_parts_of_such_a_result_are_written_and_others_too(scene):
    scene.function._made = in_parts
    refuse_second(scene.producer)
    assert scene.call(P0, E1, b"a", b"b") is LOST
    scene.function._made = lambda batch: batch.select(["key", "value"])
    scene.orders(S2, {P0: E3, P1: E3})
    assert scene.call(P0, E3, b"a") is None
    assert scene.call(P1, E3, b"of another partition", b"too") is None
    assert scene.call(P0, E3, b"b", b"came meanwhile", first=101) is None


def test_what_is_committed_is_forgotten(scene):
    scene.function._made = in_parts
    refuse_second(scene.producer)
    assert scene.call(P0, E1, b"a", b"b") is LOST
    scene.function._made = lambda batch: batch.select(["key", "value"])
    scene.orders(S2, {P0: E3})
    assert scene.call(P0, E3, b"a") is None
    scene.committed()
    assert scene.sessions._refused
    assert scene.call(P0, E3, b"b", first=101) is None
    scene.committed()
    assert not scene.sessions._refused


def test_messages_before_the_one_that_failed_are_written(monkeypatch):
    scene = Scene(monkeypatch, unit="message")
    scene.orders(S1, {P0: E1})
    scene.function._made = lambda message: (
        None if message.offset == 101 else pa.table({"value": [message.value]})
    )
    scene.function.call(rows(P0, 100, b"a", b"b"))
    failed = CallFailed(ValueError("no"), 101, 101)
    assert scene.put_out(P0, E1, failed) is failed
    assert scene.producer.seen == ["begin", ("scored", [b"a"])]


def test_while_halving_nothing_of_a_failed_part_is_written(monkeypatch):
    scene = Scene(monkeypatch, unit="message")
    scene.orders(S1, {P0: E1})
    scene.function._made = lambda message: pa.table({"value": [message.value]})
    scene.function.call(rows(P0, 100, b"a", b"b"))
    failed = CallFailed(ValueError("no"), 102, 102)
    assert scene.put_out(P0, E1, failed, partly=False) is failed
    assert scene.producer.seen == []
