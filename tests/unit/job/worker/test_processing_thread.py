"""The processing thread: what is called in which order, and which offsets that moves. The clock stands unless a test moves it."""

import asyncio
import itertools
import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest
from fakes.loop import turns

from kafka_actors.errors import KafkaTimeoutError, ProcessError, StageError, UsageError
from kafka_actors.fetch import FetchedBytes
from kafka_actors.fetch.machines.buffer import PartitionSlice
from kafka_actors.fetch.messages import FetchedPartition
from kafka_actors.job.machines.lease import Lease
from kafka_actors.job.messages import CommitEntry, DeathsInCall, Drain, Grant, Orders
from kafka_actors.job.worker.calls import WaitFor
from kafka_actors.job.worker.machines.worker_assignment import WorkerAssignment
from kafka_actors.job.worker.processing_thread import IDLE_S, ProcessingThread
from kafka_actors.job.worker.user_function import FunctionSpec, UserFunction
from kafka_actors.records import Chunk
from kafka_actors.telemetry.machines.latency import quantile
from kafka_actors.telemetry.tally import Tally
from kafka_actors.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = (1, 1)
MADE_US = 1_700_000_000_000_000
SOON_S = 10


def batch(partition, first, last):
    size = last - first
    return pa.record_batch(
        {
            "value": pa.array([b"v"] * size, pa.binary()),
            "topic": ["t"] * size,
            "partition": pa.array([partition] * size, pa.int32()),
            "offset": pa.array(range(first, last), pa.int64()),
            "timestamp": pa.array([MADE_US] * size, pa.timestamp("us", tz="UTC")),
        }
    )


def fetched(tp, first, last, epoch=EPOCH):
    return FetchedBytes(
        tp, [PartitionSlice(memoryview(b""), FetchedPartition(*tp, epoch, first, last), None)]
    )


class Source:
    """One chunk for each fetch; `waiting_items` come after what is at hand, `newcomers` between two calls."""

    def __init__(self):
        self.waiting_items = []
        self.newcomers = []
        self.consumed_items = []
        self.half_way = {}
        self.paused = {}
        self.revoked = set()

    def unpack(self, item):
        return iter(())

    def decode(self, item, unpacked):
        yield Chunk(batch(item.partition.partition, item.fetch_offset, item.next_offset), item.next_offset, 3)

    def position_epoch(self, tp):
        return 2

    def take(self):
        return self.waiting_items.pop(0) if self.waiting_items else None

    def take_more(self):
        return None

    def waiting(self):
        return [item.partition for item in self.waiting_items]

    @property
    def newcomer(self):
        return bool(self.newcomers)

    def take_newcomer(self):
        return self.newcomers.pop(0) if self.newcomers else None

    def consumed(self, item, next_offset=None):
        if next_offset is None:
            self.consumed_items.append(item)
        else:
            self.half_way[item.partition] = (item, next_offset)

    def put_back(self, partition):
        item, position = self.half_way.pop(partition)
        if partition not in self.revoked:
            self.waiting_items.append(fetched(partition, position, item.next_offset))

    def pause(self, partitions):
        self._check(partitions)
        for partition in partitions:
            self.paused[partition] = [item for item in self.waiting_items if item.partition == partition]
        self.waiting_items = [item for item in self.waiting_items if item.partition not in self.paused]

    def _check(self, partitions):
        if self.revoked.intersection(partitions):
            raise UsageError("is not assigned")

    def resume(self, partitions):
        self._check(partitions)
        for partition in partitions:
            self.waiting_items += self.paused.pop(partition)


class Stage:
    """A processing that holds two partitions, and whose function notes what it is given."""

    def __init__(self, target=None, *, rows=None, linger=0.0, retries=0, on_error="fail"):
        self.calls, self.now, self.source, self.tally = [], 100.0, Source(), Tally()
        self.assignment, lease = WorkerAssignment(), Lease()
        lease.renew(self.now, 60.0)
        processor = UserFunction(FunctionSpec(target or self.note, "batch", retries, on_error))
        processor.make()
        self.processing = ProcessingThread(
            processor,
            self.assignment,
            lease,
            self.source,
            lock=threading.Lock(),
            batch_rows=rows,
            linger_s=linger,
            events=lambda event: None,
            on_progress=lambda ended: None,
            recorder=self.tally,
            group="g",
            clock=lambda: self.now,
            wall=lambda: MADE_US / 1e6 + self.now - 100.0,
        )
        self.orders([Grant(p, EPOCH) for p in (P0, P1)])

    def note(self, rows):
        offsets = rows["offset"].to_pylist()
        self.calls.append((rows["partition"][0].as_py(), offsets[0], offsets[-1] + 1))

    def orders(self, grants, draining=()):
        self.assignment.apply(Orders((1, self.assignment.seen[1] + 1), list(grants), list(draining), 60.0))

    def processed(self, partition):
        return self.assignment.held[partition].processed


def test_a_call_that_returned_moves_the_offset_to_commit():
    stage, item = Stage(), fetched(P0, 5, 9)
    stage.processing.work(item)
    assert stage.calls == [(0, 5, 9)]
    assert stage.assignment.commits() == [CommitEntry(P0, EPOCH, 9, 3)]
    assert stage.source.consumed_items == [item]


def test_the_time_at_work_is_that_with_something_at_hand():
    stage = Stage()
    processing = stage.processing

    def take_a_while(rows):
        stage.note(rows)
        stage.now += 2.0
        assert processing.counters.work_s(stage.now) == 2.0 * len(stage.calls)

    processing._function._made = take_a_while
    stage.source.waiting_items = [fetched(P1, 0, 3)]
    processing.work(fetched(P0, 5, 9))
    stage.now += 30.0
    assert processing.counters.work_s(stage.now) == 4.0
    processing.work(fetched(P0, 9, 12))
    assert processing.counters.work_s(stage.now) == 6.0


@pytest.fixture
def running(monkeypatch):
    """A stage whose processing runs in a thread of its own, and waits long where nothing wakes it."""
    monkeypatch.setattr("kafka_actors.job.worker.processing_thread.IDLE_S", SOON_S)
    stage = Stage(rows=4, linger=5.0)
    called, note = threading.Event(), stage.note

    def noted(rows):
        note(rows)
        called.set()

    stage.processing._function._made = noted
    stage.called = called
    thread = threading.Thread(target=stage.processing.run)
    thread.start()
    yield stage
    stage.processing.stop()
    thread.join(SOON_S)
    assert not thread.is_alive()


def test_the_thread_waits_for_what_comes(running):
    for number in range(3):
        running.source.waiting_items.append(fetched(P0, 4 * number, 4 * number + 4))
        running.processing.wake()
        assert running.called.wait(SOON_S / 2)
        running.called.clear()
    assert running.calls == [(0, 0, 4), (0, 4, 8), (0, 8, 12)]


def test_what_a_linger_held_back_long_enough_is_processed_though_nothing_comes(running):
    running.source.waiting_items.append(fetched(P0, 0, 2))
    running.processing.wake()
    for _ in range(1_000):  # the thread takes the records in its own time
        if running.processing.lingering():
            break
        assert not running.called.wait(0.01)
    assert running.processing.lingering()
    running.now += 5.0
    running.processing.wake()
    assert running.called.wait(SOON_S / 2)
    assert running.calls == [(0, 0, 2)]


@pytest.mark.parametrize("why", ["paused", "no lease"])
def test_a_thread_that_may_make_no_call_is_stopped_all_the_same(why):
    """A worker that is closed may hold what nobody drained: the job has failed, or was given up."""
    stage = Stage()
    stage.processing.paused = why == "paused"
    stage.now += 61.0 if why == "no lease" else 0.0
    steps = stage.processing._steps(fetched(P0, 0, 4), None)
    assert [type(step) for step in itertools.islice(steps, 3)] == [WaitFor, WaitFor, WaitFor]
    assert stage.processing.counters.blocked(P0) == why
    stage.processing.stop()
    assert list(itertools.islice(steps, 3)) == []
    assert stage.processed(P0) == 0


def test_latency_is_from_the_timestamp_to_the_end_of_the_call_that_processed_it():
    stage = Stage()

    def take_a_while(rows):
        stage.now += 2.0

    stage.processing._function._made = take_a_while
    stage.processing.work(fetched(P0, 0, 1_000))
    stage.processing.work(fetched(P0, 1_000, 1_001))
    latency = stage.processing.counters.latency
    assert sum(latency.counts.values()) == 1_001
    assert quantile(latency.counts, 0.5) == pytest.approx(2_000, rel=0.2)
    assert quantile(latency.counts, 1.0) == pytest.approx(4_000, rel=0.2)


def test_a_failed_call_has_processed_nothing_so_it_has_no_latency():
    stage = Stage(refuse, on_error="skip")
    stage.processing.work(fetched(P0, 0, 10))
    assert stage.processing.counters.latency.counts == {}


def refuse(rows):
    raise ValueError("no")


def test_other_partitions_go_on_while_a_failed_call_waits():
    """The partition is called again when it is due, from the record that failed, and takes its place among the others."""
    failures = [ValueError("first"), ValueError("second")]

    def fails_at_5(rows):
        stage.note(rows)
        if stage.calls[-1] == (0, 5, 10) and failures:
            raise failures.pop(0)

    stage = Stage(fails_at_5, rows=5, retries=3)
    stage.source.waiting_items = [fetched(P1, 0, 10)]
    stage.processing.work(fetched(P0, 0, 10))
    assert stage.calls == [(0, 0, 5), (0, 5, 10), (1, 0, 5), (1, 5, 10)]
    assert stage.processing.idle_s() == pytest.approx(0.1)
    stage.processing.work(None)  # too early
    assert len(stage.calls) == 4
    stage.now += 0.1
    assert stage.processing.idle_s() == 0
    stage.processing.work(None)
    assert stage.calls[4:] == [(0, 5, 10)]
    assert stage.processing.idle_s() == pytest.approx(0.2)
    stage.now += 0.2
    stage.processing.work(None)
    assert stage.calls[5:] == [(0, 5, 10)]
    assert stage.processed(P0) == 10
    assert stage.source.paused == {}


def test_a_partition_that_goes_to_another_worker_waits_for_nothing_here():
    stage = Stage(refuse, retries=3)
    stage.processing.work(fetched(P0, 0, 10))
    assert stage.processing.idle_s() == pytest.approx(0.1)
    stage.processing.forget([P0])
    stage.now += 1
    assert stage.processing.idle_s() == IDLE_S
    assert list(stage.source.paused) == [P0], "its records are dropped with it"


@pytest.mark.parametrize("when", ["before it is set aside", "while it waits"])
def test_a_partition_may_be_revoked_at_any_moment_of_its_wait(when):
    """The worker's loop does that beside this thread, and only then has it forgotten."""
    stage = Stage(refuse, retries=3)
    if when == "before it is set aside":
        stage.source.revoked.add(P0)
    stage.processing.work(fetched(P0, 0, 10))
    stage.source.revoked.add(P0)
    stage.now += 1
    stage.processing.work(None)
    assert stage.processing.idle_s() == IDLE_S


def test_overlapping_calls_of_an_async_function_are_one_time_at_work():
    stage = None

    async def overlap(rows):
        await gate.wait()

    async def scenario():
        nonlocal gate
        gate = asyncio.Event()
        calls = [asyncio.ensure_future(stage.processing.work_async(fetched(p, 0, 3))) for p in (P0, P1)]
        await asyncio.sleep(0)
        stage.now += 5.0
        gate.set()
        await asyncio.gather(*calls)
        stage.now += 5.0

    gate = None
    stage = Stage(overlap)
    asyncio.run(scenario())
    assert stage.processing.counters.work_s(stage.now) == 5.0


def test_what_waits_is_worked_off_at_once_until_the_thread_is_stopped():
    stage = Stage()
    items = [fetched(P1, 0, 3), fetched(P0, 9, 12), fetched(P1, 3, 6)]
    stage.source.waiting_items = list(items)

    def note_three(rows):
        stage.note(rows)
        if len(stage.calls) == 3:
            stage.processing.stop()

    stage.processing._function._made = note_three
    stage.processing.work(fetched(P0, 5, 9))
    assert stage.calls == [(0, 5, 9), (1, 0, 3), (0, 9, 12)]
    assert stage.source.consumed_items[1:] == [items[0], items[1]]
    assert stage.source.waiting_items == [items[-1]]


def test_what_a_linger_holds_back_does_not_pass_for_where_the_partition_starts():
    stage = Stage(rows=10, linger=1.0)
    stage.processing.work(fetched(P0, 5, 9))
    assert stage.calls == []
    stage.assignment.positioned(P0, 9)  # the fetcher's position, once the bytes are consumed
    assert stage.processed(P0) == 5


def test_what_is_left_half_way_when_a_partition_drains_is_not_consumed():
    stage = Stage()
    drained = [Drain(P0, EPOCH)]
    stage.processing._function._made = lambda rows: stage.orders([Grant(P1, EPOCH)], drained)
    stage.processing._batch_rows = 2
    stage.processing.work(fetched(P0, 0, 6))
    assert stage.processed(P0) == 2, "the call in hand was finished, the rest was not begun"
    assert stage.source.consumed_items == []


def test_bytes_of_a_former_epoch_move_nothing():
    stage = Stage()
    stage.orders([Grant(P0, (1, 9)), Grant(P1, EPOCH)])
    stage.processing.work(fetched(P0, 70, 80, epoch=EPOCH))
    assert stage.calls == []
    assert stage.processed(P0) is None


def test_a_call_on_records_from_before_a_reset_does_not_move_the_offset_back():
    stage = Stage(rows=2)

    def reset_meanwhile(rows):
        if not stage.calls:
            stage.assignment.positioned(P0, 0, rewind=True)
        stage.note(rows)

    stage.processing._function._made = reset_meanwhile
    stage.processing.work(fetched(P0, 5, 9))
    assert stage.processed(P0) == 0
    stage.processing.work(fetched(P0, 0, 2))
    assert stage.processed(P0) == 2


def test_a_newcomer_has_its_turn_between_two_calls_and_is_consumed():
    stage = Stage(rows=2)
    item, first = fetched(P1, 40, 42), fetched(P0, 0, 4)
    stage.source.newcomers = [item]
    stage.processing.work(first)
    assert stage.calls == [(1, 40, 42), (0, 0, 2), (0, 2, 4)]
    assert stage.source.consumed_items == [item, first]


def test_the_order_within_a_partition_holds_when_a_newcomer_comes_while_more_is_held_back():
    stage = Stage(rows=2, linger=0.5)

    def note_and_wait(rows):
        stage.note(rows)
        stage.now += 1.0
        if len(stage.calls) == 1:
            stage.source.newcomers = [fetched(P1, 40, 42)]

    stage.processing._function._made = note_and_wait
    stage.processing.work(fetched(P0, 0, 5))
    stage.processing.work(None)
    assert stage.calls == [(0, 0, 2), (1, 40, 42), (0, 2, 4), (0, 4, 5)]


def test_what_is_overdue_goes_before_other_records_that_are_always_at_hand():
    stage = Stage(rows=10, linger=1.0)
    stage.processing.work(fetched(P0, 0, 4))
    stage.now += 1.0
    stage.processing.work(fetched(P1, 0, 10))
    assert stage.calls == [(0, 0, 4), (1, 0, 10)]


def test_async_calls_of_one_partition_are_asked_for_one_by_one():
    calls = []

    async def process(rows):
        calls.append(rows["partition"][0].as_py())

    stage = Stage(process, rows=10, linger=1.0)

    async def main():
        await stage.processing.work_async(fetched(P0, 0, 4))
        await stage.processing.work_async(fetched(P1, 0, 4))
        assert stage.processing.lingering() == {P0: 101.0, P1: 101.0}
        stage.now += 1.0
        await stage.processing.work_async(P1)
        assert calls == [1], "the other partition may be worked on by somebody else at this moment"
        await stage.processing.work_async(P0)

    asyncio.run(main())
    assert calls == [1, 0]
    assert stage.processing.lingering() == {}


def test_the_first_offset_of_what_failed_is_what_is_committed():
    def raises(rows):
        if 4 in rows["offset"].to_pylist():
            raise ValueError("four")

    stage = Stage(raises, rows=2)
    with pytest.raises(ProcessError) as failed:
        stage.processing.work(fetched(P0, 0, 8))
    assert (failed.value.first_offset, failed.value.last_offset, failed.value.attempts) == (4, 5, 1)
    assert str(failed.value).endswith(f"{type(failed.value.__cause__).__name__}: {failed.value.__cause__}")
    assert stage.assignment.commits() == [CommitEntry(P0, EPOCH, 4, 3)]
    assert stage.source.consumed_items == []


@pytest.mark.parametrize("failure", [SystemExit(3), asyncio.CancelledError()])
def test_what_would_end_the_loop_of_an_actor_is_a_failure_of_the_call(failure):
    def raises(rows):
        raise failure

    with pytest.raises(ProcessError) as failed:
        Stage(raises).processing.work(fetched(P0, 0, 8))
    assert failed.value.__cause__ is failure


class FakeDeadLetters:
    """In place of a worker's outputs: notes dead letters, or refuses them."""

    dead_letter_topic = "dead"
    has_sink = False

    def __init__(self, error=None):
        self.error = error
        self.seen = []

    def open(self):
        pass

    def dead_letter(self, records, error):
        if self.error is not None:
            raise self.error
        self.seen.append((records["offset"].to_pylist(), str(error)))


def refusing(rows):
    if 7 in rows["offset"].to_pylist():
        raise ValueError("no good")


def test_dead_letters_are_given_out_before_the_offset_moves():
    stage = Stage(refusing, rows=2, on_error="dead_letter")
    letters = stage.processing._function.outputs = FakeDeadLetters()
    stage.processing.work(fetched(P0, 4, 10))
    assert letters.seen == [([7], "no good")], "what is in order was found by halves"
    assert stage.processed(P0) == 10


def test_a_dead_letter_that_cannot_be_sent_halts_its_partition_there():
    stage = Stage(refusing, rows=2, on_error="dead_letter")
    stage.processing._function.outputs = FakeDeadLetters(KafkaTimeoutError("no room"))
    with pytest.raises(KafkaTimeoutError):
        stage.processing.work(fetched(P0, 4, 10))
    assert stage.assignment.commits() == [CommitEntry(P0, EPOCH, 7, 3)]
    assert not stage.assignment.active(P0, EPOCH)


BAD = (0, 1, 17, 30_000, 30_001, 59_999)


def bad_ones(rows):
    bad = [o for o in rows["offset"].to_pylist() if o in BAD]
    if bad:
        raise ValueError("worst" if bad[0] == 30_001 else "bad")


@pytest.mark.parametrize("kind", ["function", "async function"])
def test_dead_letters_are_the_records_at_fault_not_whole_batches(kind):
    async def bad_ones_async(rows):
        bad_ones(rows)

    stage = Stage(bad_ones if kind == "function" else bad_ones_async, on_error="dead_letter")
    letters = stage.processing._function.outputs = FakeDeadLetters()
    item = fetched(P0, 0, 60_000)
    if kind == "function":
        stage.processing.work(item)
    else:
        asyncio.run(stage.processing.work_async(item))
    assert letters.seen == [
        ([0, 1], "bad"),
        ([17], "bad"),
        ([30_000], "bad"),
        ([30_001], "worst"),
        ([59_999], "bad"),
    ]
    assert stage.processed(P0) == 60_000
    assert stage.processing.counters.records == 60_000 - len(BAD)


def test_a_function_that_fails_for_everything_is_not_asked_for_each_record():
    stage = Stage(on_error="dead_letter")

    def fail(rows):
        stage.note(rows)
        raise ValueError("service down")

    stage.processing._function._made = fail
    letters = stage.processing._function.outputs = FakeDeadLetters()
    stage.processing.work(fetched(P0, 0, 60_000))
    assert len(stage.calls) < 150
    assert letters.seen == [(list(range(60_000)), "service down")]


def test_a_partition_that_drains_while_its_bad_records_are_looked_for_is_not_left_in_hand():
    stage = Stage(on_error="dead_letter")
    letters = stage.processing._function.outputs = FakeDeadLetters()

    def drain(rows):
        stage.note(rows)
        if len(stage.calls) == 4:
            stage.orders([Grant(P1, EPOCH)], [Drain(P0, EPOCH)])
        raise ValueError("no good")

    stage.processing._function._made = drain
    stage.processing.work(fetched(P0, 0, 8))
    assert letters.seen == []
    stage.assignment.stop_commits()
    assert stage.assignment.release_drained() == [P0]


def test_a_stages_own_error_is_raised_as_it_is():
    error = StageError("score", "t", 0, 5, 6, 4, "no good")

    def fail(rows):
        raise error

    stage = Stage(fail)
    with pytest.raises(StageError) as raised:
        stage.processing.work(fetched(P0, 5, 9))
    assert raised.value is error
    assert stage.assignment.commits() == [CommitEntry(P0, EPOCH, 5, 2)], "with the epoch in front of it"


def until_all_is_done(stage, item):
    """Works on an item until no failed call of it waits to be made again."""
    stage.processing.work(item)
    while stage.source.paused:
        stage.now += stage.processing.idle_s()
        stage.processing.work(None)


def counted(stage):
    """Counts of the processing: (name, partition or error) → sum; and how many calls took how long."""
    state = stage.tally.state()
    counts = {}
    for point in state.counts:
        attributes = dict(point.attributes)
        assert attributes["messaging.consumer.group.name"] == "g"
        assert attributes["messaging.destination.name"] == "t"
        which = attributes.get("error.type") or attributes["messaging.destination.partition.id"]
        counts[point.name, which] = point.value
    calls = {dict(b.attributes).get("error.type"): (sum(b.counts), sum(b.sums)) for b in state.buckets}
    return counts, calls


def test_messages_count_once_however_often_they_are_tried_and_calls_each_time():
    failures = [ValueError("no"), ValueError("no")]

    def fails_twice(rows):
        stage.now += 0.5
        if failures:
            raise failures.pop()

    stage = Stage(fails_twice, retries=3)
    until_all_is_done(stage, fetched(P0, 5, 9))
    counts, calls = counted(stage)
    assert counts == {
        ("messaging.client.consumed.messages", "0"): 4,
        ("kafka_actors.processed.size", "0"): 4,
        ("kafka_actors.process.retries", "ValueError"): 2,
    }
    assert calls == {None: (1, 0.5), "ValueError": (2, 1.0)}


def test_a_partition_on_which_calls_fail_or_wait_says_why():
    stage = Stage(retries=1)
    blocked = []

    def fails_once(rows):
        blocked.append(stage.processing.counters.blocked(P0))
        if len(blocked) == 1:
            raise ValueError("the text of a user")

    stage.processing._function._made = fails_once
    until_all_is_done(stage, fetched(P0, 5, 9))
    assert blocked == ["", "retrying: offset 5, ValueError"]
    assert stage.processing.counters.blocked(P0) == ""
    stage.processing.paused = True
    steps = stage.processing._steps(fetched(P0, 9, 12), None)
    while not stage.processing.counters.blocked(P0):
        next(steps)
    assert stage.processing.counters.blocked(P0) == "paused"
    stage.processing.counters.forget([P0])
    assert stage.processing.counters.blocked(P0) == ""


def test_a_call_that_is_not_repeated_because_of_a_pause_is_paused():
    progress = Stage().processing.counters
    progress.retrying(P0, SimpleNamespace(cause=ValueError("the text of a user"), first=5))
    assert progress.blocked(P0) == "retrying: offset 5, ValueError"
    progress.waiting(P0, "paused")
    assert progress.blocked(P0) == "paused"
    progress.call_began(P0, 0.0)
    assert progress.blocked(P0) == "retrying: offset 5, ValueError"


def test_any_number_of_newcomers_has_its_turn_before_what_waited():
    """With a call within a call for each, some 490 partitions that get their first records together ended the worker."""
    stage, many = Stage(), [TopicPartition("t", n) for n in range(2_000)]
    stage.orders([Grant(p, EPOCH) for p in many])
    stage.source.newcomers = [fetched(p, 0, 3) for p in many[1:]]
    stage.processing.work(fetched(P0, 0, 3))
    assert stage.calls == [(p.partition, 0, 3) for p in (*many[1:], P0)]


def slow(stage, seconds=0.125):
    """Each call of the stage's function takes so long."""

    def take_a_while(rows):
        stage.note(rows)
        stage.now += seconds

    stage.processing._function._made = take_a_while
    return stage


def test_a_long_queue_of_one_partition_has_its_turns_by_time_as_all_others():
    stage = slow(Stage(rows=2))
    stage.source.waiting_items = [fetched(P1, 0, 40)]
    stage.processing.work(fetched(P0, 0, 40))
    firsts = [partition for partition, _, _ in stage.calls]
    turns = [len(list(same)) for _, same in itertools.groupby(firsts)]
    assert turns == [2] * 20, "a quarter of a second each"
    for partition in (0, 1):
        seen = [(first, last) for at, first, last in stage.calls if at == partition]
        assert [first for first, _ in seen] == [0, *(last for _, last in seen[:-1])], "in order, each once"
        assert seen[-1][1] == 40


def test_a_partition_alone_is_not_put_back():
    stage = slow(Stage(rows=2))
    item = fetched(P0, 0, 40)
    stage.processing.work(item)
    assert stage.source.consumed_items == [item]


def test_the_position_moves_with_each_call_also_within_the_bytes_at_hand():
    stage, positions = Stage(rows=2), []
    stage.processing._function._made = lambda rows: positions.append(stage.source.half_way.get(P0, (0, 0))[1])
    stage.processing.work(fetched(P0, 0, 6))
    assert positions == [0, 2, 4]


def test_what_waits_behind_a_call_of_records_that_a_linger_held_back_says_so_too():
    """And what a linger held back for long enough waits, as what was fetched does."""
    stage, blocked = Stage(rows=5, linger=1.0), []

    def look(rows):
        stage.source.waiting_items = []
        stage.processing.note_waiting()
        stage.now += 1.0
        stage.processing.note_waiting()
        blocked.append((stage.processing.blocked(P0), stage.processing.blocked(P1)))

    stage.processing._function._made = look
    stage.processing.work(fetched(P0, 0, 3))
    stage.now += 0.1
    stage.processing.work(fetched(P1, 0, 3))
    stage.now += 2.0
    stage.processing.work(None)
    assert blocked[0] == ("", "waits for its turn: behind t-0")


def test_what_waits_for_long_says_behind_whom():
    stage = Stage(rows=2)
    blocked = []

    def look(rows):
        if not blocked:
            stage.source.waiting_items = [fetched(P1, 0, 2)]
            stage.processing.note_waiting()
            stage.now += 1.0
        stage.processing.note_waiting()
        blocked.append((stage.processing.blocked(P0), stage.processing.blocked(P1)))

    stage.processing._function._made = look
    stage.processing.work(fetched(P0, 0, 2))
    assert blocked == [("", "waits for its turn: behind t-0"), ("", "")]
    assert stage.processing.blocked(P1) == ""


def test_what_is_at_hand_and_waits_behind_a_newcomer_says_so_too():
    stage = Stage(rows=2)
    blocked = []

    def look(rows):
        stage.processing.note_waiting()
        stage.now += 1.0
        blocked.append((rows["partition"][0].as_py(), stage.processing.blocked(P0)))

    stage.processing._function._made = look
    stage.source.newcomers = [fetched(P1, 0, 2)]
    stage.processing.work(fetched(P0, 0, 2))
    assert blocked == [(1, "waits for its turn: behind t-1"), (0, "")]


def test_a_call_that_fails_gives_way_to_others_before_it_is_tried_again_and_tries_are_counted_on():
    stage = Stage(rows=2, retries=2)

    def fail(rows):
        stage.note(rows)
        stage.now += 0.3
        if rows["partition"][0].as_py() == 0:
            raise ValueError("no")

    stage.processing._function._made = fail
    stage.source.waiting_items = [fetched(P1, n, n + 1) for n in range(9)]
    with pytest.raises(ProcessError) as failed:
        until_all_is_done(stage, fetched(P0, 0, 4))
    assert failed.value.attempts == 3
    assert [p for p, _, _ in stage.calls].count(0) == 3
    assert stage.calls[1][0] == 1


def died_at(first, last, times):
    return DeathsInCall(P0, first, last, times, "exit code 3")


def test_the_call_in_which_a_worker_died_is_made_again_with_the_same_records():
    stage = Stage(retries=1)
    stage.processing.suspect([died_at(4, 5, 1)])
    stage.processing.work(fetched(P0, 0, 9))
    assert stage.calls == [(0, 0, 4), (0, 4, 6), (0, 6, 9)]
    assert stage.processed(P0) == 9


def test_records_in_whose_call_workers_died_often_enough_end_the_job():
    stage = Stage(retries=1)
    stage.processing.suspect([died_at(4, 5, 2)])
    with pytest.raises(ProcessError, match=r"offsets 4-5 after 2 attempts: WorkerDiedError.*exit code 3"):
        stage.processing.work(fetched(P0, 0, 9))
    assert stage.calls == [(0, 0, 4)]
    assert stage.assignment.commits() == [CommitEntry(P0, EPOCH, 4, 3)]


def test_under_dead_letter_they_are_tried_in_halves_and_the_one_at_fault_is_sent():
    stage = Stage(retries=1, on_error="dead_letter")
    letters = stage.processing._function.outputs = FakeDeadLetters()
    stage.processing.suspect([died_at(0, 7, 2)])
    stage.processing.work(fetched(P0, 0, 9))
    assert stage.calls == [(0, 0, 4), (0, 4, 6), (0, 6, 7), (0, 7, 8), (0, 8, 9)]
    assert letters.seen == []
    stage = Stage(retries=1, on_error="dead_letter")
    letters = stage.processing._function.outputs = FakeDeadLetters()
    stage.processing.suspect([died_at(4, 4, 3)])
    stage.processing.work(fetched(P0, 4, 9))
    assert [offsets for offsets, _ in letters.seen] == [[4]]
    assert stage.calls == [(0, 5, 9)]
    assert stage.processed(P0) == 9


def test_a_call_in_which_workers_died_has_no_other_beside_it(monkeypatch):
    monkeypatch.setattr("kafka_actors.job.worker.calls.RECHECK_S", 0)
    seen, in_hand = [], []
    gates = {}

    async def process(rows):
        partition = rows["partition"][0].as_py()
        seen.append((partition, list(in_hand)))
        in_hand.append(partition)
        await gates[partition].wait()
        in_hand.remove(partition)

    stage = Stage(process)
    stage.processing.suspect([died_at(0, 2, 0)])

    async def scenario():
        gates.update({0: asyncio.Event(), 1: asyncio.Event()})
        calls = [asyncio.ensure_future(stage.processing.work_async(fetched(P1, 0, 3)))]
        await asyncio.sleep(0)
        calls.append(asyncio.ensure_future(stage.processing.work_async(fetched(P0, 0, 3))))
        await turns(5)
        assert seen == [(1, [])]
        gates[1].set()
        await turns(5)
        assert seen == [(1, []), (0, [])]
        gates[1].clear()
        calls.append(asyncio.ensure_future(stage.processing.work_async(fetched(P1, 3, 6))))
        await turns(5)
        assert len(seen) == 2
        assert stage.processing.blocked(P1).startswith("waits for its turn: a call in which workers died")
        gates[0].set()
        await turns(5)
        assert seen[2] == (1, [])
        gates[1].set()
        await asyncio.gather(*calls)

    asyncio.run(scenario())
