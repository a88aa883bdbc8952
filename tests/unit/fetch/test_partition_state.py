"""The states of one partition, and the end of a bounded run."""

import pytest

from kafka_actors.errors import (
    UsageError,
)
from kafka_actors.fetch.machines.partition_state import (
    TRANSITIONS,
    FetchState,
    Trigger,
)
from tests.fakes.fetching import A0, E1, Harness, bad, got, wants


def test_a_bounded_partition_ends_at_its_position_not_at_a_record():
    harness = Harness()
    harness.assign(end_offset=25)
    harness.reply(harness.pull(), got(10, 22))
    harness.reply(harness.pulls()[0], got(22, 31))
    assert harness.machine.partitions.require(A0).state is FetchState.AT_END
    assert not harness.machine.partitions.require(A0).end_reached
    first, second = harness.machine.take(), harness.machine.take()
    harness.machine.consumed(first)
    assert not harness.machine.partitions.require(A0).end_reached
    harness.machine.consumed(second, 25)
    assert harness.machine.partitions.require(A0).end_reached


def test_a_bounded_partition_goes_on_behind_a_skipped_batch_though_all_was_fetched():
    harness = Harness(on_bad_batch="skip")
    harness.assign(end_offset=30)
    harness.reply(harness.pull(), got(10, 30))
    item = harness.machine.take()
    harness.machine.consumed(item, 20)
    harness.machine.bad_batch(item, bad(20, 25))
    issue = harness.pulls()[0]
    assert wants(issue) == [(0, 25, E1)]
    harness.reply(issue, got(25, 30))
    assert harness.read() == [(0, 25, 30)]
    assert harness.machine.partitions.require(A0).end_reached


def test_a_bounded_partition_whose_last_batch_is_skipped_is_at_its_end():
    harness = Harness(on_bad_batch="skip")
    harness.assign(end_offset=30)
    harness.reply(harness.pull(), got(10, 30))
    item = harness.machine.take()
    harness.machine.consumed(item, 25)
    harness.machine.bad_batch(item, bad(25, 30))
    assert harness.machine.partitions.require(A0).end_reached
    assert [wants(issue) for issue in harness.pulls()] in ([], [[]])


def test_a_bounded_partition_that_is_already_there_is_not_fetched():
    harness = Harness()
    harness.assign(offset=25, end_offset=25)
    assert harness.pulls() == []
    assert harness.machine.partitions.require(A0).end_reached


@pytest.mark.parametrize("state", FetchState)
@pytest.mark.parametrize("happening", Trigger)
def test_every_pair_that_is_not_in_the_table_is_refused(state, happening):
    harness = Harness()
    partition = harness.assign()
    partition.state = state
    if (state, happening) in TRANSITIONS:
        partition.move(happening)
        assert partition.state is TRANSITIONS[state, happening]
    else:
        with pytest.raises(UsageError):
            partition.move(happening)
        assert partition.state is state
