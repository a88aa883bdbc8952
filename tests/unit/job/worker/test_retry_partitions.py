"""A worker's source partition and the retry partitions that go with it: what is written where, what waits, and what is read first."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from fakes.retry_logs import EPOCH, FIRST, NOW_S, SECOND, SOURCE, TIERS, Logs, RetryFlight, failure
from msgspec.structs import replace

from kafka_actors.errors import ProcessError, UsageError, WorkerDiedError
from kafka_actors.events import RecordsDeadLettered, RecordsRetriedLater
from kafka_actors.job.messages import DeathsInCall, Drain, Grant
from kafka_actors.job.worker.concurrent_calls import LATE_S
from kafka_actors.job.worker.user_function import CallFailed
from kafka_actors.sinks.dead_letters import as_they_were, retry_records


def started(keys, **options):
    flight = RetryFlight(Logs(keys), **options)
    flight.admit()
    return flight


def fails(flight, call):
    flight.calls.ended(call, failure(call))


def goes_on(flight, seconds):
    flight.flush()
    flight.at += seconds
    flight.now += seconds
    flight.lease.renew(flight.now, 60.0)
    flight.admit()


def all_called(flight):
    """Has all calls end well; returns the offsets in the source of their records."""
    found = []
    while (call := flight.take()) is not None:
        found += flight.offsets(call)
        flight.calls.ended(call, None)
    return found


def waiting(flight, partition):
    """Offsets in the source of what is in a retry partition, and when each is due, in seconds from the start on."""
    flight.flush()
    found = as_they_were(flight.logs.batch(partition, 0, flight.logs.end(partition)))
    return [
        (o, at / 1000 - NOW_S)
        for o, at in zip(found.batch["offset"].to_pylist(), found.not_before, strict=True)
    ]


def test_a_failing_record_is_tried_again_when_its_time_has_come_and_as_it_was():
    flight = started("ab")
    call = flight.take()
    assert flight.offsets(call) == [0]
    fails(flight, call)
    assert all_called(flight) == [1]
    assert flight.processed(SOURCE) == 2, "it is done in the source"
    assert flight.events == [RecordsRetriedLater("t", 0, 0, 0, 1, "t-retry-10s", "ValueError: no good")]
    goes_on(flight, 9.9)
    assert flight.take() is None
    assert flight.calls.blocked(FIRST) == "not due: its next record waits until 2023-11-14 22:13:30 UTC"
    goes_on(flight, 0.2)
    assert flight.calls.blocked(FIRST) == ""
    call = flight.take()
    assert call.batch.drop_columns(["value"]) == flight.logs.batch(SOURCE, 0, 1).drop_columns(["value"])
    assert (call.first, call.window.partition) == (0, FIRST), "its place is that in the retry topic"
    flight.calls.ended(call, None)
    assert flight.processed(FIRST) == 1


def test_records_behind_it_of_its_key_follow_it_and_are_due_with_it_and_others_go_on():
    flight = started("aab-a")
    fails(flight, flight.take())
    flight.at += 2.0
    assert all_called(flight) == [2, 3], "those of another key, and of none"
    assert waiting(flight, FIRST) == [(0, 10.0), (1, 10.0), (4, 10.0)]
    goes_on(flight, 8.1)
    assert all_called(flight) == [0, 1, 4]
    flight.logs.append(SOURCE, "a")
    flight.admit()
    assert all_called(flight) == [5], "none of its key waits any more"


def test_it_goes_from_tier_to_tier_and_after_the_last_one_to_the_dead_letters():
    flight = started("aa")
    fails(flight, flight.take())
    assert all_called(flight) == []
    goes_on(flight, 10.1)
    fails(flight, flight.take())
    assert all_called(flight) == []
    assert waiting(flight, SECOND) == [(0, pytest.approx(70.1)), (1, pytest.approx(70.1))]
    assert as_they_were(flight.logs.batch(SECOND, 0, 2)).attempts == [2, 0]
    goes_on(flight, 60.1)
    fails(flight, flight.take())
    assert flight.logs.dead == [0]
    assert flight.events[-1] == RecordsDeadLettered("t", 0, 0, 0, 1, "t-dead", "ValueError: no good")
    assert all_called(flight) == [1], "its key goes on without it"
    assert [flight.processed(p) for p in TIERS.group(SOURCE)] == [2, 2, 2]


def test_a_key_that_waits_in_a_later_tier_only_is_followed_all_the_same():
    flight = started("a")
    fails(flight, flight.take())
    goes_on(flight, 10.1)
    fails(flight, flight.take())
    flight.flush()
    flight.logs.append(SOURCE, "a")
    flight.admit()
    assert all_called(flight) == []
    assert waiting(flight, FIRST) == [(0, 10.0)]
    assert waiting(flight, SECOND) == [(0, pytest.approx(70.1)), (1, pytest.approx(70.1))], "right behind it"


def test_a_record_that_follows_one_of_a_later_tier_holds_up_no_other_key():
    flight = started("a")
    fails(flight, flight.take())
    goes_on(flight, 10.1)
    fails(flight, flight.take())
    flight.flush()
    for key in "aabb":
        flight.logs.append(SOURCE, key)
    flight.admit()
    call = flight.take()
    assert flight.offsets(call) == [3]
    fails(flight, call)
    assert all_called(flight) == []
    goes_on(flight, 10.1)
    assert all_called(flight) == [3, 4], "b is tried when its own time has come, not with a"
    goes_on(flight, 50.1)
    assert all_called(flight) == [0, 1, 2]
    assert [flight.processed(p) for p in TIERS.group(SOURCE)] == [5, 3, 3]


def test_records_of_one_call_follow_each_into_the_tier_of_its_key():
    flight = started("a", unit="batch", batch_rows=10)
    fails(flight, flight.take())
    goes_on(flight, 10.1)
    fails(flight, flight.take())
    flight.logs.append(SOURCE, "b")
    flight.admit()
    fails(flight, flight.take())
    for key in "abca":
        flight.logs.append(SOURCE, key)
    flight.admit()
    assert all_called(flight) == [4]
    assert [offset for offset, _ in waiting(flight, FIRST)] == [0, 1, 3]
    assert [offset for offset, _ in waiting(flight, SECOND)] == [0, 2, 5]


def test_a_record_that_names_another_partition_is_processed_under_its_own_name_and_written_where_it_is():
    """Copied by somebody: written into the partition that it names, it would be another worker's, and out of the order of its key."""
    flight = started("a")
    copied = flight.logs.batch(SOURCE, 0, 1).set_column(3, "partition", pa.array([7], pa.int32()))
    fails(flight, flight.take())
    flight.flush()
    (row,) = retry_records(copied, ["no"], "g", 1, [1], [int(NOW_S * 1000)]).to_pylist()
    flight.logs.append(FIRST, "a", row["headers"], row["value"])
    goes_on(flight, 10.1)
    found = []
    while (call := flight.take()) is not None:
        found.append((call.chunk.origin, flight.offsets(call)))
        fails(flight, call)
    assert found == [(SOURCE, [0])]
    assert [offset for offset, _ in waiting(flight, SECOND)] == [0, 1]
    written = flight.logs.batch(SECOND, 0, 2)
    assert as_they_were(written).batch["topic"].to_pylist() == ["t", "t-retry-10s"]
    assert as_they_were(written).batch["partition"].to_pylist() == [0, 0]


def test_a_next_worker_reads_which_keys_wait_before_it_begins_anything():
    flight = started("aab")
    fails(flight, flight.take())
    all_called(flight)
    flight.commit()
    flight.logs.append(SOURCE, "a")
    after = RetryFlight(flight.logs, flight.committed)
    after.logs.append(SOURCE, "c")
    after.calls.admit_some()
    assert after.take() is None
    assert after.calls.blocked(SOURCE) == "reading ahead: which keys wait in t-retry-10s-0, t-retry-1m-0"
    after.admit()
    assert after.calls.blocked(SOURCE) == ""
    assert all_called(after) == [4], "record 3 follows those of its key"
    assert after.processed(FIRST) == 0, "what was read ahead counts as read by nobody"
    assert [offset for offset, _ in waiting(after, FIRST)] == [0, 1, 3]
    goes_on(after, 10.1)
    assert all_called(after) == [0, 1, 3]


def test_what_was_done_in_a_retry_partition_before_doesnt_hold_its_key():
    flight = started("ab")
    fails(flight, flight.take())
    fails(flight, flight.take())
    goes_on(flight, 10.1)
    first, second = flight.take(), flight.take()
    assert (flight.offsets(first), flight.offsets(second)) == ([0], [1])
    flight.calls.ended(second, None)
    flight.commit()
    assert flight.committed[FIRST].done, "the second one is done, beyond the first"
    flight.logs.append(SOURCE, "a")
    flight.logs.append(SOURCE, "b")
    after = RetryFlight(flight.logs, flight.committed)
    after.admit()
    assert all_called(after) == [3]


def test_of_a_batch_the_records_at_fault_wait_and_those_of_their_keys_behind_them():
    flight = started("abaab", unit="batch", concurrency=1)
    call = flight.take()
    while call is not None:
        bad = 0 in flight.offsets(call)
        flight.calls.ended(call, failure(call) if bad else None)
        call = flight.take()
    assert [offset for offset, _ in waiting(flight, FIRST)] == [0, 2, 3]
    assert flight.processed(SOURCE) == 5


def test_what_has_to_follow_is_left_out_of_a_call_and_the_rest_is_called():
    flight = started("a", unit="batch", batch_rows=10)
    fails(flight, flight.take())
    for key in "bab":
        flight.logs.append(SOURCE, key)
    flight.admit()
    call = flight.take()
    assert flight.offsets(call) == [1, 3]
    flight.calls.ended(call, None)
    assert [offset for offset, _ in waiting(flight, FIRST)] == [0, 2]
    assert flight.processed(SOURCE) == 4


def test_a_call_is_not_shortened_while_records_of_it_are_written_to_where_they_follow():
    """A write may take as long as a slow call does. Records that went to another caller meanwhile would be done without a call."""
    flight = started("a")
    fails(flight, flight.take())
    for key in "bcad":
        flight.logs.append(SOURCE, key)
    flight.calls.in_flight.pace.at_once = 4
    flight.admit()
    write = flight.function.outputs.retry_later

    def slow(*what):
        flight.now += LATE_S
        flight.calls.look(1.0)
        return write(*what)

    flight.function.outputs.retry_later = slow
    call = flight.take()
    assert flight.offsets(call) == [1, 2, 4]
    assert flight.calls.next_row(call) == 0
    flight.calls.look(1.0)
    assert flight.offsets(call) == [1, 2, 4], "the write is no part of the time that the call takes"
    flight.now += LATE_S
    flight.calls.look(1.0)
    assert flight.offsets(call) == [1]
    flight.calls.ended(call, None)
    assert flight.processed(SOURCE) == 2
    assert all_called(flight) == [2, 4]
    assert [offset for offset, _ in waiting(flight, FIRST)] == [0, 3]
    assert flight.processed(SOURCE) == 5


def test_without_keep_order_records_overtake_one_that_waits():
    flight = started("aab", tiers=replace(TIERS, keep_order=False))
    fails(flight, flight.take())
    assert sorted(all_called(flight)) == [1, 2]
    assert [offset for offset, _ in waiting(flight, FIRST)] == [0]


@pytest.mark.parametrize("keep_order", [False, True])
def test_where_the_next_tier_lacks_the_partition_what_fails_is_a_dead_letter(keep_order, caplog):
    """A source that has grown before its retry topics is read all the same without `keep_order`: a record that fails ends no job."""
    flight = started("ab", tiers=replace(TIERS, keep_order=keep_order))

    class Lacks:
        def write(self, *_):
            raise UsageError("t-retry-10s has no partition 0")

    del flight.function.outputs.retry_later
    flight.function.outputs._retries = Lacks()
    if keep_order:
        with pytest.raises(UsageError, match="t-retry-10s has no partition 0"):
            fails(flight, flight.take())
        return
    fails(flight, flight.take())
    assert flight.logs.dead == [0]
    assert flight.events == [RecordsDeadLettered("t", 0, 0, 0, 1, "t-dead", "ValueError: no good")]
    assert "t-retry-10s has no partition 0: what is to be tried again is a dead letter" in caplog.text
    assert all_called(flight) == [1]


class Many(dict):
    """Partitions of which there are thousands."""

    def __iter__(self):
        raise AssertionError("it looks at all of them")

    items = values = keys = __iter__


def test_for_each_item_that_was_fetched_not_all_partitions_are_looked_at():
    """With 10,000 of them that took a twentieth of a second for each item, and a report as many looks at all as there are partitions."""
    flight = started("ab")
    retries = flight.calls._retries
    fails(flight, flight.take())
    goes_on(flight, 0.1)
    flight.assignment.held, retries._groups = Many(flight.assignment.held), Many(retries._groups)
    retries.look()
    assert not retries.takes(SimpleNamespace(partition=SOURCE, epoch=EPOCH))
    assert retries.idle_s() == pytest.approx(9.9)
    assert (retries.blocked(SOURCE), retries.blocked(FIRST)[:7]) == ("", "not due")


def test_unordered_records_overtake_one_that_waits():
    flight = started("aab", tiers=replace(TIERS, keep_order=False), ordering="unordered")
    fails(flight, flight.take())
    assert sorted(all_called(flight)) == [1, 2]


def test_where_another_try_is_useless_the_record_is_a_dead_letter_at_once():
    flight = started("a")
    call = flight.take()
    flight.calls.ended(call, CallFailed(WorkerDiedError(4, "SIGSEGV"), 0, 0, final=True))
    assert flight.logs.dead == [0]
    assert waiting(flight, FIRST) == []


def test_a_record_in_whose_tries_too_many_workers_died_is_told_by_its_offset_in_the_source():
    flight = started("xya")
    for _ in range(2):
        flight.calls.ended(flight.take(), None)
    fails(flight, flight.take())
    flight.commit()
    after = RetryFlight(flight.logs, flight.committed, retries=1)
    after.calls.suspect([DeathsInCall(FIRST, 0, 0, 3, "SIGSEGV")])
    goes_on(after, 20.0)
    assert after.take() is None
    (told,) = after.events
    assert isinstance(told, RecordsDeadLettered)
    assert (told.topic, told.partition, told.first_offset, told.last_offset) == ("t", 0, 2, 2)


def test_retries_at_once_come_first():
    flight = started("a", retries=1)
    fails(flight, flight.take())
    assert waiting(flight, FIRST) == []
    flight.now += 5.0
    fails(flight, flight.take())
    assert [offset for offset, _ in waiting(flight, FIRST)] == [0]
    assert as_they_were(flight.logs.batch(FIRST, 0, 1)).attempts == [2]


def test_a_retry_partition_says_that_its_next_record_is_not_due_though_one_has_failed_for_good():
    """A partition that doesn't move for another reason counts as stalled after `max_poll_interval_ms`."""
    flight = started("ab", retries=1)
    first, second = flight.take(), flight.take()
    for call in (first, None):
        fails(flight, call or flight.take())
        flight.now += 5.0
    assert flight.calls.blocked(SOURCE) == ""
    flight.at += 5.0
    for call in (second, None):
        fails(flight, call or flight.take())
        flight.now += 5.0
    goes_on(flight, 6.0)
    for _ in range(2):
        fails(flight, flight.take())
        flight.now += 5.0
    assert flight.calls.blocked(FIRST).startswith("not due")


def test_a_record_that_somebody_else_put_into_a_retry_topic_is_processed_under_its_own_name():
    flight = started("a")
    flight.logs.append(FIRST, "x")
    fails(flight, flight.take())
    flight.flush()
    flight.logs.append(FIRST, "y")
    goes_on(flight, 10.1)
    found = []
    while (call := flight.take()) is not None:
        found.append((call.chunk.origin.topic, flight.offsets(call)))
        flight.calls.ended(call, None)
    assert sorted(found) == [("t", [0]), ("t-retry-10s", [0]), ("t-retry-10s", [2])]


def test_a_message_of_several_in_one_call_that_fails_is_found_by_its_own_offset():
    flight = started("abc")
    for call in [flight.take() for _ in range(3)]:
        fails(flight, call)
    flight.calls.in_flight.pace.at_once = 3
    goes_on(flight, 10.1)
    call = flight.take()
    assert flight.offsets(call) == [0, 1, 2]
    flight.calls.ended(call, CallFailed(ValueError("no good"), 1, 1))
    assert waiting(flight, SECOND) == [(1, pytest.approx(70.1))]
    assert all_called(flight) == [2]


def test_what_cant_be_written_ends_the_job_with_the_record_still_to_be_done():
    flight = started("a")
    flight.function.outputs.retry_later = lambda *_: (_ for _ in ()).throw(
        ProcessError("t", 0, 0, 0, 1, "full")
    )
    with pytest.raises(ProcessError):
        fails(flight, flight.take())
    assert flight.processed(SOURCE) == 0
    assert flight.commit() == []


def test_the_error_of_a_write_is_left_to_the_flush_before_the_commit():
    """An error counts as heard once somebody asks for the result: the flush would say nothing of it any more."""
    flight = started("a")
    fails(flight, flight.take())
    ((_, _, outcome),) = flight.written
    outcome.failure, outcome.result = OSError("full"), None
    outcome.told()
    flight.written.clear()
    flight.logs.append(SOURCE, "a")
    flight.admit()
    assert all_called(flight) == [], "it is not known to be there, and not known to be done"


def test_a_broker_that_doesnt_tell_an_offset_leaves_the_key_in_doubt():
    flight = started("a")
    fails(flight, flight.take())
    ((_, _, outcome),) = flight.written
    outcome.ranges = [-1]
    outcome.told()
    flight.flush(tell=False)
    goes_on(flight, 10.1)
    assert all_called(flight) == [0]
    flight.logs.append(SOURCE, "a")
    flight.admit()
    assert all_called(flight) == []
    assert [offset for offset, _ in waiting(flight, FIRST)] == [0, 1]


def test_a_drain_ends_with_the_last_of_the_partitions_that_go_together():
    flight = started("ab")
    call = flight.take()
    flight.order([], [Drain(p, EPOCH) for p in TIERS.group(SOURCE)])
    flight.commit()
    assert flight.assignment.release_drained() == []
    flight.calls.ended(call, None)
    assert flight.assignment.release_drained() == [], "its commit is to come"
    flight.commit()
    assert sorted(flight.assignment.release_drained()) == sorted(TIERS.group(SOURCE))


def test_a_bounded_run_leaves_what_it_put_there_for_the_next():
    flight = RetryFlight(
        Logs("aa"), {p: Grant(p, EPOCH, 0, end_offset=2 if p == SOURCE else 0) for p in TIERS.group(SOURCE)}
    )
    flight.admit()
    fails(flight, flight.take())
    assert all_called(flight) == []
    assert [offset for offset, _ in waiting(flight, FIRST)] == [0, 1]
    assert flight.processed(SOURCE) == 2


def test_a_next_worker_of_a_bounded_run_knows_which_keys_wait_behind_its_end():
    """The one before has put them there in this run, which leaves them for the next."""
    ends = {SOURCE: 4, FIRST: 1, SECOND: 0}
    logs = Logs("aabb")
    logs.append(FIRST, "x")
    flight = RetryFlight(logs, {p: Grant(p, EPOCH, 0, end_offset=end) for p, end in ends.items()})
    flight.admit()
    calls = [flight.take() for _ in range(3)]
    fails(flight, next(c for c in calls if c.window.partition == SOURCE and flight.offsets(c) == [0]))
    flight.commit()
    after = RetryFlight(
        logs, {p: replace(grant, end_offset=ends[p]) for p, grant in flight.committed.items()}
    )
    after.admit()
    found = all_called(after)
    assert sorted(found) == [0, 2, 3], "record 1 follows the one of its key; x is the run's"
    assert [after.processed(p) for p in (SOURCE, FIRST)] == [4, 1]
    assert [offset for offset, _ in waiting(after, FIRST)][1:] == [0, 1]
    goes_on(after, 20.0)
    assert after.take() is None, "they are the next run's"


def test_records_that_are_due_by_and_by_keep_no_others_in_memory():
    """Each time, what was fetched is decoded anew, and the head of it is called."""
    flight = RetryFlight(Logs(), size=100, concurrency=50)
    flight.admit()
    for n in range(100):
        flight.logs.append(SOURCE, None, value=b"v" * 1_000)
        made = retry_records(
            flight.logs.batch(SOURCE, n, 1), ["no"], "g", 1, [1], [int(NOW_S * 1000) + n * 1_000]
        )
        (row,) = made.to_pylist()
        flight.logs.append(FIRST, None, row["headers"], row["value"])
    flight.order([Grant(FIRST, EPOCH, 0)])
    for _ in range(20):
        goes_on(flight, 1.0)
        assert flight.take() is not None
    (window,) = flight.calls.in_flight.windows
    assert window.partition == FIRST
    assert window.in_flight == 21
    assert sum(chunk.batch.get_total_buffer_size() for chunk in window.chunks) < 2 * window.size


def test_keys_left_out_of_a_call_over_messages_are_free_after_it_is_cut():
    flight = started("a")
    fails(flight, flight.take())
    flight.flush()
    for key in "abc":
        flight.logs.append(SOURCE, key)
    flight.calls.in_flight.pace.at_once = 3
    flight.admit()
    call = flight.take()
    assert flight.offsets(call) == [2, 3], "record 1 follows"
    flight.calls.ended(call, CallFailed(ValueError("no good"), 3, 3))
    all_called(flight)
    goes_on(flight, 100.0)
    all_called(flight)
    flight.logs.append(SOURCE, "a")
    flight.admit()
    assert all_called(flight) == [4]
    assert flight.processed(SOURCE) == 5


def made_anew(flight, topic):
    """Has a retry partition's topic made anew, and the worker find that."""
    flight.logs.rows[topic].clear()
    with flight.lock:
        flight.assignment.reset(topic, 0, b"j" * 16, cut=False)
    flight.reader.seek(topic, 0)


def test_reading_ahead_ends_where_the_retry_topic_is_made_anew_meanwhile():
    first = started("aab")
    fails(first, first.take())
    all_called(first)
    first.commit()
    after = RetryFlight(first.logs, first.committed)
    after.calls.admit_some()
    for _ in range(3):
        after.calls._retries.look()
    made_anew(after, FIRST)
    after.logs.append(SOURCE, "c")
    for _ in range(20):
        after.now += 1
        after.at += 1
        after.admit()
    assert after.calls.blocked(SOURCE) == ""
    assert 3 in all_called(after)


def test_keys_of_a_retry_topic_that_is_made_anew_are_free():
    flight = started("a")
    for _ in range(5):
        flight.logs.append(FIRST, "x")  # so that offsets there are higher
    fails(flight, flight.take())
    flight.flush()
    made_anew(flight, FIRST)
    flight.logs.append(SOURCE, "a")
    for _ in range(5):
        flight.admit()
    assert all_called(flight) == [1], "nothing of its key waits"


def test_a_failed_call_from_before_a_reset_does_not_free_its_key():
    """Its record is still in the retry topic, in front of where that was cut, and is read again."""
    flight = started("a")
    fails(flight, flight.take())
    goes_on(flight, 10.1)
    call = flight.take()
    assert call.window.partition == FIRST
    with flight.lock:
        assert flight.assignment.reset(FIRST, 1, None, cut=True) is not None
    flight.reader.seek(FIRST, 0)
    fails(flight, call)
    flight.logs.append(SOURCE, "a")
    for _ in range(5):
        flight.admit()
    assert all_called(flight)[:1] == [0]


def test_records_that_follow_say_nothing_of_how_long_a_call_takes():
    flight = started("a")
    fails(flight, flight.take())
    flight.flush()
    pace = flight.calls.in_flight.pace
    pace._one_s, pace.at_once = 0.1, 1
    for _ in range(50):
        flight.logs.append(SOURCE, "a")
    flight.admit()
    assert flight.take() is None
    assert pace.at_once == 1
