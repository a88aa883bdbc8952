"""Offsets and metadata that are committed for all slices of a partition."""

import pytest

from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.job.coordinator.machines.slice_commits import done_in_each, of_all_slices
from kafka_actors.job.lanes import Slice
from kafka_actors.job.messages import CommitEntry
from kafka_actors.types import TopicPartition

ID = bytes(16)


def entry(part, offset, *ranges, epoch=3, rewind=False, parts=2):
    done = DoneOffsets(ranges, epoch).text(offset) if ranges else ""
    return CommitEntry(Slice("t", 0, part, parts), (1, part), offset, epoch, rewind, ID, done)


def merged(*entries):
    found = of_all_slices(entries)
    done = DoneOffsets.of_text(found.done, found.offset)
    return found.offset, [tuple(each) for each in done.ranges.tolist()], done.leader_epoch


def test_the_lowest_offset_counts_and_beyond_it_what_each_has_done_or_passed():
    assert merged(entry(0, 10, (12, 20)), entry(1, 15, (17, 30))) == (10, [(12, 15), (17, 20)], 3)


def test_nothing_counts_beyond_where_a_slice_has_read():
    assert merged(entry(0, 10), entry(1, 900, (950, 990))) == (10, [], -1)


def test_what_lies_below_the_offsets_of_all_others_counts():
    assert merged(entry(0, 10, (11, 100)), entry(1, 100), entry(2, 60)) == (10, [(11, 60)], 3)


def test_ranges_that_touch_are_one():
    done = done_in_each([(10, DoneOffsets([(11, 20)], 1)), (15, DoneOffsets([(15, 20)], 1))], 10)
    assert done.ranges.tolist() == [[11, 20]]


def test_the_oldest_epoch_counts():
    """A record of epoch 2 may stand where one of epoch 3 would be, for all that the first slice knows."""
    assert merged(entry(0, 10, (12, 20), epoch=2), entry(1, 30, epoch=3)) == (10, [(12, 20)], 2)


@pytest.mark.parametrize(("known", "lowest"), [(6, 6), (-1, 7)])
def test_the_offset_is_committed_with_the_oldest_leader_epoch_that_is_known(known, lowest):
    """The slice that is further stands in the log before: of what it has done below 120 nothing is done in the log of epoch 7."""
    assert of_all_slices([entry(0, 110, epoch=7), entry(1, 120, epoch=known)]).leader_epoch == lowest


def test_a_reset_of_one_slice_is_one_of_the_partition():
    found = of_all_slices([entry(0, 4, rewind=True), entry(1, 9)])
    assert (found.partition, found.offset, found.rewind) == (TopicPartition("t", 0), 4, True)
    assert type(found.partition) is TopicPartition
