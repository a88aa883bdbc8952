"""Calls that overtake each other: what they move, what is committed, and what a failure, a drain or a reset means."""

import pytest
from fakes.in_flight import EPOCH, P0, P1, Flight

from kafka_actors.errors import ProcessError, WorkerDiedError
from kafka_actors.events import DoneOffsetsDropped, RecordsSkipped
from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.job.messages import CommitEntry, DeathsInCall, Grant
from kafka_actors.job.worker.concurrent_calls import LATE_S
from kafka_actors.job.worker.user_function import CallFailed


def failure(call, *, final=False):
    return CallFailed(ValueError("no good"), call.first, call.last, final=final)


def test_the_offset_is_that_of_the_first_record_that_is_not_done():
    flight = Flight()
    flight.reader.put(P0, 10, "abc")
    flight.admit()
    calls = flight.take_all()
    assert flight.reader.position[P0] == 13
    flight.calls.ended(calls[12], None)
    assert flight.processed() == 10
    (entry,) = flight.commit()
    assert entry == CommitEntry(P0, EPOCH, 10, 3, done=DoneOffsets([(12, 13)], 3).text(10))
    assert flight.commit() == [], "nothing has changed"
    flight.calls.ended(calls[10], None)
    assert flight.commit() == [CommitEntry(P0, EPOCH, 11, 3, done=DoneOffsets([(12, 13)], 3).text(11))]
    flight.calls.ended(calls[11], None)
    assert flight.commit() == [CommitEntry(P0, EPOCH, 13, 3)]
    assert flight.commit() == []


def test_what_the_metadata_says_is_done_is_not_called_again():
    told = DoneOffsets([(11, 12), (13, 14)], 3)
    flight = Flight(grants=[Grant(P0, EPOCH, 10, done=told.text(10))])
    flight.reader.put(P0, 10, "ab", "cde")
    flight.admit()
    calls = flight.take_all()
    assert sorted(calls) == [10, 12, 14]
    assert flight.commit() == [], "it is committed already"
    flight.calls.ended(calls[14], None)
    (entry,) = flight.commit()
    assert DoneOffsets.of_text(entry.done, 10) == DoneOffsets([(11, 12), (13, 15)], 3)


def test_records_that_took_the_place_of_done_ones_are_called():
    told = DoneOffsets([(11, 14)], 2)
    flight = Flight(grants=[Grant(P0, EPOCH, 10, done=told.text(10))])
    flight.reader.put(P0, 10, "abcd")
    flight.admit()
    assert sorted(flight.take_all()) == [10, 11, 12, 13]
    assert flight.events == [DoneOffsetsDropped("t", 0, 14, "the log was cut since")]


def test_after_a_reset_nothing_of_the_metadata_counts():
    told = DoneOffsets([(11, 14)], 3)
    flight = Flight(grants=[Grant(P0, EPOCH, 10, done=told.text(10))])
    flight.assignment.positioned(P0, 10, rewind=True)
    flight.reader.put(P0, 10, "abcd")
    flight.admit()
    assert sorted(flight.take_all()) == [10, 11, 12, 13]


def test_calls_from_before_a_reset_move_nothing():
    flight = Flight()
    flight.reader.put(P0, 10, "ab")
    flight.admit()
    before = flight.calls.take()
    flight.calls.ended(flight.calls.take(), None)
    flight.assignment.positioned(P0, 0, rewind=True)
    assert flight.calls.take() is None
    assert flight.commit() == [CommitEntry(P0, EPOCH, 0, -1, rewind=True)], (
        "what was done is of the log before"
    )
    flight.calls.ended(before, None)
    assert flight.processed() == 0
    assert flight.assignment.held[P0].in_hand is False
    flight.reader.put(P0, 0, "a")
    flight.admit()
    flight.calls.ended(flight.calls.take(), None)
    assert flight.processed() == 1


def test_records_in_front_of_where_the_log_was_cut_are_called_though_they_were_read_before_that_was_found():
    """They are in the window, and the position of reading is beyond the cut."""
    flight = Flight()
    flight.reader.put(P0, 10, "abcdef")
    flight.admit()
    calls = flight.take_all()
    flight.calls.ended(calls[12], None)
    flight.calls.ended(calls[15], None)
    flight.entries()
    assert flight.assignment.reset(P0, 14, None, cut=True) == (10, 3)
    (entry,) = flight.entries()
    assert entry == CommitEntry(P0, EPOCH, 10, 3, done=DoneOffsets([(12, 13)], 3).text(10)), (
        "of what is done beyond the offset nothing counts from the cut on"
    )
    for offset in (10, 11, 13, 14):
        flight.calls.ended(calls[offset], None)
    assert flight.processed() == 10, "these calls began before"
    flight.reader.put(P0, 10, "abcd")
    flight.reader.put(P0, 14, "x", leader_epoch=4)
    flight.admit()
    assert sorted(flight.take_all()) == [10, 11, 13, 14]


def test_a_position_beyond_the_cut_is_taken_back():
    flight = Flight()
    flight.reader.put(P0, 10, "abcd")
    flight.admit()
    for call in flight.take_all().values():
        flight.calls.ended(call, None)
    assert flight.assignment.reset(P0, 12, None, 2, cut=True) is None
    assert flight.commit() == [CommitEntry(P0, EPOCH, 12, 2, rewind=True)]


@pytest.mark.parametrize("topic_id", [None, b"n" * 16])
def test_what_was_read_of_records_that_are_gone_is_passed_over(topic_id):
    """The topic was made anew, or the log begins behind them."""
    flight = Flight()
    flight.reader.put(P0, 10, "abcd")
    flight.admit()
    assert flight.assignment.reset(P0, 20, topic_id, cut=False) is None
    assert flight.take_all() == {}
    assert flight.processed() == 20


def test_a_partition_whose_window_was_full_goes_on_after_a_reset():
    """Nothing that is in the window ends any more."""
    flight = Flight(max_in_flight_records=2)
    flight.reader.put(P0, 10, "ab")
    flight.admit()
    assert P0 in flight.reader.paused
    flight.assignment.reset(P0, 0, b"n" * 16, cut=False)
    flight.reader.put(P0, 0, "a")
    flight.admit()
    assert sorted(flight.take_all()) == [0]


@pytest.mark.parametrize("cut", [True, False], ids=["a log that was cut", "another topic"])
def test_calls_from_before_a_reset_end_before_others_of_the_partition_begin(cut):
    """They may be of the same keys, or records."""
    flight = Flight()
    flight.reader.put(P0, 10, "ab")
    flight.reader.put(P1, 10, "c")
    flight.admit()
    before = flight.calls.take()
    flight.calls.ended(flight.calls.take(), None)
    flight.assignment.reset(P0, 11, None if cut else b"n" * 16, cut=cut)
    first = 10 if cut else 11
    flight.reader.put(P0, first, "abc")
    flight.reader.put(P1, 11, "d")
    flight.admit()
    calls = flight.take_all().values()
    assert {call.window.partition for call in calls} == {P1}
    flight.now += 2.0
    assert flight.calls.in_flight.blocked(P0, flight.now) == "calls from before a reset are not over"
    flight.calls.ended(before, None)
    flight.admit()
    assert sorted(flight.take_all()) == [first, first + 1, first + 2]


def test_a_drain_ends_when_the_last_call_in_hand_does_and_its_work_is_committed():
    flight = Flight()
    flight.reader.put(P0, 0, "abc")
    flight.admit()
    first, second = flight.calls.take(), flight.calls.take()
    flight.drain(P0)
    assert flight.calls.take() is None, "no new call begins"
    flight.calls.ended(second, None)
    flight.commit()
    assert flight.assignment.release_drained() == []
    flight.calls.ended(first, None)
    assert flight.entries() == [CommitEntry(P0, EPOCH, 2, 3)]
    assert flight.assignment.release_drained() == []
    flight.commit()
    assert flight.assignment.release_drained() == [P0]


def test_what_is_done_beyond_the_offset_is_committed_before_a_release():
    """The last call in hand moves no offset: the record before its own failed, and is not called again in a drain."""
    flight = Flight(retries=1)
    flight.reader.put(P0, 0, "ab")
    flight.admit()
    first, second = flight.calls.take(), flight.calls.take()
    flight.commit()
    flight.drain(P0)
    flight.calls.ended(first, failure(first))
    flight.now += 10.0
    assert flight.calls.take() is None
    flight.calls.ended(second, None)
    with flight.lock:
        flight.calls.note_done()
    assert flight.assignment.release_drained() == []
    assert flight.commit() == [CommitEntry(P0, EPOCH, 0, 3, done=DoneOffsets([(1, 2)], 3).text(0))]
    assert flight.assignment.release_drained() == [P0]


def test_records_of_a_partition_that_is_gone_are_dropped():
    flight = Flight()
    flight.reader.put(P0, 0, "abc")
    flight.admit()
    call = flight.calls.take()
    flight.order([Grant(P1, EPOCH)])
    flight.calls.forget([P0])
    flight.calls.ended(call, None)
    assert flight.calls.take() is None
    flight.reader.put(P0, 3, "d")
    flight.admit()
    assert flight.calls.take() is None


def test_a_full_window_pauses_its_partition_until_half_of_it_is_free():
    flight = Flight(max_in_flight_records=4)
    flight.reader.put(P0, 0, "abcd", "ef")
    flight.reader.put(P1, 50, "a")
    flight.admit()
    assert flight.reader.paused == {P0}
    calls = flight.take_all()
    assert sorted(calls) == [0, 1, 2, 3, 50], "the other partition goes on"
    flight.now += 5.0
    with flight.lock:
        assert flight.calls.blocked(P0).startswith(
            "its window is full: 4 records, held for 5 s by offset 0, key #"
        )
    woken = flight.calls.callers.woken
    for offset in (1, 2, 3):
        flight.calls.ended(calls[offset], None)
    assert flight.calls.callers.woken == woken
    flight.calls.ended(calls[0], None)
    assert flight.calls.callers.woken > woken
    flight.admit()
    assert flight.reader.paused == set()
    assert flight.reader.position[P0] == 6


def test_a_window_takes_no_record_more_than_it_may():
    flight = Flight(max_in_flight_records=3)
    flight.reader.put(P0, 0, "abcde")
    flight.admit()
    assert sorted(flight.take_all()) == [0, 1, 2]
    assert flight.reader.position[P0] == 3, "the others are fetched bytes still"
    assert flight.reader.paused == {P0}


def test_without_a_lease_or_in_a_pause_no_call_begins():
    flight = Flight()
    flight.reader.put(P0, 0, "ab")
    flight.admit()
    flight.calls.paused = True
    assert flight.calls.take() is None
    with flight.lock:
        assert flight.calls.blocked(P0) == "paused"
    flight.calls.paused = False
    flight.now += 61.0
    assert flight.calls.take() is None
    with flight.lock:
        assert flight.calls.blocked(P0) == "no lease"


def test_a_failed_call_is_made_again_after_its_backoff_and_its_key_waits():
    flight = Flight(retries=1)
    flight.reader.put(P0, 0, "aab")
    flight.admit()
    calls = flight.take_all()
    flight.calls.ended(calls[0], failure(calls[0]))
    flight.calls.ended(calls[2], None)
    assert flight.calls.take() is None
    assert 0 < flight.calls.look(0.25) <= 0.25
    flight.now += 10.0
    again = flight.calls.take()
    assert (again.first, again.attempts) == (0, 1)
    flight.calls.ended(again, None)
    assert flight.calls.take().first == 1


def test_after_the_last_try_the_job_ends_and_the_offset_stays_at_the_watermark():
    flight = Flight()
    flight.reader.put(P0, 0, "abc")
    flight.admit()
    calls = flight.take_all()
    flight.calls.ended(calls[0], None)
    with pytest.raises(ProcessError, match=r"offset 2\b.*no good"):
        flight.calls.ended(calls[2], failure(calls[2]))
    assert flight.processed() == 1
    assert flight.commit()[0].offset == 1
    flight.calls.ended(calls[1], None)
    assert flight.calls.in_flight.calls == 0


def test_calls_in_hand_beside_one_that_failed_for_good_end_before_their_partition_is_released():
    """The job is told of the failure at once, and drains; they have the time of a drain, as those of other partitions have."""
    flight = Flight()
    flight.reader.put(P0, 0, "ab")
    flight.admit()
    first, second = flight.calls.take(), flight.calls.take()
    with pytest.raises(ProcessError):
        flight.calls.ended(first, failure(first))
    flight.drain(P0)
    flight.commit()
    assert flight.assignment.release_drained() == []
    flight.calls.ended(second, None)
    assert flight.commit() == [CommitEntry(P0, EPOCH, 0, 3, done=DoneOffsets([(1, 2)], 3).text(0))]
    assert flight.assignment.release_drained() == [P0]


def test_of_messages_that_are_called_at_once_only_the_one_that_failed_is_called_again():
    flight = Flight(retries=1, ordering="unordered")
    flight.calls.in_flight.pace.at_once = 4
    flight.reader.put(P0, 0, "abcd")
    flight.admit()
    call = flight.calls.take()
    assert len(call.rows) == 4
    flight.calls.ended(call, CallFailed(ValueError("no good"), 2, 2))
    assert flight.processed() == 2
    behind = flight.calls.take()
    assert behind.first == 3
    flight.now += 10.0
    assert flight.calls.take().first == 2


def test_calls_that_take_no_time_take_more_messages_and_slow_ones_one():
    flight = Flight(ordering="unordered")
    sizes = []
    for first in range(0, 40_000, 1_000):
        flight.reader.put(P0, first, ["k"] * 1_000)
        flight.admit()
        while (call := flight.calls.take()) is not None:
            sizes.append(len(call.rows))
            flight.now += 1e-6 * len(call.rows)
            flight.calls.ended(call, None)
    assert (sizes[0], max(sizes)) == (1, 64)
    flight.reader.put(P0, 40_000, ["k"] * 1_000)
    flight.admit()
    for _ in range(10):
        call = flight.calls.take()
        flight.now += 0.1
        flight.calls.ended(call, None)
    assert len(flight.calls.take().rows) == 1


def test_batches_of_a_pipeline_that_calls_a_function_by_record_have_what_it_gets_done_soon():
    class Pipeline:
        by_record = True

    def sizes(one_s):
        flight, found = Flight(Pipeline, ordering="unordered", unit="batch", concurrency=2), []
        for number in range(300):
            flight.reader.put(P0, number * 1_000, ["k"] * 1_000)
            flight.admit()
            flight.lease.renew(flight.now, 60.0)
            call = flight.calls.take()
            found.append(len(call.rows))
            flight.now += one_s * len(call.rows)
            flight.calls.ended(call, None)
        return found[0], max(found[-20:])  # of one chunk: the last ones may be fewer

    first, last = sizes(0.00002)
    assert first == 1
    assert 400 <= last <= 500
    assert sizes(0.004) == (1, 2)
    assert sizes(0.1) == (1, 1)


def test_a_record_at_fault_is_skipped_and_its_key_goes_on():
    flight = Flight(on_error="skip")
    flight.reader.put(P0, 0, "aa")
    flight.admit()
    call = flight.calls.take()
    flight.calls.ended(call, failure(call))
    assert flight.events == [RecordsSkipped("t", 0, 0, 0, "ValueError: no good")]
    assert flight.processed() == 1
    assert flight.calls.take().first == 1


def test_of_a_batch_that_fails_other_keys_go_on_while_the_one_at_fault_waits():
    flight = Flight(unit="batch", retries=2, on_error="skip", concurrency=1, batch_rows=8)
    flight.reader.put(P0, 0, "abcabd")
    flight.admit()

    def make(now):
        flight.now, made = now, []
        while (call := flight.calls.take()) is not None:
            rows = call.batch["offset"].to_pylist()
            made.append(rows)
            flight.calls.ended(call, failure(call) if 3 in rows else None)
        return made

    assert make(100.0) == [[0, 1, 2, 3, 4, 5], [0, 1, 3, 4], [2, 5], [0, 3], [1, 4]]
    assert flight.commit()[0].done == DoneOffsets([(1, 3), (4, 6)], 3).text(0)
    assert make(100.2) == [[0, 3]]
    assert flight.events == []
    assert make(101.0) == [[0, 3], [0], [3]]
    assert flight.events == [RecordsSkipped("t", 0, 3, 3, "ValueError: no good")]
    assert flight.processed() == 6


@pytest.mark.parametrize("keys", [[f"k{n}" for n in range(500)], [None] * 500])
def test_a_service_that_is_down_is_not_called_for_each_row(keys):
    """After 64 failed calls on parts of a batch, and none that succeeded, what is left is called as it is."""
    flight = Flight(unit="batch", on_error="skip", retries=1, concurrency=1)
    flight.reader.put(P0, 0, keys)
    flight.admit()
    calls = 0
    while flight.processed() != 500:
        call = flight.calls.take()
        if call is None:
            flight.now += 5.0
            flight.lease.renew(flight.now, 60.0)
            continue
        calls += 1
        flight.calls.ended(call, CallFailed(ConnectionError("down"), call.first, call.last))
    assert calls < 300


def test_the_records_at_fault_of_a_batch_are_found_by_halves():
    flight = Flight(unit="batch", on_error="skip", concurrency=1, batch_rows=4)
    flight.reader.put(P0, 0, "aaaab")
    flight.admit()
    made = []
    while (call := flight.calls.take()) is not None:
        rows = call.batch["offset"].to_pylist()
        made.append(rows)
        flight.calls.ended(call, failure(call) if 2 in rows else None)
    assert made == [[0, 1, 2, 3], [0, 1], [2, 3], [2], [3], [4]]
    assert flight.events == [RecordsSkipped("t", 0, 2, 2, "ValueError: no good")]
    assert flight.processed() == 5


def test_a_call_that_fails_after_its_partition_went_is_nobodys_failure():
    flight = Flight()
    flight.reader.put(P0, 0, "a")
    flight.admit()
    call = flight.calls.take()
    flight.order([Grant(P1, EPOCH)])
    flight.calls.forget([P0])
    flight.calls.ended(call, failure(call))


def test_a_record_in_whose_call_too_many_workers_died_is_a_failure_without_a_call():
    flight = Flight(retries=1, on_error="skip")
    flight.calls.suspect([DeathsInCall(P0, 0, 0, 2, "SIGSEGV")])
    flight.reader.put(P0, 0, "ab")
    flight.admit()
    assert flight.calls.take().first == 1
    assert [type(event) for event in flight.events] == [RecordsSkipped]
    assert WorkerDiedError.__name__ in flight.events[0].error


def test_the_end_of_a_bounded_partition_is_told_once_all_before_it_is_done():
    flight = Flight(grants=[Grant(P0, EPOCH, 0, end_offset=2)])
    flight.reader.put(P0, 0, "ab")
    flight.admit()
    calls = flight.take_all()
    flight.calls.ended(calls[1], None)
    assert flight.ends == 0
    flight.calls.ended(calls[0], None)
    assert flight.ends == 1
    flight.commit()
    assert flight.assignment.held[P0].finished


def test_records_are_counted_when_the_watermark_has_passed_them():
    flight = Flight()
    flight.reader.put(P0, 0, "ab")
    flight.admit()
    calls = flight.take_all()
    assert flight.calls.counters.busy_s(flight.now + 3) == 3
    for call in calls.values():
        flight.calls.ended(call, None)
    assert flight.calls.counters.records == 2
    assert flight.calls.counters.busy_s(flight.now) is None


def shared(part, parts=2, **options):
    """A worker that has one slice of P0, whose keys are numbers."""
    flight = Flight(grants=[Grant(P0, EPOCH, 0, part=part, parts=parts)], **options)
    flight.reader.put(P0, 0, [str(n) for n in range(10)], [str(n) for n in range(10, 20)])
    flight.admit()
    return flight


def test_workers_that_share_a_partition_call_each_record_once_among_them():
    taken = [set(shared(part).take_all()) for part in (0, 1)]
    assert taken[0] | taken[1] == set(range(20))
    assert taken[0].isdisjoint(taken[1])
    assert min(map(len, taken)) > 2


def test_a_slice_runs_ahead_of_the_others_by_no_more_than_the_window():
    flight = Flight(grants=[Grant(P0, EPOCH, 0, part=0, parts=2)], max_in_flight_records=12)
    flight.calls.follow([(P0, 0)])
    flight.reader.put(P0, 0, *[[str(n) for n in range(at, at + 6)] for at in (0, 6, 12, 18)])
    flight.admit()
    for call in flight.take_all().values():
        flight.calls.ended(call, None)
    flight.admit()
    assert flight.reader.position[P0] == 12
    flight.now += 5.0
    assert "from offset 0 on, records of other workers are not done" in flight.calls.blocked(P0)
    flight.calls.follow([(P0, 10)])
    flight.admit()
    assert flight.reader.position[P0] == 22


def test_what_is_committed_of_a_slice_says_what_it_has_passed():
    flight = shared(0)
    first, *others = sorted(flight.take_all().items())
    for _, call in others:
        flight.calls.ended(call, None)
    (entry,) = flight.entries()
    assert entry.offset == first[0]
    assert DoneOffsets.of_text(entry.done, entry.offset).ranges.tolist() == [[first[0] + 1, 20]]


def test_a_backlog_of_one_partition_does_not_keep_another_one_from_being_called():
    flight = Flight(concurrency=1, ordering="unordered")
    flight.reader.put(P0, 0, "a" * 50)
    flight.reader.put(P1, 0, "bb")
    flight.admit()
    called = []
    for _ in range(6):
        call = flight.calls.take()
        called.append((call.window.partition.partition, call.first))
        flight.now += 1.0  # no call has several
        flight.calls.ended(call, None)
    assert called == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (0, 3)]


def quick(flight):
    """Has calls take no time, so that one has several messages."""
    flight.reader.put(P1, 0, *["x" * 100] * 4)
    flight.admit()
    while (call := flight.calls.take()) is not None:
        flight.calls.ended(call, None)
    assert flight.calls.in_flight.pace.at_once > 1


def test_messages_behind_one_that_takes_long_go_to_other_callers():
    """Though calls took no time before, so that a call has several messages."""
    flight = Flight(ordering="unordered")
    quick(flight)
    flight.reader.put(P0, 10, "abcdef")
    flight.admit()
    call = flight.calls.take()
    assert [flight.calls.next_row(call), flight.calls.next_row(call)] == [0, 1]
    assert len(call.rows) == 6
    assert flight.calls.look(0.25) <= LATE_S, "it is looked at again soon"
    flight.now += LATE_S
    flight.calls.look(0.25)
    assert flight.calls.next_row(call) is None
    assert (call.first, call.last) == (10, 11)
    others = flight.calls.take()
    assert others.first == 12
    flight.calls.ended(call, None)
    assert flight.processed() == 12
    flight.calls.ended(others, None)
    assert flight.processed() == 16


def test_a_message_that_fails_after_those_behind_it_went_to_others_is_made_again_alone():
    flight = Flight(ordering="key", retries=1)
    quick(flight)
    flight.reader.put(P0, 10, "abcd")
    flight.admit()
    call = flight.calls.take()
    assert [flight.calls.next_row(call), flight.calls.next_row(call)] == [0, 1]
    flight.now += LATE_S
    flight.calls.look(0.25)
    others = flight.calls.take()
    assert (others.first, others.last) == (12, 13)
    flight.calls.ended(call, CallFailed(ValueError("no good"), 11, 11))
    assert flight.processed() == 11
    flight.calls.ended(others, None)
    flight.now += 60.0
    flight.lease.renew(flight.now, 60.0)
    again = flight.calls.take()
    assert (again.first, again.last, again.attempts) == (11, 11, 1)
    flight.calls.ended(again, None)
    assert flight.processed() == 14


def test_records_are_counted_when_they_are_done_though_an_earlier_one_is_not():
    flight = Flight(ordering="unordered", retries=1)
    flight.reader.put(P0, 10, "abcd")
    flight.admit()
    calls = flight.take_all()
    for offset in (11, 12):
        flight.calls.ended(calls[offset], None)
    flight.calls.ended(calls[13], failure(calls[13]))
    flight.calls.note_waiting()
    assert flight.calls.counters.records == 2
    flight.now += 60.0
    flight.lease.renew(flight.now, 60.0)
    flight.calls.ended(flight.calls.take(), None)
    flight.calls.ended(calls[10], None)
    assert flight.calls.counters.records == 4, "all of the chunk is done, so that nothing is kept of it"


def test_what_was_done_before_and_what_is_passed_over_are_not_counted():
    told = DoneOffsets([(11, 12)], 3)
    flight = Flight(on_error="skip", grants=[Grant(P0, EPOCH, 10, done=told.text(10)), Grant(P1, EPOCH)])
    flight.reader.put(P0, 10, "abc")
    flight.admit()
    calls = flight.take_all()
    flight.calls.ended(calls[10], failure(calls[10]))
    flight.calls.ended(calls[12], None)
    assert flight.processed() == 13
    assert flight.calls.counters.records == 1


def test_records_that_are_gone_by_a_compaction_are_no_sign_that_the_log_was_cut():
    told = DoneOffsets([(11, 14)], 2)
    flight = Flight(grants=[Grant(P0, EPOCH, 10, done=told.text(10))])
    flight.reader.put(P0, 20, "ab")
    flight.admit()
    assert sorted(flight.take_all()) == [20, 21]
    assert flight.events == []
