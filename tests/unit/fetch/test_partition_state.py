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
from tests.fakes.fetching import A0, E1, Bench, bad, got, wants


def test_a_bounded_partition_ends_at_its_position_not_at_a_record():
    bench = Bench()
    bench.assign(end_offset=25)
    bench.reply(bench.pull(), got(10, 22))
    bench.reply(bench.pulls()[0], got(22, 31))
    assert bench.machine.partitions.require(A0).state is FetchState.AT_END
    assert not bench.machine.partitions.require(A0).end_reached
    first, second = bench.machine.take(), bench.machine.take()
    bench.machine.consumed(first)
    assert not bench.machine.partitions.require(A0).end_reached
    bench.machine.consumed(second, 25)
    assert bench.machine.partitions.require(A0).end_reached


def test_a_bounded_partition_goes_on_behind_a_skipped_batch_though_all_was_fetched():
    bench = Bench(on_bad_batch="skip")
    bench.assign(end_offset=30)
    bench.reply(bench.pull(), got(10, 30))
    item = bench.machine.take()
    bench.machine.consumed(item, 20)
    bench.machine.bad_batch(item, bad(20, 25))
    issue = bench.pulls()[0]
    assert wants(issue) == [(0, 25, E1)]
    bench.reply(issue, got(25, 30))
    assert bench.read() == [(0, 25, 30)]
    assert bench.machine.partitions.require(A0).end_reached


def test_a_bounded_partition_whose_last_batch_is_skipped_is_at_its_end():
    bench = Bench(on_bad_batch="skip")
    bench.assign(end_offset=30)
    bench.reply(bench.pull(), got(10, 30))
    item = bench.machine.take()
    bench.machine.consumed(item, 25)
    bench.machine.bad_batch(item, bad(25, 30))
    assert bench.machine.partitions.require(A0).end_reached
    assert [wants(issue) for issue in bench.pulls()] in ([], [[]])


def test_a_bounded_partition_that_is_already_there_is_not_fetched():
    bench = Bench()
    bench.assign(offset=25, end_offset=25)
    assert bench.pulls() == []
    assert bench.machine.partitions.require(A0).end_reached


@pytest.mark.parametrize("state", FetchState)
@pytest.mark.parametrize("happening", Trigger)
def test_every_pair_that_is_not_in_the_table_is_refused(state, happening):
    bench = Bench()
    partition = bench.assign()
    partition.state = state
    if (state, happening) in TRANSITIONS:
        partition.move(happening)
        assert partition.state is TRANSITIONS[state, happening]
    else:
        with pytest.raises(UsageError):
            partition.move(happening)
        assert partition.state is state
