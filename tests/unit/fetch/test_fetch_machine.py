"""The fetching of one worker or consumer, step by step, without IO: records, pauses, and batches that can't be read."""

import pytest

from kafka_actors.errors import (
    CorruptRecordBatchError,
    UsageError,
)
from kafka_actors.events import BadBatchSkipped
from tests.fakes.fetching import A0, A1, E1, E2, MIB, Bench, bad, got, nothing, snapshot, wants

# ---------------------------------------------------------------- the way of the records


def test_a_partition_is_wanted_from_its_position_and_read_on_without_being_named_again():
    bench = Bench()
    bench.assign()
    issue = bench.pull()
    assert (issue.broker, issue.pull.sequence) == (1, 0)
    assert wants(issue) == [(0, 10, E1)]
    want = issue.pull.wants[0]
    assert (want.leader_epoch, want.topic_id, want.max_bytes) == (5, b"i" * 16, 16 * MIB)
    bench.reply(issue, got(10, 20))
    second, third = bench.pulls()
    assert (second.pull.sequence, third.pull.sequence) == (1, 2)
    assert wants(second) == wants(third) == []
    bench.reply(second, got(20, 30))
    assert bench.read() == [(0, 10, 20), (0, 20, 30)]
    assert bench.machine.partitions.require(A0).position == 30


def test_only_while_records_flow_does_a_second_pull_wait_in_line():
    bench = Bench()
    bench.assign()
    issue = bench.pull()
    assert bench.pulls() == []
    bench.reply(issue, got(10, 20))
    second, third = bench.pulls()
    bench.reply(second, nothing(20))
    assert bench.pulls() == []
    bench.reply(third, nothing(20))
    assert len(bench.pulls()) == 1


def test_partitions_are_handed_out_in_turn():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    issue = bench.pull()
    bench.reply(issue, got(10, 20), got(10, 20, partition=1))
    for issue, start in zip(bench.pulls(), (20, 30), strict=True):
        bench.reply(issue, got(start, start + 10), got(start, start + 10, partition=1))
    assert [p for p, _, _ in bench.read()] == [0, 1, 0, 1, 0, 1]


def test_an_answer_for_another_epoch_is_dropped():
    bench = Bench()
    bench.assign(epoch=E1)
    issue = bench.pull()
    bench.machine.revoke(A0)
    bench.assign(epoch=E2)
    bench.reply(issue, got(10, 20, epoch=E1))
    assert bench.read() == []
    assert wants(bench.pulls()[0]) == [(0, 10, E2)]


def test_an_answer_that_does_not_continue_the_position_is_dropped_and_asked_again():
    bench = Bench()
    bench.assign()
    issue = bench.pull()
    bench.reply(issue, got(15, 20))
    assert bench.read() == []
    assert wants(bench.pulls()[0]) == [(0, 10, E1)]


def test_answers_to_pulls_before_a_seek_are_stale_even_if_their_offset_fits():
    bench = Bench()
    bench.assign()
    first = bench.pull()
    bench.reply(first, got(10, 20))
    second, third = bench.pulls()
    bench.machine.seek(A0, 30)
    bench.reply(second, got(20, 30))
    (fourth,) = bench.pulls()
    assert wants(fourth) == [(0, 30, E1)]
    bench.reply(third, got(30, 40))
    assert bench.read() == []
    bench.reply(fourth, got(30, 40))
    assert bench.read() == [(0, 30, 40)]


def test_what_was_handed_out_before_a_seek_counts_for_nothing():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    item = bench.machine.take()
    bench.machine.seek(A0, 300)
    assert not item.valid
    assert not bench.machine.consumed(item, 20)
    assert bench.machine.partitions.require(A0).position == 300


def test_the_position_follows_what_is_consumed_not_what_is_fetched():
    bench = Bench()
    partition = bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    item = bench.machine.take()
    assert (partition.position, partition.delivered, partition.fetched) == (10, 20, 20)
    bench.machine.consumed(item, 14)
    assert partition.position == 14
    assert partition.lag(read_committed=False) == 486


def test_a_second_assignment_under_the_same_epoch_changes_nothing():
    bench = Bench()
    bench.assign(offset=10)
    bench.reply(bench.pull(), got(10, 20))
    bench.assign(offset=10)
    assert bench.read() == [(0, 10, 20)]


def test_a_regranted_partition_goes_on_from_its_own_position():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    item = bench.machine.take()
    bench.machine.regrant(A0, E2)
    assert bench.machine.consumed(item)
    bench.pulls()
    for issue in bench.pulls():
        assert wants(issue) in ([(0, 20, E2)], [])
    assert bench.machine.partitions.require(A0).position == 20


def test_a_revoked_partition_is_forgotten_by_the_next_pull():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    bench.reply(bench.pull(), nothing(10), nothing(10, partition=1))
    bench.machine.revoke(A1)
    assert bench.pull().pull.forget == [("a", 1)]
    with pytest.raises(UsageError):
        bench.machine.partitions.require(A1)


def test_a_draining_partition_hands_out_no_more_but_keeps_its_position():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 20), size=200)
    issue = bench.pulls()[0]
    bench.machine.drain(A0)
    bench.reply(issue, got(20, 30))
    assert bench.machine.take() is None
    assert bench.machine.partitions.require(A0).position == 10
    assert bench.machine.buffer.total == 0


# ---------------------------------------------------------------- pause


def test_a_paused_partition_keeps_what_is_fetched_and_goes_on_after():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    bench.machine.pause(A0)
    assert bench.machine.take() is None
    assert bench.machine.reason(A0, bench.now) == "paused"
    assert bench.pulls() == []
    bench.machine.resume(A0)
    assert bench.read() == [(0, 10, 20)]
    assert wants(bench.pulls()[0]) == [(0, 20, E1)]


def test_a_pause_does_not_survive_a_new_assignment():
    bench = Bench()
    bench.assign()
    bench.machine.pause(A0)
    bench.machine.revoke(A0)
    bench.assign(epoch=E2)
    assert len(bench.pulls()) == 1


# ---------------------------------------------------------------- records that can't be read


def test_a_bad_batch_fails_the_partition_behind_the_good_ones():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 30))
    item = bench.machine.take()
    bench.machine.consumed(item, 20)
    bench.machine.bad_batch(item, bad(20, 25))
    with pytest.raises(CorruptRecordBatchError):
        bench.machine.take()
    assert bench.machine.partitions.require(A0).position == 20
    assert bench.machine.buffer.total == 0


def test_a_bad_batch_can_be_skipped_with_an_event():
    bench = Bench(on_bad_batch="skip")
    bench.assign()
    bench.reply(bench.pull(), got(10, 30))
    item = bench.machine.take()
    bench.machine.consumed(item, 20)
    bench.machine.bad_batch(item, bad(20, 25))
    assert bench.events == [BadBatchSkipped("a", 0, 20, 25, "corrupt")]
    assert wants(bench.pulls()[0]) == [(0, 25, E1)]


def test_what_follows_a_skipped_batch_waits_for_its_turn():
    """Records taken as a partition's first could be worked on before those in front of them that a linger holds back."""
    bench = Bench(on_bad_batch="skip")
    bench.assign()
    bench.reply(bench.pull(), got(10, 30))
    bench.machine.bad_batch(bench.machine.take(), bad(20, 25))
    bench.reply(bench.pulls()[0], got(25, 40))
    assert bench.machine.buffer.ready
    assert not bench.machine.buffer.newcomer


def test_a_partition_that_comes_back_goes_first():
    for how in ("revoked", "assigned anew"):
        bench = Bench()
        bench.assign()
        bench.reply(bench.pull(), got(10, 20))
        bench.machine.take()
        if how == "revoked":
            bench.machine.revoke(A0)
        bench.assign(epoch=E2)
        bench.reply(bench.pulls()[-1], got(10, 20, epoch=E2))
        assert bench.machine.buffer.newcomer, how


def test_a_bad_batch_whose_end_is_unknown_cannot_be_skipped():
    bench = Bench(on_bad_batch="skip")
    bench.assign()
    bench.reply(bench.pull(), got(10, 30))
    bench.machine.bad_batch(bench.machine.take(), bad(10, None))
    with pytest.raises(CorruptRecordBatchError):
        bench.machine.take()


def test_a_bad_batch_at_the_end_of_a_response_is_fetched_again_with_what_follows():
    bench = Bench(on_bad_batch="skip")
    bench.assign()
    bench.reply(bench.pull(), got(10, 30))
    item = bench.machine.take()
    bench.machine.consumed(item, 20)
    assert bench.machine.bad_batch(item, bad(20, None)) == 20
    assert bench.events == []
    issue = bench.pulls()[0]
    assert wants(issue) == [(0, 20, E1)]
    bench.reply(issue, got(20, 40))
    item = bench.machine.take()
    assert bench.machine.bad_batch(item, bad(20, 25)) == 25
    assert bench.events == [BadBatchSkipped("a", 0, 20, 25, "corrupt")]
    # And where that doesn't help, it is an error that says so.
    bench.reply(bench.pulls()[0], got(25, 40))
    assert bench.machine.bad_batch(bench.machine.take(), bad(25, None)) is None
    with pytest.raises(CorruptRecordBatchError, match='on_bad_batch="skip"'):
        bench.machine.take()


def test_the_position_behind_a_skipped_batch_is_committed_without_a_leader_epoch():
    bench = Bench(on_bad_batch="skip")
    bench.assign()
    bench.reply(bench.pull(), got(10, 30))
    item = bench.machine.take()
    item.leader_epoch = 5
    bench.machine.consumed(item, 20)
    assert bench.machine.partitions.require(A0).position_epoch == 5
    bench.machine.bad_batch(item, bad(20, 25))
    assert bench.machine.partitions.require(A0).position_epoch == -1


def test_unreadable_bytes_are_not_fetched_again_before_the_decoder_has_seen_them():
    bench = Bench()
    bench.assign()
    bench.reply(bench.pull(), got(10, 10))
    assert bench.pulls(after=60) == []
    item = bench.machine.take()
    bench.machine.bad_batch(item, bad(10, None))
    with pytest.raises(CorruptRecordBatchError):
        bench.machine.take()


@pytest.mark.parametrize("change", ["leader epoch", "rewind"])
def test_unreadable_bytes_that_were_dropped_before_the_decoder_saw_them_are_fetched_again(change):
    bench = Bench()
    bench.assign(leader_epoch=5)
    bench.reply(bench.pull(), got(10, 10))
    if change == "leader epoch":
        bench.machine.update_metadata(snapshot(1, 1, epochs=[6, 6]))
        assert bench.plan().validations
    else:
        bench.machine.partitions.rewind(A0)
        assert wants(bench.pulls()[0]) == [(0, 10, E1)]


def test_a_backlog_of_small_responses_is_handed_out_at_once():
    bench = Bench(together=1_000)
    bench.assign()
    bench.assign(A1)
    for n in range(3):
        first, second = 10 + n, 11 + n
        bench.reply(bench.pulls()[0], got(first, second), got(first, second, partition=1))
    assert bench.read() == [(0, 10, 13), (1, 10, 13)]
    assert bench.machine.buffer.total == 0
