"""Chunks into batches of a wanted size."""

import pyarrow as pa

from kafka_actors.job.worker.machines.rebatch import CallBatch, Rebatcher


def piece(first, rows, next_offset=None, resets=0, leader_epoch=-1):
    offsets = pa.array(range(first, first + rows), pa.int64())
    batch = pa.record_batch([offsets], ["offset"])
    return CallBatch(batch, first + rows if next_offset is None else next_offset, leader_epoch, resets)


def shape(pieces):
    return [(p.batch["offset"].to_pylist(), p.next_offset) for p in pieces]


def test_without_a_size_chunks_pass_as_they_are():
    whole = piece(0, 5)
    assert list(Rebatcher(None).add(whole, 0.0)) == [whole]


def test_a_chunk_is_cut_and_only_the_last_cut_moves_past_what_has_no_rows():
    cuts = list(Rebatcher(2).add(piece(10, 5, next_offset=20), 0.0))
    assert shape(cuts) == [([10, 11], 12), ([12, 13], 14), ([14], 20)]


def test_with_a_linger_the_rest_waits_for_more():
    rebatcher = Rebatcher(4, linger_s=1.0)
    assert shape(rebatcher.add(piece(0, 6), 0.0)) == [([0, 1, 2, 3], 4)]
    assert rebatcher.next_due == 1.0
    assert shape(rebatcher.add(piece(6, 3), 0.5)) == [([4, 5, 6, 7], 8)]
    assert rebatcher.due(1.0) is None
    late = rebatcher.due(1.5)
    assert shape([late]) == [([8], 9)]
    assert rebatcher.next_due is None


def test_what_came_before_a_reset_is_not_joined_with_what_comes_after():
    rebatcher = Rebatcher(4, linger_s=1.0)
    assert list(rebatcher.add(piece(100, 3), 0.0)) == []
    assert shape(rebatcher.add(piece(0, 2, resets=1), 0.5)) == [([100, 101, 102], 103)]
    assert rebatcher.next_due == 1.5
    assert shape(rebatcher.add(piece(2, 2, resets=1), 0.5)) == [([0, 1, 2, 3], 4)]


def test_records_of_two_leader_epochs_are_not_joined():
    """Offsets committed within a batch have one epoch."""
    rebatcher = Rebatcher(4, linger_s=1.0)
    assert list(rebatcher.add(piece(0, 3, leader_epoch=1), 0.0)) == []
    (first,) = rebatcher.add(piece(3, 3, leader_epoch=2), 0.5)
    assert (shape([first]), first.leader_epoch) == ([([0, 1, 2], 3)], 1)
    last = rebatcher.due(1.5)
    assert (shape([last]), last.leader_epoch) == ([([3, 4, 5], 6)], 2)


def test_a_chunk_without_rows_moves_the_offset_of_what_is_held():
    rebatcher = Rebatcher(4, linger_s=1.0)
    list(rebatcher.add(piece(0, 2), 0.0))
    list(rebatcher.add(piece(2, 0, next_offset=9), 0.1))
    assert shape([rebatcher.due(2.0)]) == [([0, 1], 9)]


def test_a_chunk_without_rows_passes_when_nothing_is_held_back():
    assert shape(Rebatcher(4).add(piece(2, 0, next_offset=9), 0.0)) == [([], 9)]
