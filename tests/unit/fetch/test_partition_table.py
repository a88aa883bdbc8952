"""The partitions of a fetcher: what calls, metadata and time change in them, and what the owner is told to do about it."""

from __future__ import annotations

import math

import pytest

from kafka_actors.errors import TopicRecreatedError, UsageError
from kafka_actors.fetch.machines.partition_state import FetchState, LookupPurpose, PartitionStart
from kafka_actors.fetch.machines.partition_table import PartitionTable
from kafka_actors.fetch.machines.resets import ResetPolicy
from kafka_actors.types import TopicPartition
from tests.fakes.fetching import snapshot

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
LIFETIME_S = 300.0


def table_of(*leaders, on_data_loss="reset", start=None, **more):
    """A table with the first partition of topic a, which is read from offset 10."""
    made = PartitionTable(ResetPolicy("earliest", on_data_loss), lambda failures: 0.5 * 2**failures)
    made.assign(A0, start or PartitionStart((1, 1), 10, 4), snapshot(*(leaders or (1, 2)), **more))
    settle(made)
    return made


def settle(table):
    """Lets the owner act: nothing is left to do."""
    table.dirty.clear()
    table.discard.clear()


def fetched(table, up_to, handed_out=None, consumed=None):
    """Has the partition read so far."""
    partition = table.require(A0)
    partition.fetched = up_to
    partition.delivered = up_to if handed_out is None else handed_out
    partition.position = partition.delivered if consumed is None else consumed
    return partition


def offsets(partition):
    return partition.position, partition.delivered, partition.fetched


# ---------------------------------------------------------------- assignment


def test_a_partition_with_an_offset_under_a_newer_leader_epoch_is_validated_before_it_is_read():
    """Epoch 5 leads; the record before the offset was of epoch 4 (KIP-320)."""
    partition = table_of().require(A0)
    assert (partition.state, partition.leader, offsets(partition)) == (FetchState.VALIDATING, 1, (10, 10, 10))


@pytest.mark.parametrize("epoch", [5, -1])
def test_a_position_of_the_leaders_own_epoch_or_of_none_is_not_doubted(epoch):
    table = table_of(start=PartitionStart((1, 1), 10, epoch))
    assert table.require(A0).state is FetchState.FETCHING


def test_a_partition_without_an_offset_waits_for_one():
    table = table_of(start=PartitionStart((1, 1)))
    assert table.require(A0).state is FetchState.AWAITING_OFFSET
    assert table.to_ask(FetchState.AWAITING_OFFSET, 0.0) == [table.require(A0)]


def test_the_same_assignment_twice_changes_nothing_and_a_new_epoch_begins_anew():
    table = table_of()
    fetched(table, 20)
    table.assign(A0, PartitionStart((1, 1), 10, 4), None)
    assert offsets(table.require(A0)) == (20, 20, 20)
    assert not table.dirty

    table.assign(A0, PartitionStart((1, 2), 12), None)

    assert offsets(table.require(A0)) == (12, 12, 12)
    assert table.discard == {A0: True}, "what was handed out under the former epoch is void as well"


def test_what_was_handed_out_stays_valid_under_a_new_epoch_and_the_rest_is_fetched_again():
    table = table_of()
    partition = fetched(table, 30, handed_out=20, consumed=15)
    table.regrant(A0, (2, 1))
    assert (partition.epoch, offsets(partition)) == ((2, 1), (15, 20, 20))
    assert table.discard == {A0: False}
    settle(table)
    table.regrant(A0, (2, 1))
    assert not table.discard


def test_a_partition_that_is_taken_away_is_unknown_and_all_of_it_is_void():
    table = table_of()
    table.revoke(A0)
    assert (len(table), A0 in table, table.get(A0)) == (0, False, None)
    assert (table.discard, list(table.dirty)) == ({A0: True}, [A0])
    with pytest.raises(UsageError, match="a-0 is not assigned"):
        table.seek(A0, 5)


def test_a_drain_keeps_what_was_handed_out_and_asks_for_nothing_more():
    table = table_of(start=PartitionStart((1, 1)))
    table.drain(A0)
    assert table.to_ask(FetchState.AWAITING_OFFSET, 0.0) == []
    settle(table)
    table.drain(A0)
    assert not table.dirty, "it drains already"


# ---------------------------------------------------------------- moves of the position


def test_a_seek_moves_all_three_offsets_and_voids_what_was_handed_out():
    table = table_of()
    partition = fetched(table, 30, handed_out=20, consumed=15)
    table.seek(A0, 3)
    assert (offsets(partition), partition.state) == ((3, 3, 3), FetchState.FETCHING)
    assert table.discard == {A0: True}


def test_a_rewind_goes_back_to_what_is_consumed_and_dropping_only_to_what_was_handed_out():
    table = table_of()
    partition = fetched(table, 30, handed_out=20, consumed=15)
    table.drop_waiting(A0)
    assert (offsets(partition), table.discard) == ((15, 20, 20), {A0: False})
    settle(table)
    table.rewind(A0)
    assert (offsets(partition), table.discard) == ((15, 15, 15), {A0: True})


def test_a_bounded_partition_ends_at_its_end_and_goes_on_when_what_it_had_is_dropped():
    table = table_of(start=PartitionStart((1, 1), 10, end_offset=20))
    partition = fetched(table, 20, handed_out=12)
    table.check_end(partition)
    assert partition.state is FetchState.AT_END

    table.drop_waiting(A0)

    assert (partition.state, partition.fetched) == (FetchState.FETCHING, 12)


def test_behind_records_that_cannot_be_read_nothing_that_was_fetched_is_valid():
    table = table_of(start=PartitionStart((1, 1), 10, end_offset=40))
    partition = fetched(table, 40, handed_out=20, consumed=15)
    table.check_end(partition)
    partition.retry_at = math.inf
    table.skip_to(partition, 25)
    assert (offsets(partition), partition.state, partition.retry_at) == (
        (25, 25, 25),
        FetchState.FETCHING,
        0.0,
    )
    assert table.discard == {A0: True}
    table.skip_to(partition, 40)
    assert partition.state is FetchState.AT_END


def test_the_epoch_of_the_position_is_that_of_the_last_consumed_record_that_had_one():
    table = table_of()
    partition = table.require(A0)
    table.consumed(partition, 11, 5)
    table.consumed(partition, 12, -1)
    assert (partition.position, partition.position_epoch) == (12, 5)


# ---------------------------------------------------------------- errors


def test_the_first_error_stays_until_a_seek_and_a_pause_hides_it():
    table = table_of()
    partition, first = table.require(A0), ValueError("first")
    table.fail(partition, first)
    table.fail(partition, ValueError("second"))
    assert [p.error for p in table.failures()] == [first]
    table.pause(A0)
    assert table.failures() == []
    table.resume(A0)
    assert table.failures() == [partition]
    table.seek(A0, 5)
    assert (table.failures(), partition.error) == ([], None)


def test_the_error_of_a_partition_that_is_gone_is_not_raised():
    table = table_of()
    table.fail(table.require(A0), ValueError("no"))
    table.assign(A0, PartitionStart((1, 2), 10), snapshot(1, 2))
    assert table.failures() == []


# ---------------------------------------------------------------- metadata


def test_a_new_leader_ends_a_backoff_and_a_replica_and_has_the_position_validated():
    table = table_of(start=PartitionStart((1, 1), 10, 5))
    partition = table.require(A0)
    table.back_off(partition, "no answer", 100.0)
    table.prefer_replica(partition, 3, 100.0)

    table.on_snapshot(snapshot(2, 2, epochs=[6, 6]))

    assert (partition.leader, partition.leader_epoch) == (2, 6)
    assert (partition.retry_at, partition.source) == (0.0, 2)
    assert partition.state is FetchState.VALIDATING


def test_metadata_that_is_older_than_what_a_broker_said_itself_changes_no_leader():
    table = table_of()
    partition = table.require(A0)
    table.set_leader(partition, 3, 8)
    table.on_snapshot(snapshot(1, 1, epochs=[7, 7]))
    assert (partition.leader, partition.leader_epoch) == (3, 8)


def test_a_topic_that_metadata_lacks_costs_the_leader_and_not_the_position():
    table = table_of(start=PartitionStart((1, 1), 10))
    table.on_snapshot(snapshot(brokers=(1,)))
    partition = table.require(A0)
    assert (partition.leader, partition.leader_epoch, offsets(partition)) == (-1, 5, (10, 10, 10))
    assert partition.state is FetchState.FETCHING


def test_a_preferred_replica_that_is_no_broker_any_more_is_left():
    table = table_of()
    partition = table.require(A0)
    table.prefer_replica(partition, 3, 0.0)
    table.on_snapshot(snapshot(1, 2, brokers=(1, 2)))
    assert partition.source == 1


@pytest.mark.parametrize(
    ("loss", "state"), [("reset", FetchState.AWAITING_OFFSET), ("fail", FetchState.FAILED)]
)
def test_a_topic_made_anew_under_the_name_ends_the_position(loss, state):
    table = table_of(on_data_loss=loss)
    partition = fetched(table, 30, handed_out=20)

    table.on_snapshot(snapshot(1, 2, epochs=[0, 0], topic_id=b"o" * 16))

    assert (partition.state, partition.purpose) == (state, LookupPurpose.RECREATED)
    assert partition.leader_epoch == 0, "epochs of two topics can't be compared"
    assert table.discard == {A0: True}
    assert [type(p.error) for p in table.failures()] == ([TopicRecreatedError] if loss == "fail" else [])


# ---------------------------------------------------------------- time


def test_failures_in_a_row_wait_longer_each_time_until_a_position_is_set():
    table = table_of()
    partition = table.require(A0)
    table.back_off(partition, "no answer", 100.0)
    assert (partition.retry_at, table.wakeup()) == (101.0, 101.0)
    table.tick(100.9)
    assert table.to_ask(FetchState.VALIDATING, 100.9) == []
    settle(table)
    table.tick(101.0)
    assert (partition.retry_at, table.wakeup(), list(table.dirty)) == (0.0, None, [A0])
    assert table.to_ask(FetchState.VALIDATING, 101.0) == [partition]
    table.back_off(partition, "no answer", 101.0)
    assert (partition.retry_at, partition.trouble) == (103.0, "no answer")
    table.seek(A0, 10)
    assert (partition.failures, partition.trouble, table.wakeup()) == (0, "", None)


def test_a_replica_is_read_from_for_its_time_and_then_the_leader_is_asked_again():
    table = table_of(start=PartitionStart((1, 1), 10))
    partition = table.require(A0)
    table.prefer_replica(partition, 2, 100.0)
    settle(table)
    table.tick(100.0 + LIFETIME_S - 1)
    assert (partition.source, table.wakeup()) == (2, 100.0 + LIFETIME_S)
    table.tick(100.0 + LIFETIME_S)
    assert (partition.source, table.wakeup(), list(table.dirty)) == (1, None, [A0])


def test_the_last_word_on_a_time_counts_and_partitions_that_are_gone_wait_for_nothing():
    table = table_of(start=PartitionStart((1, 1), 10))
    partition = table.require(A0)
    table.prefer_replica(partition, 2, 100.0)
    table.prefer_replica(partition, 3, 150.0)
    table.back_off(partition, "no answer", 150.0)
    settle(table)
    assert table.wakeup() == partition.retry_at > 150.0
    table.tick(partition.retry_at)
    assert (partition.retry_at, partition.replica, table.wakeup()) == (0.0, 3, 150.0 + LIFETIME_S)
    table.tick(100.0 + LIFETIME_S)
    assert (partition.source, table.wakeup()) == (3, 150.0 + LIFETIME_S)
    table.revoke(A0)
    assert table.wakeup() is None
    table.assign(A0, PartitionStart((1, 2), 10), snapshot(1))
    table.tick(150.0 + LIFETIME_S)
    assert table.wakeup() is None


def test_a_follower_that_fails_sends_only_its_own_partitions_back_to_their_leaders():
    table = table_of(start=PartitionStart((1, 1), 10))
    table.assign(A1, PartitionStart((1, 1), 10), snapshot(1, 2))
    for tp, replica in ((A0, 2), (A1, 3)):
        table.prefer_replica(table.require(tp), replica, 0.0)
    settle(table)
    assert table.leave_replica(2)
    assert [p.replica for p in table] == [-1, 3]
    assert list(table.dirty) == [A0]
    assert not table.leave_replica(2)


def test_a_leader_is_asked_once_at_a_time_and_only_where_there_is_one():
    table = table_of(-1, 2, start=PartitionStart((1, 1)))
    partition = table.require(A0)
    assert table.to_ask(FetchState.AWAITING_OFFSET, 0.0) == []
    table.set_leader(partition, 2, 6)
    assert table.to_ask(FetchState.AWAITING_OFFSET, 0.0) == [partition]
    partition.looking_up = True
    assert table.to_ask(FetchState.AWAITING_OFFSET, 0.0) == []
    table.seek_to(A0, LookupPurpose.SEEK_END)
    assert table.to_ask(FetchState.AWAITING_OFFSET, 0.0) == [partition], (
        "the answer to the former one is obsolete"
    )
