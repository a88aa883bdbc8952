"""The driver of the fetch machine: order of answers, failed pulls, look-ups, wake-ups and metrics, with a machine that notes its inputs."""

import asyncio
import logging
import threading
from types import SimpleNamespace

import pytest
from fakes.loop import in_loop, turns, turns_until

from kafka_actors.base.machine import Ready
from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import (
    AuthenticationError,
    ClientError,
    DisconnectedError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.events import NoCommittedOffset
from kafka_actors.fetch.fetch_driver import FetchDriver, FetchTelemetry
from kafka_actors.fetch.machines.positions import EpochValidation
from kafka_actors.fetch.machines.pull_stream import EndPull, PullToSend
from kafka_actors.fetch.machines.resets import LookupKind, OffsetLookup
from kafka_actors.fetch.messages import FetchReply, Pull
from kafka_actors.telemetry.tally import Tally
from kafka_actors.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
EVENT = NoCommittedOffset("t", 0, 5, "earliest")


class Machine:
    """Asks for what the test says, once, and notes what it hears."""

    def __init__(self):
        self.wants = []
        self.has_something = False
        self.polls = self.rewound = 0
        self.replies, self.failures, self.offsets, self.epoch_ends = [], [], [], []

    def poll(self, now):
        self.polls += 1
        return self.wants.pop(0) if self.wants else Ready()

    def on_reply(self, pull, reply, records, now):
        self.replies.append((pull.token, reply.sequence))

    def rewind(self):
        self.rewound += 1

    def on_pull_failed(self, pull, error, now, *, sent=True):
        self.failures.append((pull.pull.sequence, error, sent))

    def on_offset(self, lookup, found, now):
        self.offsets.append((lookup.tp, found))

    def on_epoch_end(self, tp, version, found, now):
        self.epoch_ends.append((tp, version, found))


class Source:
    """A broker that answers when the test says so."""

    def __init__(self):
        self.pulls = {}
        self.queued = {}

    def fetch(self, pull, answered, queued):
        self.pulls[pull.sequence] = answered
        self.queued[pull.sequence] = queued

    def answer(self, sequence, error=None, **more):
        take = self.pulls[sequence] if more.get("more") else self.pulls.pop(sequence)
        take(error or (FetchReply(1, sequence, [], **{"seconds": 0.1, **more}), []))


class Lookups:
    """A client whose answers are those of the test, or one error."""

    def __init__(self):
        self.offsets, self.epochs, self.error = {}, {}, None
        self.silent = None
        self.wanted = []

    async def list_offsets(self, partitions, *, isolation_level, leader_epochs=None):
        self.wanted.append((isolation_level, dict(partitions)))
        return await self.answered(self.offsets, partitions)

    async def offsets_for_leader_epoch(self, partitions):
        self.wanted.append(dict(partitions))
        return await self.answered(self.epochs, partitions)

    async def answered(self, answers, partitions):
        if self.silent in partitions:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return {tp: answers[tp] for tp in partitions}


class Scene:
    """A driver in the running loop, whose clock stands still."""

    def __init__(self, **options):
        self.machine, self.source, self.lookups, self.tally = Machine(), Source(), Lookups(), Tally()
        self.sources = {1: self.source}
        self.located, self.events, self.woken, self.refreshed = [], [], 0, 0
        self.driver = FetchDriver(
            self.machine,
            threading.RLock(),
            ConsumerConfig(**options),
            sources=self.locate,
            lookups=self.lookups,
            request_metadata=self.refresh,
            events=self.events.append,
            on_records=self.records,
            meter=FetchTelemetry(self.tally, "g"),
            clock=lambda: 100.0,
            wall_clock=lambda: 1_000.0,
        )
        self.driver.start()

    def locate(self, broker):
        self.located.append(broker)
        return self.sources.get(broker)

    def refresh(self):
        self.refreshed += 1

    def records(self):
        self.woken += 1

    async def want(self, *actions, events=(), next_wake=None):
        """Has the machine ask for this at its next poll, and polls it."""
        self.machine.wants.append(Ready(actions=actions, events=events, next_wake=next_wake))
        self.driver.soon()
        await turns(5)


def from_another_thread(call):
    """Makes a call as the thread of a source does that has received a response."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def pull(sequence, broker=1, token=7):
    return PullToSend(broker, token, Pull(sequence))


# ------------------------------------------------------------ pulls


@in_loop
async def test_an_answer_that_came_first_waits_for_the_one_before_it_and_for_no_other_stream():
    scene = Scene()
    await scene.want(pull(0), pull(1))
    await scene.want(pull(5, token=8))
    scene.source.answer(1)
    scene.source.answer(5)
    assert scene.machine.replies == [(8, 5)]
    scene.source.answer(0)
    assert scene.machine.replies == [(8, 5), (7, 0), (7, 1)]


@in_loop
async def test_the_machine_is_polled_for_the_next_pull_as_soon_as_a_reply_is_in():
    scene = Scene()
    await scene.want(pull(0))
    scene.machine.wants.append(Ready(actions=(pull(1),)))
    scene.source.answer(0)
    assert list(scene.source.pulls) == [1], "in the thread that brought the reply, without a turn of the loop"


@in_loop
async def test_a_broker_without_a_connection_fails_its_pull_as_one_that_was_not_sent():
    scene = Scene()
    scene.sources.clear()
    await scene.want(pull(0))
    [(sequence, error, sent)] = scene.machine.failures
    assert (sequence, sent) == (0, False)
    assert "no connection to broker 1" in str(error)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DisconnectedError("reset"), ClientError),
        (OSError("no route"), ClientError),
        (AuthenticationError("wrong password"), AuthenticationError),
    ],
)
@in_loop
async def test_a_pull_that_fails_is_told_of_and_the_broker_is_located_anew(error, kind):
    scene = Scene()
    await scene.want(pull(0))
    polls = scene.machine.polls
    scene.source.answer(0, error)
    [(sequence, told, sent)] = scene.machine.failures
    assert (sequence, type(told), str(told), sent) == (0, kind, str(error), True)
    await turns_until(lambda: scene.machine.polls > polls)
    scene.sources[1] = anew = Source()
    scene.machine.wants.append(Ready(actions=(pull(1),)))
    from_another_thread(scene.driver._turn)
    assert scene.source.pulls == {}, "its connection is the one that failed"
    await turns_until(lambda: list(anew.pulls) == [1])


@in_loop
async def test_an_error_that_nobody_expects_is_logged_with_its_traceback_and_ends_only_its_pull(caplog):
    scene = Scene()
    await scene.want(pull(0))
    scene.source.answer(0, ZeroDivisionError("a defect"))
    assert len(scene.machine.failures) == 1
    [record] = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.exc_info[1].args == ("a defect",)
    await scene.want(pull(1))
    assert list(scene.source.pulls) == [1]


@in_loop
async def test_from_another_thread_a_pull_to_a_known_broker_is_sent_there_and_any_other_in_the_loop():
    scene = Scene()
    scene.sources[2] = other = Source()
    await scene.want(pull(0))
    scene.machine.wants.append(Ready(actions=(pull(1), pull(0, broker=2, token=8))))
    from_another_thread(lambda: scene.source.answer(0))
    assert (list(scene.source.pulls), list(other.pulls)) == ([1], [])
    await turns_until(lambda: list(other.pulls) == [0])
    assert scene.located == [1, 2]


class Queue:
    """The queue of a pull, which a test fills."""

    def __init__(self, sequence):
        self._sequence = sequence
        self._answers = []
        self.interrupted = 0
        self.error = None

    def put(self, *sizes):
        self._answers += [
            (FetchReply(1, self._sequence, [], size=size, seconds=0.1, more=True), []) for size in sizes
        ]
        self.wake()

    def drain(self):
        error, self.error = self.error, None
        if error is not None:
            raise error
        answers, self._answers = self._answers, []
        return answers

    def interrupt(self):
        self.interrupted += 1


async def with_queue():
    """A scene with a pull that has had its first answer, and will have others."""
    scene = Scene()
    await scene.want(pull(0))
    queue = Queue(0)
    scene.source.queued[0](queue)
    scene.source.answer(0, more=True)
    assert scene.machine.replies == [(7, 0)]
    return scene, queue


@in_loop
async def test_answers_in_a_queue_are_taken_when_the_machine_is_needed_and_before_the_last_one():
    scene, queue = await with_queue()
    woken, polls = scene.woken, scene.machine.polls
    from_another_thread(lambda: queue.put(1, 2))
    assert scene.woken > woken, "whoever waits for records may take them"
    assert (scene.machine.polls, len(scene.machine.replies)) == (polls, 1), (
        "and costs its thread nothing else"
    )
    with scene.driver.present():
        assert scene.machine.replies == [(7, 0)] * 3
    queue.put(3)
    await scene.want()
    assert len(scene.machine.replies) == 4, "a poll takes them, too"
    queue.put(4)
    scene.source.answer(0)
    assert len(scene.machine.replies) == 6
    queue.put(5)
    await scene.want()
    assert len(scene.machine.replies) == 6, "behind its last answer a pull has no queue"


@in_loop
async def test_a_pull_that_is_to_end_is_interrupted_and_no_other_is():
    scene, queue = await with_queue()
    await scene.want(EndPull(8))
    assert queue.interrupted == 0
    await scene.want(EndPull(7))
    assert queue.interrupted == 1


@in_loop
async def test_an_interrupt_while_answers_are_taken_has_all_records_fetched_again():
    scene, queue = await with_queue()
    queue.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt), scene.driver.present():
        pass
    assert scene.machine.rewound == 1


@in_loop
async def test_answers_that_memory_was_lacking_for_are_fetched_again_and_the_last_one_counts_all_the_same(
    caplog,
):
    """A pull without its last answer would keep its stream waiting for ever."""
    scene, queue = await with_queue()
    queue.error = MemoryError()
    scene.source.answer(0)
    assert scene.machine.rewound == 1
    assert scene.machine.replies == [(7, 0)] * 2
    assert "could not be taken" in caplog.text


# ------------------------------------------------------------ look-ups and metadata


@in_loop
async def test_offsets_are_looked_up_at_the_isolation_level_of_the_consumer():
    scene = Scene(isolation_level="read_committed")
    scene.lookups.offsets = {
        P0: SimpleNamespace(offset=5, leader_epoch=3),
        P1: UnknownTopicOrPartitionError(topic="t", partition=1),
    }
    await scene.want(OffsetLookup(P0, 1, LookupKind.LATEST), OffsetLookup(P1, 1, LookupKind.LATEST))
    await turns_until(lambda: len(scene.machine.offsets) == 2)
    found = dict(scene.machine.offsets)
    assert found[P0] == (5, 3)
    assert isinstance(found[P1], UnknownTopicOrPartitionError)
    assert scene.lookups.wanted == [("read_committed", {P0: -1, P1: -1})]


@in_loop
async def test_a_leader_that_does_not_answer_holds_up_its_own_partitions_alone():
    """A frozen broker costs `request_timeout_ms`; the partitions of the others begin meanwhile."""
    scene = Scene()
    scene.lookups.offsets = {P1: SimpleNamespace(offset=5, leader_epoch=3)}
    scene.lookups.epochs = {P1: SimpleNamespace(leader_epoch=2, end_offset=50)}
    scene.lookups.silent = P0
    await scene.want(
        OffsetLookup(P0, 1, LookupKind.LATEST, leader=1),
        OffsetLookup(P1, 1, LookupKind.LATEST, leader=2),
        EpochValidation(P0, 4, 3, 2, leader=1),
        EpochValidation(P1, 4, 3, 2, leader=2),
    )
    await turns_until(lambda: scene.machine.offsets == [(P1, (5, 3))])
    await turns_until(lambda: scene.machine.epoch_ends == [(P1, 4, (2, 50))])


@in_loop
async def test_a_look_up_that_fails_as_a_whole_is_an_error_of_each_partition_and_the_machine_goes_on():
    scene = Scene()
    scene.lookups.error = KafkaTimeoutError("too late")
    await scene.want(
        OffsetLookup(P0, 1, LookupKind.LATEST),
        OffsetLookup(P1, 1, LookupKind.EARLIEST),
        EpochValidation(P0, 4, 3, 2),
    )
    polls = scene.machine.polls
    await turns_until(lambda: len(scene.machine.offsets) == 2 and len(scene.machine.epoch_ends) == 1)
    assert {type(found) for _, found in scene.machine.offsets} == {KafkaTimeoutError}
    assert scene.machine.epoch_ends == [(P0, 4, scene.lookups.error)]
    await turns_until(lambda: scene.machine.polls > polls)


@in_loop
async def test_the_end_of_an_epoch_is_looked_up_with_the_present_epoch_of_the_leader():
    scene = Scene()
    scene.lookups.epochs = {P0: SimpleNamespace(leader_epoch=2, end_offset=50)}
    await scene.want(EpochValidation(P0, 4, 3, 2))
    await turns_until(lambda: scene.machine.epoch_ends == [(P0, 4, (2, 50))])
    assert scene.lookups.wanted == [{P0: (3, 2)}]


@in_loop
async def test_metadata_is_requested_where_the_machine_wants_it():
    scene = Scene()
    await scene.want(RefreshMetadata())
    assert scene.refreshed == 1


# ------------------------------------------------------------ events, records and time


@in_loop
async def test_events_are_published_before_records_behind_them_are_taken():
    scene = Scene()
    scene.machine.wants.append(Ready(events=(EVENT,)))
    from_another_thread(scene.driver._turn)
    assert (scene.driver.events_pending, scene.events) == (True, [])
    await turns_until(lambda: scene.events == [EVENT])
    assert not scene.driver.events_pending
    assert scene.woken == 1, "records that waited for the event may be taken"


@in_loop
async def test_an_event_that_its_sink_refuses_holds_no_records_up():
    scene = Scene()
    scene.driver._events = lambda event: 1 / 0
    scene.machine.wants.append(Ready(events=(EVENT,)))
    with pytest.raises(ZeroDivisionError):
        scene.driver._turn()
    assert not scene.driver.events_pending


@in_loop
async def test_who_waits_for_records_is_woken_only_where_there_are_some():
    scene = Scene()
    await scene.want()
    assert scene.woken == 0
    scene.machine.has_something = True
    await scene.want()
    assert scene.woken == 1


@in_loop
async def test_many_demands_for_a_poll_are_one():
    scene = Scene()
    await turns(3)
    polls = scene.machine.polls
    for _ in range(5):
        scene.driver.soon()
    await turns(3)
    assert scene.machine.polls == polls + 1


@in_loop
async def test_the_machine_is_polled_when_it_wants_to_be_and_an_earlier_time_replaces_a_later_one(
    monkeypatch,
):
    scene = Scene()
    await turns(3)
    timers = []

    def call_later(seconds, call):
        timer = SimpleNamespace(seconds=seconds, fire=call, cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        timers.append(timer)
        return timer

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
    for wake in (105.0, 107.0, 102.0, 99.0):
        await scene.want(next_wake=wake)
    assert [(t.seconds, t.cancelled) for t in timers] == [(5.0, True), (2.0, True), (0.0, False)]
    polls = scene.machine.polls
    timers[-1].fire()
    assert scene.machine.polls == polls + 1
    await scene.want(next_wake=130.0)
    assert [t.seconds for t in timers[3:]] == [30.0], "the one that fired is not taken for an earlier one"


@in_loop
async def test_after_the_end_nothing_is_polled_answered_or_looked_up():
    scene = Scene()
    hanging = asyncio.Event()

    async def never(partitions):
        await hanging.wait()

    scene.lookups.offsets_for_leader_epoch = never
    await scene.want(pull(0), EpochValidation(P0, 4, 3, 2))
    polls = scene.machine.polls
    scene.driver.soon()  # the turn that this schedules comes behind the end
    await scene.driver.close()
    assert not scene.driver._tasks, "the look-up that hung was cancelled"
    scene.source.answer(0)
    scene.driver.soon()
    await turns(5)
    assert (scene.machine.replies, scene.machine.polls) == ([], polls)


# ------------------------------------------------------------ metrics


@in_loop
async def test_bytes_and_failures_are_counted_by_group_and_broker_once_its_address_is_known():
    scene = Scene()
    await scene.want(pull(0), pull(1))
    scene.source.answer(0, size=10)
    scene.driver._meter.follow(ClusterSnapshot(brokers={1: BrokerMetadata(1, "b1", 9092)}))
    scene.source.answer(1, size=32)
    await scene.want(pull(2), pull(3))
    scene.source.answer(2, size=500, seconds=0.0)  # another worker has fetched it
    scene.source.answer(3, DisconnectedError("reset"))
    counts = {(c.name, dict(c.attributes).get("server.address")): c for c in scene.tally.state().counts}
    assert {name: point.value for name, point in counts.items()} == {
        ("kafka_actors.fetch.size", None): 10,
        ("kafka_actors.fetch.size", "b1"): 32,
        ("kafka_actors.fetch.failures", "b1"): 1,
    }
    failed = dict(counts["kafka_actors.fetch.failures", "b1"].attributes)
    assert "g" in failed.values()
    assert "DisconnectedError" in failed["error.type"]
