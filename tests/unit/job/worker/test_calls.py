"""Calls of one batch: what the generators ask for, in which order, and what each outcome moves. No thread and no function: a test answers each
call itself."""

import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest

from kafka_actors.base.backoff import Backoff
from kafka_actors.errors import ProcessError, ProducerFencedError, StageError, WorkerDiedError
from kafka_actors.events import RecordsSkipped
from kafka_actors.job.machines.retries import RetryCounter, SuspectCalls
from kafka_actors.job.messages import CommitEntry, DeathsInCall, Drain, Grant, Orders
from kafka_actors.job.worker.calls import (
    LOST,
    RECHECK_S,
    CallFunction,
    Cut,
    ErrorPolicy,
    FunctionCalls,
    Lost,
    WaitFor,
)
from kafka_actors.job.worker.counters import WorkerCounters
from kafka_actors.job.worker.machines.rebatch import CallBatch
from kafka_actors.job.worker.machines.worker_assignment import HeldState, WorkerAssignment
from kafka_actors.job.worker.user_function import CallFailed, FunctionSpec
from kafka_actors.sinks.sink import TransactionBroken
from kafka_actors.telemetry.tally import Tally
from kafka_actors.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = (1, 1)


class Record:
    """A call record that notes what it is told."""

    def __init__(self):
        self.told = []

    def call_began(self, partition, first, last):
        self.told.append(("began", partition.partition, first, last))

    def call_ended(self, partition):
        self.told.append(("ended", partition.partition))


class Calls:
    """The calls of a worker that holds two partitions. `made`: the offsets of each call; `waits`: the seconds of each wait."""

    def __init__(self, *, retries=0, on_error="fail", blocked=()):
        self.now, self.made, self.waits, self.events, self.progress = 50.0, [], [], [], []
        self.blocked = list(blocked)
        self.stopped = False
        spec = FunctionSpec(print, "batch", retries, on_error)
        self.assignment, lock = WorkerAssignment(), threading.Lock()
        self.assignment.apply(Orders((1, 1), [Grant(P0, EPOCH, end_offset=9), Grant(P1, EPOCH)], [], 60.0))
        function = SimpleNamespace(spec=spec, outputs=SimpleNamespace(dead_letter_topic=None))
        self.counters = WorkerCounters("g", Tally())
        self.suspects, self.record = SuspectCalls(retries, on_error != "fail"), Record()
        self.calls = FunctionCalls(
            spec,
            self.assignment,
            lock,
            ErrorPolicy(function, self.assignment, lock, self.events.append, Cut()),
            self.counters,
            RetryCounter(Backoff(), lambda: 0.5),
            self.suspects,
            self.record,
            cut=Cut(),
            blocked_by=lambda: self.blocked.pop(0) if self.blocked else "",
            stopped=lambda: self.stopped,
            on_progress=self.progress.append,
            clock=lambda: self.now,
            wall=lambda: 0.0,
        )

    def until_done(self, first, last, outcome=lambda call: None, partition=P0, **more):
        """Makes the calls for the offsets `first` up to `last`; `outcome` gets the offsets of each call. Returns what the generator does."""
        steps = self.calls.until_done(partition, EPOCH, piece(partition, first, last), **more)
        answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = None
            if isinstance(step, WaitFor):
                self.waits.append(step.seconds)
                self.now += step.seconds
                continue
            assert isinstance(step, CallFunction)
            self.made.append(step.batch["offset"].to_pylist())
            answer = outcome(self.made[-1])

    @property
    def processed(self):
        return self.assignment.held[P0].processed


def piece(partition, first, last):
    size = last - first
    batch = pa.record_batch(
        {
            "value": pa.array([b"v"] * size, pa.binary()),
            "topic": ["t"] * size,
            "partition": pa.array([partition.partition] * size, pa.int32()),
            "offset": pa.array(range(first, last), pa.int64()),
            "timestamp": pa.array([0] * size, pa.timestamp("us", tz="UTC")),
        }
    )
    return CallBatch(batch, last, 3)


def fails_at(*bad, final=False):
    """A function that fails for the whole of a batch that holds one of these offsets."""

    def outcome(offsets):
        hit = [offset for offset in offsets if offset in bad]
        return CallFailed(ValueError("no good"), offsets[0], offsets[-1], final=final) if hit else None

    return outcome


# ---------------------------------------------------------------- one call


def test_a_call_that_returns_moves_the_offset_behind_the_whole_piece_and_is_recorded_while_it_lasts():
    calls = Calls()

    assert calls.until_done(3, 6)

    assert calls.made == [[3, 4, 5]]
    assert calls.assignment.commits() == [CommitEntry(P0, EPOCH, 6, 3)]
    assert calls.record.told == [("began", 0, 3, 5), ("ended", 0)]
    assert calls.progress == [False]


def test_the_end_of_a_bounded_partition_is_told():
    calls = Calls()
    calls.until_done(3, 9)
    assert calls.progress == [True]


class LosesResults(Cut):
    """In place of a `ProducerSessions`: results count no more, after what `meanwhile` does during the call."""

    def __init__(self, meanwhile):
        self.meanwhile = meanwhile

    def put_out(self, *call, **more):
        self.meanwhile()
        return LOST


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_behind_a_reset_work_goes_on_with_the_records_that_follow(on_error):
    """Results of records from before it don't count, and their call is over."""
    calls = Calls(on_error=on_error)
    calls.calls._cut = LosesResults(lambda: calls.assignment.positioned(P0, 500, rewind=True))

    assert calls.until_done(3, 6)

    assert calls.processed == 500
    assert not calls.assignment.held[P0].in_hand


def test_a_worker_whose_partition_was_taken_during_the_call_leaves_it():
    calls = Calls()
    calls.calls._cut = LosesResults(
        lambda: calls.assignment.apply(Orders((1, 2), [Grant(P1, EPOCH)], [], 60.0))
    )
    assert not calls.until_done(3, 6)


def test_a_dead_letter_in_a_transaction_that_is_broken_ends_that_and_not_the_job():
    calls, spoiled = Calls(on_error="dead_letter"), []

    def dead_letter(batch, cause):
        raise TransactionBroken(ProducerFencedError("fenced"))

    policy = calls.calls._error_policy
    policy._function.outputs = SimpleNamespace(dead_letter_topic="dead", dead_letter=dead_letter)

    class Ends(Cut):
        def spoiled(self, error):
            spoiled.append(error)
            calls.assignment.drop_all()  # with the session

    policy._cut = Ends()
    calls.until_done(3, 4, fails_at(3))
    assert [type(error) for error in spoiled] == [ProducerFencedError]
    assert calls.assignment.held == {}
    assert calls.events == []


def test_a_partition_that_is_another_workers_is_not_begun():
    calls = Calls()
    calls.assignment.apply(Orders((1, 2), [Grant(P1, EPOCH)], [], 60.0))

    assert not calls.until_done(3, 6)

    assert (calls.made, calls.record.told, calls.progress) == ([], [], [])


def test_a_reason_not_to_call_is_looked_at_again_and_again():
    calls = Calls(blocked=["paused", "paused", "no lease"])

    assert calls.until_done(3, 6)

    assert calls.waits == [RECHECK_S] * 3
    assert calls.made == [[3, 4, 5]]


def test_a_thread_that_is_to_stop_while_no_call_may_begin_calls_nothing():
    calls = Calls(blocked=["paused"] * 3)
    calls.stopped = True

    assert not calls.until_done(3, 6)

    assert (calls.made, calls.processed) == ([], None)


# ---------------------------------------------------------------- tries


def test_a_call_is_tried_again_after_growing_times_and_then_its_partition_halts_there():
    calls = Calls(retries=2)

    with pytest.raises(ProcessError, match="no good") as caught:
        calls.until_done(3, 6, fails_at(4))

    assert calls.made == [[3, 4, 5]] * 3
    assert len(calls.waits) == 2
    assert calls.waits[0] < calls.waits[1]
    error = caught.value
    assert (error.first_offset, error.last_offset, error.attempts) == (3, 5, 3)
    assert calls.assignment.held[P0].state is HeldState.HALTED
    assert calls.processed == 3


def test_a_success_forgets_the_failures_before_it():
    calls, failing = Calls(retries=1), [True, False, True, False]
    outcome = lambda offsets: fails_at(*offsets)(offsets) if failing.pop(0) else None  # noqa: E731

    assert calls.until_done(3, 5, outcome)
    assert calls.until_done(3, 5, outcome)

    assert calls.made == [[3, 4]] * 4


def test_records_before_the_one_that_failed_are_done_and_not_called_for_again():
    """`process_message` fails at one record; those before it have returned."""
    calls, failed = Calls(retries=1), []

    def outcome(offsets):
        if failed:
            return None
        failed.append(calls.processed)
        return CallFailed(ValueError("no good"), 5, 5)

    assert calls.until_done(3, 7, outcome)

    assert calls.made == [[3, 4, 5, 6], [5, 6]]
    assert calls.processed == 7


def test_what_no_try_can_change_is_tried_once():
    calls = Calls(retries=5)
    with pytest.raises(ProcessError) as caught:
        calls.until_done(3, 6, fails_at(4, final=True))
    assert calls.made == [[3, 4, 5]]
    assert caught.value.attempts == 1


def test_a_partition_whose_turn_is_over_is_left_between_two_tries_and_not_in_hand():
    calls, asked = Calls(retries=5), []

    assert not calls.until_done(3, 6, fails_at(4), turn_over=lambda offset: not asked.append(offset))

    assert (calls.made, asked) == ([[3, 4, 5]], [3])
    assert not calls.assignment.held[P0].in_hand


def test_a_stages_own_error_is_raised_as_it_is():
    calls, own = Calls(), StageError("sql", "t", 0, 3, 5, 1, "no column")
    with pytest.raises(StageError) as caught:
        calls.until_done(3, 6, lambda offsets: CallFailed(own, 3, 5))
    assert caught.value is own


# ---------------------------------------------------------------- what is at fault is taken out


@pytest.mark.parametrize(
    ("bad", "skipped"), [((5,), [(5, 5)]), ((3,), [(3, 3)]), ((4, 5), [(4, 5)]), ((3, 8), [(3, 3), (8, 8)])]
)
def test_the_records_at_fault_are_found_by_halving_and_only_those_are_skipped(bad, skipped):
    calls, returned = Calls(on_error="skip"), set()

    def outcome(offsets):
        failure = fails_at(*bad)(offsets)
        if failure is None:
            returned.update(offsets)
        return failure

    assert calls.until_done(3, 9, outcome)

    assert [(e.first_offset, e.last_offset) for e in calls.events] == skipped
    assert all(isinstance(e, RecordsSkipped) and "no good" in e.error for e in calls.events)
    assert returned == set(range(3, 9)) - set(bad)
    assert calls.processed == 9


def test_the_offset_never_passes_a_record_that_was_neither_processed_nor_taken_out():
    calls, settled = Calls(on_error="skip"), set()

    def outcome(offsets):
        taken = {o for e in calls.events for o in range(e.first_offset, e.last_offset + 1)}
        assert set(range(3, calls.processed or 3)) <= settled | taken
        failure = fails_at(4, 7)(offsets)
        if failure is None:
            settled.update(offsets)
        return failure

    assert calls.until_done(3, 9, outcome)
    assert calls.processed == 9


def test_a_partition_that_drains_while_it_is_halved_is_left():
    calls = Calls(on_error="skip")

    def outcome(offsets):
        if len(calls.made) == 2:
            calls.assignment.apply(Orders((1, 2), [Grant(P1, EPOCH)], [Drain(P0, EPOCH)], 60.0))
        return fails_at(5)(offsets)

    assert not calls.until_done(3, 9, outcome)

    assert len(calls.made) == 2
    assert calls.events == []
    assert not calls.assignment.held[P0].in_hand


# ---------------------------------------------------------------- calls in which workers died


def test_a_call_in_which_a_worker_died_is_made_alone_with_the_same_records():
    calls = Calls(retries=3)
    calls.suspects.suspect(DeathsInCall(P0, 4, 5, 1, "killed"))

    assert calls.until_done(3, 9)

    assert calls.made == [[3], [4, 5], [6, 7, 8]]


def test_a_call_that_has_to_be_alone_waits_for_those_in_hand_and_holds_up_all_others():
    calls = Calls(retries=3)
    calls.suspects.suspect(DeathsInCall(P0, 3, 5, 1, "killed"))
    calls.counters.call_began(P1, calls.now)
    alone = calls.calls.until_done(P0, EPOCH, piece(P0, 3, 6))
    other = calls.calls.until_done(P1, EPOCH, piece(P1, 0, 2))

    assert alone.send(None) == WaitFor(RECHECK_S), "the other's call is in hand"
    assert other.send(None) == WaitFor(RECHECK_S), "and no other begins meanwhile"
    calls.counters.call_ended(P1, calls.now, None)
    assert isinstance(alone.send(None), CallFunction)
    assert other.send(None) == WaitFor(RECHECK_S)
    with pytest.raises(StopIteration):
        alone.send(None)
    assert isinstance(other.send(None), CallFunction)


def test_calls_that_have_to_be_alone_are_made_in_the_order_in_which_they_wait():
    calls, third = Calls(retries=3), TopicPartition("t", 2)
    for partition in (P0, P1):
        calls.suspects.suspect(DeathsInCall(partition, 3, 5, 1, "killed"))
    first, second = (calls.calls.until_done(p, EPOCH, piece(p, 3, 6)) for p in (P0, P1))
    calls.counters.call_began(third, calls.now)
    assert [first.send(None), second.send(None)] == [WaitFor(RECHECK_S)] * 2
    calls.counters.call_ended(third, calls.now, None)

    assert second.send(None) == WaitFor(RECHECK_S)
    assert isinstance(first.send(None), CallFunction)
    assert second.send(None) == WaitFor(RECHECK_S)
    with pytest.raises(StopIteration):
        first.send(None)
    assert isinstance(second.send(None), CallFunction)


def test_after_too_many_deaths_the_call_is_not_made_and_fails_as_by_an_error():
    calls = Calls(retries=1)
    calls.suspects.suspect(DeathsInCall(P0, 3, 5, 2, "exit code 9"))

    with pytest.raises(ProcessError) as caught:
        calls.until_done(3, 6)

    assert calls.made == []
    assert isinstance(caught.value.__cause__, WorkerDiedError)
    assert "exit code 9" in str(caught.value)
    assert (caught.value.first_offset, caught.value.attempts) == (3, 2)


def test_after_too_many_deaths_the_records_are_skipped_where_the_policy_says_so():
    calls = Calls(retries=1, on_error="skip")
    calls.suspects.suspect(DeathsInCall(P0, 4, 4, 2, "killed"))

    assert calls.until_done(3, 6)

    assert calls.made == [[3], [5]]
    assert [(e.first_offset, e.last_offset) for e in calls.events] == [(4, 4)]
    assert calls.processed == 6


def test_nothing_waits_between_calls_of_a_job_that_delivers_at_least_once():
    cut = Cut()
    assert list(cut.enter()) == []
    assert list(cut.enter()) == [], "also while somebody is in it"
    cut.leave()


def test_what_became_of_a_call_is_handed_on():
    failure = CallFailed(ValueError("no"), 1, 2)
    assert Cut().put_out(P0, EPOCH, 0, failure) is failure
    assert Cut().put_out(P0, EPOCH, 0, failure, partly=False) is failure
    assert Cut().put_out(P0, EPOCH, 0, None) is None


def test_records_may_always_be_taken_out():
    cut = Cut()
    cut.spoiled(ValueError("of a dead letter"))
    assert cut.may_write(P0, EPOCH, 0)


def test_lost_is_no_failure_and_not_nothing():
    assert isinstance(LOST, Lost)
    assert LOST is not None
    assert not isinstance(LOST, CallFailed)
