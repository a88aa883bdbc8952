"""The fetching of one worker or consumer, step by step, without IO: records, pauses, and batches that can't be read."""

import pytest

from kafka_actors.errors import (
    CorruptRecordBatchError,
    UsageError,
)
from kafka_actors.events import BadBatchSkipped
from tests.fakes.fetching import A0, A1, E1, E2, MIB, Harness, bad, got, nothing, snapshot, wants

# ---------------------------------------------------------------- the way of the records


def test_a_partition_is_wanted_from_its_position_and_read_on_without_being_named_again():
    harness = Harness()
    harness.assign()
    issue = harness.pull()
    assert (issue.broker, issue.pull.sequence) == (1, 0)
    assert wants(issue) == [(0, 10, E1)]
    want = issue.pull.wants[0]
    assert (want.leader_epoch, want.topic_id, want.max_bytes) == (5, b"i" * 16, 16 * MIB)
    harness.reply(issue, got(10, 20))
    second, third = harness.pulls()
    assert (second.pull.sequence, third.pull.sequence) == (1, 2)
    assert wants(second) == wants(third) == []
    harness.reply(second, got(20, 30))
    assert harness.read() == [(0, 10, 20), (0, 20, 30)]
    assert harness.machine.partitions.require(A0).position == 30


def test_only_while_records_flow_does_a_second_pull_wait_in_line():
    harness = Harness()
    harness.assign()
    issue = harness.pull()
    assert harness.pulls() == []
    harness.reply(issue, got(10, 20))
    second, third = harness.pulls()
    harness.reply(second, nothing(20))
    assert harness.pulls() == []
    harness.reply(third, nothing(20))
    assert len(harness.pulls()) == 1


def test_partitions_are_handed_out_in_turn():
    harness = Harness()
    harness.assign(A0)
    harness.assign(A1)
    issue = harness.pull()
    harness.reply(issue, got(10, 20), got(10, 20, partition=1))
    for issue, start in zip(harness.pulls(), (20, 30), strict=True):
        harness.reply(issue, got(start, start + 10), got(start, start + 10, partition=1))
    assert [p for p, _, _ in harness.read()] == [0, 1, 0, 1, 0, 1]


def test_an_answer_for_another_epoch_is_dropped():
    harness = Harness()
    harness.assign(epoch=E1)
    issue = harness.pull()
    harness.machine.revoke(A0)
    harness.assign(epoch=E2)
    harness.reply(issue, got(10, 20, epoch=E1))
    assert harness.read() == []
    assert wants(harness.pulls()[0]) == [(0, 10, E2)]


def test_an_answer_that_does_not_continue_the_position_is_dropped_and_asked_again():
    harness = Harness()
    harness.assign()
    issue = harness.pull()
    harness.reply(issue, got(15, 20))
    assert harness.read() == []
    assert wants(harness.pulls()[0]) == [(0, 10, E1)]


def test_answers_to_pulls_before_a_seek_are_stale_even_if_their_offset_fits():
    harness = Harness()
    harness.assign()
    first = harness.pull()
    harness.reply(first, got(10, 20))
    second, third = harness.pulls()
    harness.machine.seek(A0, 30)
    harness.reply(second, got(20, 30))
    (fourth,) = harness.pulls()
    assert wants(fourth) == [(0, 30, E1)]
    harness.reply(third, got(30, 40))
    assert harness.read() == []
    harness.reply(fourth, got(30, 40))
    assert harness.read() == [(0, 30, 40)]


def test_what_was_handed_out_before_a_seek_counts_for_nothing():
    harness = Harness()
    harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    item = harness.machine.take()
    harness.machine.seek(A0, 300)
    assert not item.valid
    assert not harness.machine.consumed(item, 20)
    assert harness.machine.partitions.require(A0).position == 300


def test_the_position_follows_what_is_consumed_not_what_is_fetched():
    harness = Harness()
    partition = harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    item = harness.machine.take()
    assert (partition.position, partition.delivered, partition.fetched) == (10, 20, 20)
    harness.machine.consumed(item, 14)
    assert partition.position == 14
    assert partition.lag(read_committed=False) == 486


def test_a_second_assignment_under_the_same_epoch_changes_nothing():
    harness = Harness()
    harness.assign(offset=10)
    harness.reply(harness.pull(), got(10, 20))
    harness.assign(offset=10)
    assert harness.read() == [(0, 10, 20)]


def test_a_regranted_partition_goes_on_from_its_own_position():
    harness = Harness()
    harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    item = harness.machine.take()
    harness.machine.regrant(A0, E2)
    assert harness.machine.consumed(item)
    harness.pulls()
    for issue in harness.pulls():
        assert wants(issue) in ([(0, 20, E2)], [])
    assert harness.machine.partitions.require(A0).position == 20


def test_a_revoked_partition_is_forgotten_by_the_next_pull():
    harness = Harness()
    harness.assign(A0)
    harness.assign(A1)
    harness.reply(harness.pull(), nothing(10), nothing(10, partition=1))
    harness.machine.revoke(A1)
    assert harness.pull().pull.forget == [("a", 1)]
    with pytest.raises(UsageError):
        harness.machine.partitions.require(A1)


def test_a_draining_partition_hands_out_no_more_but_keeps_its_position():
    harness = Harness()
    harness.assign()
    harness.reply(harness.pull(), got(10, 20), size=200)
    issue = harness.pulls()[0]
    harness.machine.drain(A0)
    harness.reply(issue, got(20, 30))
    assert harness.machine.take() is None
    assert harness.machine.partitions.require(A0).position == 10
    assert harness.machine.buffer.total == 0


# ---------------------------------------------------------------- pause


def test_a_paused_partition_keeps_what_is_fetched_and_goes_on_after():
    harness = Harness()
    harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    harness.machine.pause(A0)
    assert harness.machine.take() is None
    assert harness.machine.reason(A0, harness.now) == "paused"
    assert harness.pulls() == []
    harness.machine.resume(A0)
    assert harness.read() == [(0, 10, 20)]
    assert wants(harness.pulls()[0]) == [(0, 20, E1)]


def test_a_pause_does_not_survive_a_new_assignment():
    harness = Harness()
    harness.assign()
    harness.machine.pause(A0)
    harness.machine.revoke(A0)
    harness.assign(epoch=E2)
    assert len(harness.pulls()) == 1


# ---------------------------------------------------------------- records that can't be read


def test_a_bad_batch_fails_the_partition_behind_the_good_ones():
    harness = Harness()
    harness.assign()
    harness.reply(harness.pull(), got(10, 30))
    item = harness.machine.take()
    harness.machine.consumed(item, 20)
    harness.machine.bad_batch(item, bad(20, 25))
    with pytest.raises(CorruptRecordBatchError):
        harness.machine.take()
    assert harness.machine.partitions.require(A0).position == 20
    assert harness.machine.buffer.total == 0


def test_a_bad_batch_can_be_skipped_with_an_event():
    harness = Harness(on_bad_batch="skip")
    harness.assign()
    harness.reply(harness.pull(), got(10, 30))
    item = harness.machine.take()
    harness.machine.consumed(item, 20)
    harness.machine.bad_batch(item, bad(20, 25))
    assert harness.events == [BadBatchSkipped("a", 0, 20, 25, "corrupt")]
    assert wants(harness.pulls()[0]) == [(0, 25, E1)]


def test_what_follows_a_skipped_batch_waits_for_its_turn():
    """Records taken as a partition's first could be worked on before those in front of them that a linger holds back."""
    harness = Harness(on_bad_batch="skip")
    harness.assign()
    harness.reply(harness.pull(), got(10, 30))
    harness.machine.bad_batch(harness.machine.take(), bad(20, 25))
    harness.reply(harness.pulls()[0], got(25, 40))
    assert harness.machine.buffer.ready
    assert not harness.machine.buffer.newcomer


def test_a_partition_that_comes_back_goes_first():
    for how in ("revoked", "assigned anew"):
        harness = Harness()
        harness.assign()
        harness.reply(harness.pull(), got(10, 20))
        harness.machine.take()
        if how == "revoked":
            harness.machine.revoke(A0)
        harness.assign(epoch=E2)
        harness.reply(harness.pulls()[-1], got(10, 20, epoch=E2))
        assert harness.machine.buffer.newcomer, how


def test_a_bad_batch_whose_end_is_unknown_cannot_be_skipped():
    harness = Harness(on_bad_batch="skip")
    harness.assign()
    harness.reply(harness.pull(), got(10, 30))
    harness.machine.bad_batch(harness.machine.take(), bad(10, None))
    with pytest.raises(CorruptRecordBatchError):
        harness.machine.take()


def test_a_bad_batch_at_the_end_of_a_response_is_fetched_again_with_what_follows():
    harness = Harness(on_bad_batch="skip")
    harness.assign()
    harness.reply(harness.pull(), got(10, 30))
    item = harness.machine.take()
    harness.machine.consumed(item, 20)
    assert harness.machine.bad_batch(item, bad(20, None)) == 20
    assert harness.events == []
    issue = harness.pulls()[0]
    assert wants(issue) == [(0, 20, E1)]
    harness.reply(issue, got(20, 40))
    item = harness.machine.take()
    assert harness.machine.bad_batch(item, bad(20, 25)) == 25
    assert harness.events == [BadBatchSkipped("a", 0, 20, 25, "corrupt")]
    # And where that doesn't help, it is an error that says so.
    harness.reply(harness.pulls()[0], got(25, 40))
    assert harness.machine.bad_batch(harness.machine.take(), bad(25, None)) is None
    with pytest.raises(CorruptRecordBatchError, match='on_bad_batch="skip"'):
        harness.machine.take()


def test_the_position_behind_a_skipped_batch_is_committed_without_a_leader_epoch():
    harness = Harness(on_bad_batch="skip")
    harness.assign()
    harness.reply(harness.pull(), got(10, 30))
    item = harness.machine.take()
    item.leader_epoch = 5
    harness.machine.consumed(item, 20)
    assert harness.machine.partitions.require(A0).position_epoch == 5
    assert harness.machine.progress([A0], 0.0)[A0].leader_epoch == 5
    harness.machine.bad_batch(item, bad(20, 25))
    assert harness.machine.partitions.require(A0).position_epoch == -1


def test_unreadable_bytes_are_not_fetched_again_before_the_decoder_has_seen_them():
    harness = Harness()
    harness.assign()
    harness.reply(harness.pull(), got(10, 10))
    assert harness.pulls(after=60) == []
    item = harness.machine.take()
    harness.machine.bad_batch(item, bad(10, None))
    with pytest.raises(CorruptRecordBatchError):
        harness.machine.take()


@pytest.mark.parametrize("change", ["leader epoch", "rewind"])
def test_unreadable_bytes_that_were_dropped_before_the_decoder_saw_them_are_fetched_again(change):
    harness = Harness()
    harness.assign(leader_epoch=5)
    harness.reply(harness.pull(), got(10, 10))
    if change == "leader epoch":
        harness.machine.update_metadata(snapshot(1, 1, epochs=[6, 6]))
        assert harness.plan().validations
    else:
        harness.machine.partitions.rewind(A0)
        assert wants(harness.pulls()[0]) == [(0, 10, E1)]


def test_unreadable_bytes_taken_ahead_are_not_released_with_the_records_in_front_of_them():
    harness = Harness()
    harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    harness.reply(harness.pulls()[0], got(20, 20))
    good, unreadable = harness.machine.take(), harness.machine.take()
    assert (unreadable.fetch_offset, unreadable.next_offset) == (20, 20)
    harness.machine.consumed(good)
    assert len(unreadable.slices[0].data) == 100
    harness.machine.put_back(A0)
    again = harness.machine.take()
    assert (again.fetch_offset, again.next_offset) == (20, 20)
    harness.machine.bad_batch(again, bad(20, None))
    with pytest.raises(CorruptRecordBatchError):
        harness.machine.take()
    assert harness.machine.buffer.total == 0


def test_a_backlog_of_small_responses_is_handed_out_at_once():
    harness = Harness(together=1_000)
    harness.assign()
    harness.assign(A1)
    for n in range(3):
        first, second = 10 + n, 11 + n
        harness.reply(harness.pulls()[0], got(first, second), got(first, second, partition=1))
    assert harness.read() == [(0, 10, 13), (1, 10, 13)]
    assert harness.machine.buffer.total == 0
