"""What a worker holds, and how far its function got."""

import pytest
from msgspec.structs import replace

from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.job.messages import CommitEntry, CommitReply, Drain, Grant, Orders
from kafka_actors.job.worker.machines.worker_assignment import HeldState, WorkerAssignment
from kafka_actors.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def orders(version, grants=(), draining=()):
    return Orders((1, version), list(grants), list(draining), lease_s=10.0)


def test_orders_are_idempotent_and_old_ones_change_nothing():
    holdings = WorkerAssignment()
    first = orders(2, [Grant(P0, (1, 1), 5)])
    assert [g.partition for g in holdings.apply(first).begin] == [P0]
    assert holdings.apply(first).begin == []
    changes = holdings.apply(orders(1))
    assert changes.drop == []
    assert P0 in holdings.held


def test_orders_of_a_newer_coordinator_win_over_any_of_an_older_one():
    holdings = WorkerAssignment()
    holdings.apply(Orders((1, 900), [Grant(P0, (1, 1))], [], 10.0))
    assert holdings.apply(Orders((2, 1), [], [], 10.0)).drop == [P0]
    assert holdings.apply(Orders((1, 901), [Grant(P0, (1, 1))], [], 10.0)).begin == []


def test_only_what_the_function_returned_for_is_committed():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5)]))
    assert holdings.begin(P0, (1, 1))
    assert holdings.commits() == []
    holdings.done(P0, (1, 1), 8, 3)
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 8, 3)]
    holdings.committed(CommitReply(1, holdings.commits(), [], []))
    assert holdings.commits() == []


def test_a_call_of_a_former_epoch_moves_nothing():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5)]))
    holdings.begin(P0, (1, 1))
    holdings.apply(orders(2))
    holdings.apply(orders(3, [Grant(P0, (1, 9), 5)]))
    holdings.done(P0, (1, 1), 100)
    assert holdings.commits() == []
    assert not holdings.begin(P0, (1, 1))
    assert not holdings.held[P0].in_hand


def test_orders_from_before_a_drain_ended_do_not_begin_the_partition_again():
    """A new coordinator leaves the partition with its worker, where an older one's drain goes on."""
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5)]))
    holdings.apply(orders(2, [], [Drain(P0, (1, 1))]))
    left = Orders((2, 1), [Grant(P0, (2, 1), 5, continues=(1, 1))], [], lease_s=10.0)
    holdings.apply(left)
    assert holdings.release_drained() == [P0]
    assert holdings.apply(left).begin == []
    assert holdings.held == {}, "the next report has to lack it"
    anew = Grant(P0, (2, 2), 8)
    assert holdings.apply(Orders((2, 2), [anew], [], lease_s=10.0)).begin == [anew]


def test_a_drain_waits_for_the_call_and_then_for_its_commit():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5)]))
    holdings.begin(P0, (1, 1))
    assert holdings.apply(orders(2, [], [Drain(P0, (1, 1))])).drain == [P0]
    assert holdings.release_drained() == []
    holdings.done(P0, (1, 1), 8)
    assert not holdings.begin(P0, (1, 1))
    assert holdings.release_drained() == []
    assert holdings.drain_waits_for_commit
    holdings.committed(CommitReply(1, [CommitEntry(P0, (1, 1), 8)], [], []))
    assert holdings.release_drained() == [P0]
    assert holdings.held == {}


@pytest.mark.parametrize("drains", [False, True])
def test_what_others_have_begun_anew_is_released_after_the_call_without_a_commit(drains):
    """Before the call's end another worker would call beside it, with a record of the same key."""
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5)]))
    holdings.begin(P0, (1, 1))
    if drains:
        holdings.apply(orders(2, [], [Drain(P0, (1, 1))]))
    assert holdings.apply(orders(3, [], [Drain(P0, (1, 1), void=True)])).drop == []
    assert not holdings.active(P0, (1, 1))
    assert holdings.release_drained() == []
    holdings.done(P0, (1, 1), 8)
    assert holdings.commits() == []
    assert not holdings.drain_waits_for_commit
    assert holdings.release_drained() == [P0]


def test_where_results_were_lost_nothing_is_committed_and_a_drain_waits_for_the_call_alone():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5)]))
    holdings.begin(P0, (1, 1))
    holdings.stop_commits()
    holdings.apply(orders(2, [], [Drain(P0, (1, 1))]))
    assert holdings.release_drained() == []
    holdings.done(P0, (1, 1), 8)
    assert holdings.commits() == []
    assert not holdings.drain_waits_for_commit
    assert holdings.release_drained() == [P0]


def test_a_new_incarnation_renews_the_epoch_without_disturbing_the_call_in_hand():
    holdings = WorkerAssignment()
    holdings.apply(Orders((1, 4), [Grant(P0, (1, 1), 5)], [], 10.0))
    holdings.begin(P0, (1, 1))
    changes = holdings.apply(Orders((2, 1), [Grant(P0, (2, 1), 5, continues=(1, 1))], [], 10.0))
    assert changes.begin == []
    holdings.done(P0, (1, 1), 8)
    assert holdings.commits() == [CommitEntry(P0, (2, 1), 8)]


def test_a_function_that_failed_for_good_has_its_offset_committed_and_nothing_behind_it_begun():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5), Grant(P1, (1, 2), 0)]))
    holdings.begin(P0, (1, 1))
    holdings.halt(P0, (1, 1), 7)
    assert holdings.held[P0].state is HeldState.HALTED
    assert not holdings.begin(P0, (1, 1))
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 7)]


def test_a_position_that_became_known_is_committed_though_nothing_was_read():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), None, end_offset=40)]))
    holdings.positioned(P0, 40)
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 40)]
    assert not holdings.held[P0].finished
    holdings.committed(CommitReply(1, holdings.commits(), [], []))
    assert holdings.held[P0].finished


def test_what_is_done_beyond_where_reading_starts_is_committed_with_the_leader_epoch_before_that():
    """The offset is that of the grant. With an unknown epoch the next reader wouldn't look whether the log was cut since."""
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 10, 3)]))
    holdings.positioned(P0, 10, 3)
    holdings.note_done(P0, DoneOffsets([(12, 13)], 3))
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 10, 3, done=DoneOffsets([(12, 13)], 3).text(10))]
    assert holdings.reset(P0, 12, None, 3, cut=True) == (10, 3), "where reading goes on is checked by it, too"


@pytest.mark.parametrize("known", [5, -1])
@pytest.mark.parametrize("cut", [True, False])
def test_a_reset_is_committed_with_the_leader_epoch_of_where_it_went(cut, known):
    """With that of the last record before it the next reader finds a cut that there was not: that epoch ended long before."""
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 10, 3)]))
    holdings.done(P0, (1, 1), 13, 3)
    holdings.reset(P0, 9 if cut else 900, None, known, cut=cut)
    (entry,) = holdings.commits()
    assert (entry.offset, entry.leader_epoch) == (9 if cut else 900, known)


def test_a_record_that_failed_behind_a_gap_is_committed_without_a_leader_epoch():
    """That of the last one done may have ended in front of the gap."""
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 10, 3)]))
    for done, failed, known in ((13, 13, 3), (13, 20, -1)):
        holdings.done(P0, (1, 1), done, 3)
        holdings.halt(P0, (1, 1), failed)
        assert holdings.commits() == [CommitEntry(P0, (1, 1), failed, known)]


def test_a_reset_is_committed_as_a_rewind_until_it_is_acknowledged():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 50)]))
    holdings.done(P0, (1, 1), 60)
    holdings.positioned(P0, 10, rewind=True)
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 10, -1, rewind=True)]
    holdings.committed(CommitReply(1, holdings.commits(), [], []))
    assert not holdings.done(P0, (1, 1), 70)  # fetched before the reset
    assert holdings.held[P0].processed == 10
    holdings.done(P0, (1, 1), 12, resets=1)
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 12)]


def test_a_reset_is_declared_once_though_more_is_done_before_it_is_acknowledged():
    """Each such reset has the other workers of the partition begin anew."""
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 50)]))
    holdings.positioned(P0, 10, rewind=True)
    asked = CommitReply(1, holdings.commits(), [], [])
    holdings.done(P0, (1, 1), 12, resets=1)
    holdings.committed(asked)
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 12)]


def test_who_shares_a_partition_commits_first_where_its_reset_went():
    """It has passed over records of others since, and those begin there, too."""
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 50, part=0, parts=2)]))
    holdings.positioned(P0, 10, 6, rewind=True)
    holdings.done(P0, (1, 1), 15, 7, resets=1)
    holdings.note_done(P0, DoneOffsets([(17, 20)], 7))
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 10, 6, rewind=True)]
    holdings.committed(CommitReply(1, holdings.commits(), [], []))
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 15, 7, done=DoneOffsets([(17, 20)], 7).text(15))]


def test_who_shares_a_partition_tells_a_new_coordinator_how_far_it_is_though_that_was_acknowledged():
    """The one before had kept it in memory: of all slices together less was committed."""
    holdings = WorkerAssignment()
    shared, alone = Grant(P0, (1, 1), 5, part=0, parts=2), Grant(P1, (1, 2), 5)
    holdings.apply(orders(1, [shared, alone]))
    for partition, epoch in ((P0, (1, 1)), (P1, (1, 2))):
        holdings.done(partition, epoch, 9)
    holdings.committed(CommitReply(1, holdings.commits(), [], []))
    assert holdings.commits() == []
    again = [replace(shared, epoch=(2, 1), continues=(1, 1)), replace(alone, epoch=(2, 2), continues=(1, 2))]
    holdings.apply(Orders((2, 1), again, [], 10.0))
    assert holdings.commits() == [CommitEntry(P0, (2, 1), 9)]
    holdings.committed(CommitReply(1, holdings.commits(), [], []))
    holdings.apply(Orders((2, 2), again, [], 10.0))
    assert holdings.commits() == []


def test_a_reset_to_where_the_log_begins_now_declares_nothing_where_that_is_further():
    """No commit is lowered by it, and who shares the partition is where it was."""
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 50)]))
    holdings.done(P0, (1, 1), 60)
    holdings.positioned(P0, 100, rewind=True)
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 100, -1)]
    holdings.positioned(P0, 40, rewind=True)
    holdings.positioned(P0, 70, rewind=True)
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 70, -1, rewind=True)], (
        "that before is not committed"
    )


def test_a_reset_that_comes_while_one_before_it_is_committed_is_declared_too():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 50)]))
    holdings.positioned(P0, 10, rewind=True)
    asked = CommitReply(1, holdings.commits(), [], [])
    holdings.positioned(P0, 7, rewind=True)
    holdings.committed(asked)
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 7, rewind=True)]


def test_commits_name_the_topic_that_their_offsets_are_of():
    old, new = b"o" * 16, b"n" * 16
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 50, topic_id=old)]))
    holdings.done(P0, (1, 1), 60)
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 60, topic_id=old)]
    holdings.positioned(P0, 0, rewind=True, topic_id=new)
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 0, rewind=True, topic_id=new)]
    assert not holdings.done(P0, (1, 1), 61), "a call on records of the topic before"
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 0, rewind=True, topic_id=new)]


def test_an_offset_committed_for_the_topic_before_is_committed_again_for_the_one_of_now():
    old, new = b"o" * 16, b"n" * 16
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5, topic_id=old)]))
    holdings.positioned(P0, 0, rewind=True, topic_id=new)
    holdings.done(P0, (1, 1), 5, resets=1)
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 5, rewind=True, topic_id=new)]

    holdings.committed(CommitReply(1, [CommitEntry(P0, (1, 1), 5, topic_id=old)], [], []))
    assert holdings.commits() == [CommitEntry(P0, (1, 1), 5, rewind=True, topic_id=new)], "asked for before"


def test_a_drain_does_not_wait_for_a_commit_in_a_topic_that_is_gone():
    """An older coordinator may have ordered it, of which the present one does not know. Reading, where it goes on, finds the new topic by itself."""
    old = b"o" * 16
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5, topic_id=old), Grant(P1, (1, 2), 5, topic_id=old)]))
    for partition, epoch in ((P0, (1, 1)), (P1, (1, 2))):
        holdings.begin(partition, epoch)
        holdings.done(partition, epoch, 8)
    holdings.apply(orders(2, [Grant(P1, (1, 2), 5)], [Drain(P0, (1, 1))]))
    entries = holdings.commits()
    assert [entry.partition for entry in entries] == [P0, P1]
    assert holdings.release_drained() == []
    holdings.committed(CommitReply(1, [], [], [], gone=entries))
    assert holdings.release_drained() == [P0]
    assert [entry.partition for entry in holdings.commits()] == [P1]


def test_a_new_coordinator_that_does_not_know_yet_changes_nothing():
    holdings = WorkerAssignment()
    holdings.apply(orders(3, [Grant(P0, (1, 1), 5), Grant(P1, (1, 2), 7)], []))
    holdings.apply(orders(4, [Grant(P0, (1, 1), 5)], [Drain(P1, (1, 2))]))
    assert holdings.release_drained() == [P1]
    # P1 was let go of after the report that this answers, and must not begin anew without an offset.
    changes = holdings.apply(Orders((2, 0), [], [], 10.0, hold=True))
    assert (changes.begin, changes.drain, changes.drop) == ([], [], [])
    assert list(holdings.held) == [P0]
    # From here on the old coordinator is not heard any more, however late its orders come.
    assert holdings.apply(orders(5, [Grant(P1, (1, 3), 7)])).begin == []
    assert holdings.seen == (2, 0)


def test_a_new_coordinator_may_drain_what_its_worker_holds_under_the_old_epoch():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5)]))
    holdings.begin(P0, (1, 1))
    assert holdings.apply(Orders((2, 1), [], [Drain(P0, (2, 1), continues=(1, 1))], 10.0)).drain == [P0]
    holdings.done(P0, (1, 1), 8)
    assert holdings.commits() == [CommitEntry(P0, (2, 1), 8)]


def test_a_drain_that_the_old_coordinator_began_ends_under_the_new_one():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5)]))
    holdings.begin(P0, (1, 1))
    holdings.apply(orders(2, [], [Drain(P0, (1, 1))]))
    changes = holdings.apply(Orders((2, 1), [Grant(P0, (2, 1), 5, continues=(1, 1))], [], 10.0))
    assert (changes.begin, changes.drop) == ([], [])
    holdings.done(P0, (1, 1), 8)
    holdings.committed(CommitReply(1, [CommitEntry(P0, (2, 1), 8)], [], []))
    assert holdings.release_drained() == [P0]


def test_a_drain_under_an_epoch_that_the_worker_never_had_drops_the_partition():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5)]))
    assert holdings.apply(orders(2, [], [Drain(P0, (1, 7))])).drop == [P0]


def test_the_end_of_a_bounded_partition_is_told():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5, end_offset=8), Grant(P1, (1, 1), 5)]))
    for partition, offset, wanted in ((P1, 100, False), (P0, 7, False), (P0, 8, True)):
        holdings.begin(partition, (1, 1))
        assert holdings.done(partition, (1, 1), offset) == wanted


def test_a_commit_that_is_acknowledged_for_a_former_epoch_says_nothing_about_the_present_one():
    holdings = WorkerAssignment()
    holdings.apply(orders(1, [Grant(P0, (1, 1), 5)]))
    holdings.begin(P0, (1, 1))
    holdings.done(P0, (1, 1), 8)
    former = holdings.commits()
    holdings.apply(orders(2))
    holdings.apply(orders(3, [Grant(P0, (1, 9), 5)]))
    holdings.committed(CommitReply(1, former, [], []))
    holdings.begin(P0, (1, 9))
    holdings.done(P0, (1, 9), 8)
    assert holdings.commits() == [CommitEntry(P0, (1, 9), 8)]
