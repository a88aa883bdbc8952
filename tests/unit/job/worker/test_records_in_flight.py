"""Which records the next call has, where calls overtake each other."""

import pyarrow as pa
import pytest

from kafka_actors.group.done_offsets import NOTHING_DONE
from kafka_actors.job.messages import DeathsInCall
from kafka_actors.job.status import WindowStatus, key_text
from kafka_actors.job.worker.machines.record_window import WindowChunk
from kafka_actors.job.worker.machines.records_in_flight import RecordsInFlight
from kafka_actors.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Scene:
    """Records in flight whose windows are all open, unless they are in `shut`."""

    def __init__(self, ordering="key", callers=4, *, retries=1, most_rows=1_000, **kind):
        self.shut = set()
        self.in_flight = RecordsInFlight(
            ordering,
            callers,
            **(kind or {"messages": True}),
            retries=retries,
            most_rows=most_rows,
            most_bytes=1 << 30,
            may_begin=lambda window: not window.closed and window.partition not in self.shut,
        )

    def admit(self, keys, first=0, partition=P0, resets=0):
        window = self.in_flight.window(partition, (1, 1), resets, first, NOTHING_DONE)
        offsets = range(first, first + len(keys))
        batch = pa.record_batch(
            {
                "key": pa.array([k if k is None else k.encode() for k in keys], pa.binary()),
                "offset": pa.array(offsets, pa.int64()),
            }
        )
        self.in_flight.admit(
            WindowChunk(window, batch, first + len(keys), 1, keyed=self.in_flight.keyed), 0.0
        )
        return window

    def take(self, now=0.0):
        return self.in_flight.take(now)

    def taken(self):
        """Takes all calls that can begin; returns them by their first offset."""
        found = {}
        while (call := self.take()) is not None:
            found[call.first] = call
        return found

    def finish(self, call, now=0.0):
        return self.in_flight.finished(call, now)


def test_records_of_a_key_are_called_one_after_another_and_others_at_once():
    scene = Scene()
    window = scene.admit("aabac")
    calls = scene.taken()
    assert sorted(calls) == [0, 2, 4]
    scene.finish(calls[2])
    assert scene.take() is None
    scene.finish(calls[0])
    assert scene.take().first == 1
    assert window.watermark == 1
    assert window.beyond().ranges.tolist() == [[2, 3]]


def test_keys_are_of_their_partition():
    scene = Scene()
    scene.admit("a")
    scene.admit("a", partition=P1)
    assert [(call.window.partition, call.first) for call in (scene.take(), scene.take())] == [
        (P0, 0),
        (P1, 0),
    ]


def test_records_without_a_key_wait_for_nothing():
    scene = Scene()
    scene.admit([None, None, "a", None])
    assert sorted(scene.taken()) == [0, 1, 2, 3]


def test_unordered_nothing_waits():
    scene = Scene("unordered")
    scene.admit("aaaa")
    assert sorted(scene.taken()) == [0, 1, 2, 3]


def test_a_key_that_comes_with_a_later_chunk_waits_too():
    scene = Scene()
    scene.admit("a")
    calls = scene.taken()
    scene.admit("ab", first=1)
    assert scene.take().first == 2
    scene.finish(calls[0])
    assert scene.take().first == 1


def test_a_call_over_a_batch_has_an_even_share_and_its_keys_whole():
    scene = Scene(callers=2, batch_rows=None)
    scene.admit("abcdaabb")
    calls = scene.taken()
    assert [call.rows for call in calls.values()] == [[0, 4], [1, 6], [2], [3]]
    for call in calls.values():
        scene.finish(call)
    assert {tuple(call.rows) for call in scene.taken().values()} == {(5,), (7,)}


def test_batch_rows_is_the_most_of_a_call():
    scene = Scene("unordered", batch_rows=3)
    scene.admit("abcdefgh")
    assert [call.rows for call in scene.taken().values()] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    scene = Scene(batch_rows=3)
    scene.admit("aaaab")
    (call,) = [scene.take()]
    assert call.rows == [0, 1, 2]
    assert call.batch["offset"].to_pylist() == [0, 1, 2]


def test_rows_with_gaps_make_a_batch_of_their_own():
    scene = Scene(callers=1, batch_rows=2)
    scene.admit("aba")
    assert scene.take().batch["offset"].to_pylist() == [0, 2]


def test_a_failed_call_parks_its_key_and_others_go_on():
    scene = Scene()
    scene.admit("aab")
    calls = scene.taken()
    scene.in_flight.again(calls[0], due=5.0)
    scene.finish(calls[2])
    assert scene.take(4.9) is None
    assert scene.in_flight.next_due() == 5.0
    assert scene.in_flight.ready(5.0) == 1
    again = scene.take(5.0)
    assert again is calls[0]
    scene.finish(again)
    assert scene.take(5.0).first == 1


def test_of_a_batch_that_fails_only_the_key_at_fault_waits():
    scene = Scene(callers=1, batch_rows=8)
    window = scene.admit("abacda")
    call = scene.take()
    assert scene.in_flight.split(call)
    one, two = scene.take(), scene.take()
    assert (one.rows, two.rows) == ([0, 1, 2, 5], [3, 4])
    scene.finish(two)
    assert scene.in_flight.split(one)
    bad, good = scene.take(), scene.take()
    assert (bad.rows, good.rows) == ([0, 2, 5], [1])
    scene.finish(good)
    assert not scene.in_flight.split(bad)
    scene.in_flight.again(bad, due=5.0)
    scene.admit("ab", first=6)
    assert scene.take().rows == [1], "of the next chunk only what is of another key"
    assert scene.take() is None
    assert window.beyond().ranges.tolist() == [[1, 2], [3, 5]]
    assert scene.take(5.0) is bad
    assert scene.in_flight.calls == 2


def test_keys_of_records_that_were_left_out_are_free_when_the_parts_of_their_call_end():
    scene = Scene(callers=1, batch_rows=3)
    window = scene.admit("abca")
    call = scene.take()
    assert call.rows == [0, 1, 3]
    scene.in_flight.leave_out(call, [0, 3])
    assert not scene.in_flight.split(call), "one key is left"
    scene.in_flight.again(call, due=0.0)
    scene.admit("aa", first=4)
    scene.finish(scene.take())
    assert scene.take().first == 2
    scene = Scene(callers=1, batch_rows=4)
    window = scene.admit("abcd")
    call = scene.take()
    scene.in_flight.leave_out(call, [0])
    assert scene.in_flight.split(call)
    scene.admit("a", first=4)
    parts = [scene.take(), scene.take()]
    assert [part.rows for part in parts] == [[1], [2, 3]]
    for part in parts:
        scene.finish(part)
    assert window.watermark == 4
    assert scene.take().first == 4, "the key of the record that was left out is free"


def test_halves_are_called_one_after_another_and_only_then_the_key_is_free():
    scene = Scene(callers=1, batch_rows=4)
    window = scene.admit("aaaaa")
    call = scene.take()
    scene.in_flight.halve(call)
    half = scene.take()
    assert half.rows == [0, 1]
    assert scene.take() is None
    assert scene.in_flight.next_half(half)
    other = scene.take()
    assert other.rows == [2, 3]
    scene.in_flight.halve(other)
    (one,) = [scene.take()]
    assert one.rows == [2]
    assert scene.in_flight.next_half(one)
    last = scene.take()
    assert not scene.in_flight.next_half(last)
    scene.finish(last)
    assert window.watermark == 4
    assert scene.take().rows == [4]


def test_what_was_dropped_is_not_called_and_its_calls_end_without_effect():
    scene = Scene()
    window = scene.admit("ab")
    call = scene.take()
    scene.in_flight.drop([P0])
    assert scene.take() is None
    assert scene.finish(call) == []
    assert (window.watermark, scene.in_flight.calls, window.hand.calls) == (0, 0, 0)


def test_after_a_reset_only_what_came_since_is_called():
    scene = Scene()
    before = scene.admit("ab")
    call = scene.take()
    after = scene.admit("c", first=50, resets=1)
    assert before.closed
    assert scene.take().first == 50
    assert after.hand is before.hand, "calls in hand of both keep the partition from being released"
    assert after.hand.calls == 2
    scene.finish(call)
    assert after.hand.calls == 1


def test_a_window_that_may_not_begin_is_passed_over():
    scene = Scene()
    scene.admit("ab")
    scene.admit("c", partition=P1)
    scene.shut.add(P0)
    assert [call.window.partition for call in scene.taken().values()] == [P1]


def test_a_window_is_full_from_the_first_undone_record_to_the_newest():
    scene = Scene("unordered", most_rows=4)
    window = scene.admit("abcd")
    assert scene.in_flight.full(window)
    assert not scene.in_flight.roomy(P0)
    calls = scene.taken()
    for offset in (1, 2, 3):
        scene.finish(calls[offset])
    assert not scene.in_flight.roomy(P0), "the first one holds it"
    assert scene.in_flight.blocked(P0, 0.5) == ""
    assert scene.in_flight.blocked(P0, 7.0) == (
        f"its window is full: 4 records, held for 7 s by offset 0, {key_text(b'a')}"
    )
    scene.finish(calls[0], now=7.0)
    assert scene.in_flight.roomy(P0)
    assert scene.in_flight.blocked(P0, 20.0) == ""


def test_each_partition_has_an_equal_share_of_the_bytes():
    scene = Scene("unordered")
    one = scene.admit("abcd")
    scene.in_flight._most_bytes = one.size
    assert scene.in_flight.full(one)
    scene.in_flight._most_bytes = one.size + 1
    assert not scene.in_flight.full(one)
    scene.admit("a", partition=P1)
    assert scene.in_flight.full(one)
    assert not scene.in_flight.roomy(P0)


def test_all_windows_together_have_no_more_than_all_bytes_but_for_an_eighth_of_a_share_each():
    """Windows that were made first had larger shares."""
    scene = Scene("unordered")
    one = scene.admit("abcdefgh")
    scene.in_flight._most_bytes = one.size
    other = scene.admit("", first=100, partition=P1)
    share = one.size // 2
    assert scene.in_flight.room_bytes(other) == share // 8
    assert not scene.in_flight.full(other)
    scene.admit("a", first=100, partition=P1)
    assert scene.in_flight.full(other)
    for call in scene.taken().values():
        if call.window is one:
            scene.finish(call)
    assert scene.in_flight.room_bytes(other) == share - other.size


def test_a_window_in_numbers_has_calls_parked_ones_keys_and_what_holds_it_up():
    scene = Scene()
    assert scene.in_flight.status(P0, 1.0) is None
    scene.admit("aab")
    calls = scene.taken()
    scene.in_flight.again(calls[0], due=5.0)
    assert scene.in_flight.status(P0, 3.0) == WindowStatus(3, 1, 1, 2, 3.0, f"offset 0, {key_text(b'a')}")
    scene.finish(calls[2], now=3.0)
    assert scene.in_flight.status(P0, 4.0) == WindowStatus(3, 0, 1, 1, 4.0, f"offset 0, {key_text(b'a')}")
    scene.finish(scene.take(5.0), now=6.0)
    assert scene.in_flight.status(P0, 8.0) == WindowStatus(2, 0, 0, 1, 2.0, f"offset 1, {key_text(b'a')}")
    scene.finish(scene.take(8.0), now=8.0)
    assert scene.in_flight.status(P0, 9.0) == WindowStatus()


def test_keys_are_told_where_they_need_not_be_redacted():
    scene = Scene(messages=True, redact_keys=False)
    scene.admit(["alice"])
    assert scene.in_flight.status(P0, 1.0).held_by == "offset 0, key 'alice'"


def died(first, last, times=1):
    return DeathsInCall(P0, first, last, times, "SIGSEGV")


def test_records_in_whose_call_workers_died_are_called_alone():
    scene = Scene()
    scene.in_flight.suspect([died(1, 2)])
    scene.admit("abcd")
    for offset in (1, 2):
        call = scene.take()
        assert (call.first, call.alone) == (offset, True)
        assert scene.take() is None
        assert scene.in_flight.ready(0.0) == 0
        scene.finish(call)
    assert sorted(scene.taken()) == [0, 3]


def test_a_suspect_is_called_alone_though_others_of_its_key_are_called_together():
    """Together with them it would be another call, of which no death is known."""
    scene = Scene(batch_rows=10)
    scene.in_flight.suspect([died(2, 2)])
    scene.admit("aaaa")
    for rows, alone in (([0, 1], False), ([2], True), ([3], False)):
        call = scene.take()
        assert (call.rows, call.alone) == (rows, alone)
        scene.finish(call)


def test_of_several_deaths_in_one_partition_each_is_known_and_records_between_them_are_called_as_ever():
    scene = Scene(retries=1)
    scene.in_flight.suspect([died(0, 0, 2), died(3, 3, 1)])
    scene.admit("abcd")
    call = scene.take()
    assert (call.first, call.alone, scene.in_flight.too_many_deaths(call) is not None) == (0, True, True)
    scene.finish(call)
    call = scene.take()
    assert (call.first, call.alone, scene.in_flight.too_many_deaths(call)) == (3, True, None)
    scene.finish(call)
    assert sorted(scene.taken()) == [1, 2]


def test_a_suspect_that_is_called_again_is_called_alone():
    scene = Scene()
    scene.in_flight.suspect([died(0, 0)])
    scene.admit("abc")
    call = scene.take()
    scene.in_flight.again(call, due=5.0)
    other = scene.take(1.0)
    assert (other.first, other.alone) == (1, False)
    assert scene.take(6.0) is None, "another one is in hand"
    assert scene.in_flight.ready(6.0) == 0
    scene.finish(other)
    assert scene.take(6.0) is call
    assert scene.take(6.0) is None, "the third waits until it is over"
    scene.finish(call)
    assert scene.take(6.0).first == 2


def test_a_suspect_waits_for_the_calls_in_hand():
    scene = Scene()
    scene.in_flight.suspect([died(2, 2)])
    scene.admit("ab")
    calls = scene.taken()
    scene.admit("cd", first=2)
    assert scene.take() is None
    for call in calls.values():
        scene.finish(call)
    assert scene.take().first == 2


@pytest.mark.parametrize(("times", "too_many"), [(1, False), (2, True)])
def test_after_too_many_deaths_a_record_is_not_called_again(times, too_many):
    scene = Scene(retries=1)
    scene.in_flight.suspect([died(1, 1, times)])
    scene.admit("ab")
    call = scene.take()
    assert call.first == 1
    assert (scene.in_flight.too_many_deaths(call) is not None) == too_many


def test_a_death_with_several_records_is_no_proof_against_one():
    scene = Scene(retries=1)
    scene.in_flight.suspect([died(0, 1, 9)])
    scene.admit("ab")
    assert scene.in_flight.too_many_deaths(scene.take()) is None


def test_quick_calls_over_messages_take_several_at_once_none_of_which_waits_for_another():
    scene = Scene()
    scene.in_flight.pace.at_once = 3
    scene.admit("aabcd")
    calls = scene.taken()
    assert [call.rows for call in calls.values()] == [[0, 2, 3], [4]]
    scene.finish(calls[0])
    assert scene.take().rows == [1]


def test_of_several_at_once_those_before_the_failed_one_are_done_and_those_behind_it_ready():
    scene = Scene()
    scene.in_flight.pace.at_once = 4
    window = scene.admit("abacdb")
    call = scene.take()
    assert call.rows == [0, 1, 3, 4]
    scene.in_flight.cut(call, 1)
    assert call.rows == [1]
    assert window.chunks[0].done == bytes([1, 0, 0, 0, 0, 0])
    again = scene.take()
    assert again.rows == [2, 3, 4], "the key of the first one is free again"
    scene.in_flight.again(call, due=5.0)
    scene.finish(again)
    assert scene.take(4.0) is None, "the failed one's key is parked"
    scene.finish(scene.take(5.0))
    assert scene.take(5.0).rows == [5]
