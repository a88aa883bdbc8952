"""Whose turn it is, and what comes together."""

from kafka_actors.fetch.machines.buffer import Buffer, PartitionSlice
from kafka_actors.fetch.messages import FetchedPartition
from kafka_actors.types import TopicPartition

OLD, NEW = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_partition_taken_over_goes_before_what_waits_of_the_others():
    buffer = Buffer(1_000)
    response = buffer.hold(1, 100)
    for start in (0, 10, 20):
        buffer.add(OLD, _slice(OLD, start, response), paused=False)
    assert buffer.take().partition == OLD
    assert not buffer.newcomer
    buffer.add(NEW, _slice(NEW, 0, response), paused=False)
    assert buffer.newcomer
    assert [buffer.take().partition for _ in range(3)] == [NEW, OLD, OLD]
    buffer.drop(NEW, in_hand=True)
    buffer.add(NEW, _slice(NEW, 0, response), paused=False)
    assert not buffer.newcomer  # whoever works on it may still have what came before
    buffer.drop(NEW, in_hand=True)
    buffer.forget(NEW)
    buffer.add(NEW, _slice(NEW, 0, response), paused=False)
    assert buffer.newcomer


def test_slices_that_follow_each_other_come_together_up_to_a_bound():
    buffer = Buffer(1_000, together=25)
    response = buffer.hold(1, 100)
    for start in (0, 10, 20):
        buffer.add(OLD, _slice(OLD, start, response, size=10), paused=False)
    taken = [buffer.take(), buffer.take()]
    assert [(item.fetch_offset, item.next_offset) for item in taken] == [(0, 20), (20, 30)]
    assert not buffer.ready
    assert buffer.buffered(OLD) == 0


def test_a_slice_larger_than_the_bound_comes_alone():
    buffer = Buffer(1_000, together=25)
    response = buffer.hold(1, 100)
    for start in (0, 10):
        buffer.add(OLD, _slice(OLD, start, response, size=30), paused=False)
    assert len(buffer.take().slices) == 1


def test_what_does_not_follow_comes_alone():
    """A gap, another epoch, aborted transactions, or a slice in which no batch was whole."""
    last = {"fetch_offset": 10, "next_offset": 20}
    for other in (
        {**last, "fetch_offset": 11},
        {**last, "epoch": (1, 2)},
        {**last, "aborted": ((1, 12),)},
        {**last, "next_offset": 10},
    ):
        buffer = Buffer(1_000, together=1_000)
        response = buffer.hold(1, 100)
        buffer.add(OLD, _slice(OLD, 0, response), paused=False)
        buffer.add(OLD, _slice(OLD, 10, response, **other), paused=False)
        assert len(buffer.take().slices) == 1, other


def test_memory_is_let_go_slice_by_slice_and_a_seek_voids_the_rest():
    buffer = Buffer(1_000, together=1_000)
    for start in (0, 10, 20):
        buffer.add(OLD, _slice(OLD, start, buffer.hold(1, 100)), paused=False)
    item = buffer.take()
    assert buffer.total == 300
    assert buffer.consumed(OLD, 15)
    assert buffer.total == 200
    assert item.valid
    buffer.drop(OLD, in_hand=True)
    assert buffer.total == 0
    assert not item.valid


def test_one_by_one_nothing_more_comes_of_a_partition_before_it_is_done_with_what_it_has():
    buffer = Buffer(1_000, one_by_one=True)
    response = buffer.hold(1, 100)
    for start in (0, 10):
        buffer.add(OLD, _slice(OLD, start, response, size=10), paused=False)
    buffer.add(NEW, _slice(NEW, 0, response, size=10), paused=False)
    taken = [buffer.take(), buffer.take()]
    assert [item.partition for item in taken] == [OLD, NEW]
    assert not buffer.ready
    assert buffer.crowding(1) == [OLD]
    buffer.pause(OLD)
    assert not buffer.consumed(OLD, 5)
    buffer.resume(OLD)
    assert not buffer.ready
    buffer.consumed(OLD, 10)
    assert buffer.take().fetch_offset == 10
    # Each that is in hand has its own bytes; the rest of the response is free.
    assert buffer.total == 20
    buffer.drop(OLD, in_hand=True)
    buffer.consumed(NEW, 10)
    assert buffer.total == 0


def test_what_is_put_back_comes_again_from_its_position_after_the_others():
    buffer = Buffer(1_000, together=25)
    response = buffer.hold(1, 100)
    for start in (0, 10, 20):
        buffer.add(OLD, _slice(OLD, start, response, size=10), paused=False)
    first, ahead = buffer.take(), buffer.take()
    assert (first.next_offset, ahead.fetch_offset) == (20, 20)
    buffer.add(NEW, _slice(NEW, 0, response), paused=False)
    buffer.consumed(OLD, 13)
    buffer.put_back(OLD, 13, paused=False)
    assert (buffer.total, buffer.buffered(OLD)) == (100, 20)
    new, old = buffer.take(), buffer.take()
    assert (new.partition, old.fetch_offset, old.next_offset) == (NEW, 13, 30)
    assert not buffer.ready
    buffer.consumed(OLD, 30)
    buffer.consumed(NEW, 10)
    assert buffer.total == 0


def _slice(tp, start, response, *, size=1, **fields):
    told = {"epoch": (1, 1), "fetch_offset": start, "next_offset": start + 10, **fields}
    return PartitionSlice(memoryview(bytes(size)), FetchedPartition(tp.topic, tp.partition, **told), response)
