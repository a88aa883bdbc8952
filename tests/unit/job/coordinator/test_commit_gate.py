"""The gate that all commits of a job pass."""

import pytest

from kafka_actors.errors import RebalanceInProgressError
from kafka_actors.group.commit_metadata import pack, unpack
from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.job.coordinator.machines.commit_gate import CommitGate
from kafka_actors.job.lanes import Slice, SliceDone
from kafka_actors.job.messages import CommitEntry, HeldReport
from kafka_actors.types import OffsetAndMetadata, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def holds():
    return {("a", P0): (1, 1), ("a", P1): (1, 2)}


@pytest.fixture
def gate(holds):
    return CommitGate(lambda worker, partition: holds.get((worker, partition)))


def test_what_is_offered_is_taken_once_and_committed_when_acknowledged(gate):
    assert gate.offer("a", [CommitEntry(P0, (1, 1), 10, 3)]) == []
    assert gate.take() == {P0: OffsetAndMetadata(10, "", 3)}
    assert gate.take() == {}
    gate.finished({P0: None})
    assert gate.start_of(P0) == OffsetAndMetadata(10, "", 3)
    assert not gate.waiting
    assert not gate.busy


def test_a_late_commit_under_an_old_epoch_is_refused(gate, holds):
    holds["b", P0] = (1, 7)
    del holds["a", P0]
    assert gate.offer("a", [CommitEntry(P0, (1, 1), 99), CommitEntry(P1, (1, 2), 5)]) == [P0]
    assert gate.take() == {P1: OffsetAndMetadata(5)}


def test_the_same_worker_under_a_newer_epoch_is_refused_too(gate, holds):
    holds["a", P0] = (2, 1)
    assert gate.offer("a", [CommitEntry(P0, (1, 1), 99)]) == [P0]


def test_an_offset_never_goes_down(gate):
    gate.baseline({P0: OffsetAndMetadata(50)})
    gate.offer("a", [CommitEntry(P0, (1, 1), 40)])
    assert gate.take() == {}
    gate.offer("a", [CommitEntry(P0, (1, 1), 60)])
    gate.take()
    gate.offer("a", [CommitEntry(P0, (1, 1), 55)])
    gate.finished({P0: None})
    assert gate.take() == {}
    assert gate.start_of(P0) == OffsetAndMetadata(60)


def test_a_declared_reset_is_committed_only_when_the_broker_has_acknowledged_it(gate):
    gate.baseline({P0: OffsetAndMetadata(50)})
    reset, later = CommitEntry(P0, (1, 1), 7, rewind=True), CommitEntry(P0, (1, 1), 8)
    for entry in (reset, later):
        gate.offer("a", [entry])
        gate.take()
        gate.finished({P0: RebalanceInProgressError()})
        assert not gate.is_committed(entry)
    gate.take()
    gate.finished({P0: None})
    assert gate.is_committed(reset)
    assert gate.is_committed(later)


def test_a_declared_reset_offered_behind_a_commit_in_flight_waits_for_its_own_answer(gate):
    first, reset = CommitEntry(P0, (1, 1), 60), CommitEntry(P0, (1, 1), 7, rewind=True)
    gate.offer("a", [first])
    gate.take()
    gate.offer("a", [reset])
    gate.finished({P0: None})
    assert not gate.is_committed(reset)
    gate.take()
    gate.finished({P0: None})
    assert gate.is_committed(reset)


def test_a_declared_reset_may_lower_it(gate):
    gate.baseline({P0: OffsetAndMetadata(50)})
    gate.offer("a", [CommitEntry(P0, (1, 1), 7, rewind=True)])
    assert gate.take() == {P0: OffsetAndMetadata(7)}


def test_one_commit_is_in_flight_and_the_next_gathers_what_came_meanwhile(gate):
    gate.offer("a", [CommitEntry(P0, (1, 1), 10)])
    gate.take()
    gate.offer("a", [CommitEntry(P0, (1, 1), 20)])
    gate.offer("a", [CommitEntry(P0, (1, 1), 30), CommitEntry(P1, (1, 2), 4)])
    assert gate.take() == {}
    gate.finished({P0: None})
    assert gate.take() == {P0: OffsetAndMetadata(30), P1: OffsetAndMetadata(4)}


def test_errors_are_per_partition_and_a_failed_one_is_offered_again(gate):
    gate.offer("a", [CommitEntry(P0, (1, 1), 10), CommitEntry(P1, (1, 2), 4)])
    gate.take()
    gate.finished({P0: None, P1: RebalanceInProgressError()})
    assert gate.start_of(P1) is None
    assert gate.take() == {P1: OffsetAndMetadata(4)}


def test_nothing_of_a_lost_partition_is_committed_any_more(gate):
    gate.offer("a", [CommitEntry(P0, (1, 1), 10)])
    gate.take()
    gate.forget([P0])
    gate.finished({P0: RebalanceInProgressError()})
    assert gate.take() == {}
    assert gate.start_of(P0) is None


OLD, NEW = b"o" * 16, b"n" * 16


def test_offsets_of_two_topics_of_one_name_are_not_compared(gate):
    gate.baseline({P0: OffsetAndMetadata(50, pack("", OLD))})
    entry = CommitEntry(P0, (1, 1), 7, topic_id=NEW)
    assert gate.offer("a", [entry]) == []
    assert not gate.is_committed(entry)
    assert gate.take() == {P0: OffsetAndMetadata(7, pack("", NEW))}
    gate.finished({P0: None})
    assert gate.is_committed(entry)
    gate.offer("a", [CommitEntry(P0, (1, 1), 6, topic_id=NEW)])
    assert gate.take() == {}


def test_what_is_done_in_a_topic_made_anew_is_unconfirmed_though_more_of_the_old_one_was_committed(gate):
    gate.baseline({P0: OffsetAndMetadata(50, pack("", OLD))})
    assert gate.unconfirmed({P0: HeldReport(P0, (1, 1), 50, topic_id=OLD)}) == []
    assert gate.unconfirmed({P0: HeldReport(P0, (1, 1), 3, topic_id=NEW)}) == [P0]
    gate.offer("a", [CommitEntry(P0, (1, 1), 3, rewind=True, topic_id=NEW)])
    assert gate.unconfirmed({}) == [P0]
    gate.take()
    gate.finished({P0: None})
    assert gate.unconfirmed({P0: HeldReport(P0, (1, 1), 3, topic_id=NEW)}) == []


def test_a_start_at_offset_0_that_no_broker_has_confirmed_leaves_no_record_unconfirmed(gate):
    """A job stops while the group's coordinator is away, and there is nothing in the partition."""
    for offset, missing in ((0, []), (1, [P0])):
        gate.offer("a", [CommitEntry(P0, (1, 1), offset)])
        assert gate.unconfirmed({}) == missing


def test_what_was_committed_of_a_topic_that_is_gone_is_confirmed(gate):
    """A worker behind a broker that does not answer has not heard that the topic was made anew when the job stops."""
    gate.baseline({P0: OffsetAndMetadata(50, pack("", OLD))})
    gate.recreated([P0])
    assert gate.start_of(P0) is None
    for offset, missing in ((50, []), (51, [P0])):
        assert gate.unconfirmed({P0: HeldReport(P0, (1, 1), offset, topic_id=OLD)}) == missing
    assert gate.unconfirmed({P0: HeldReport(P0, (1, 1), 3, topic_id=NEW)}) == [P0]
    gate.forget([P0])
    assert gate.unconfirmed({P0: HeldReport(P0, (1, 2), 50, topic_id=OLD)}) == [P0]


def test_what_a_worker_has_committed_by_itself_in_a_topic_made_anew_counts_though_it_is_less(gate):
    gate.baseline({P0: OffsetAndMetadata(50, pack("", OLD))})
    gate.committed_elsewhere([CommitEntry(P0, (1, 1), 3, topic_id=NEW)])
    gate.committed_elsewhere([CommitEntry(P0, (1, 1), 2, topic_id=NEW)])
    assert gate.committed == {P0: OffsetAndMetadata(3, pack("", NEW))}


def test_offered_is_what_the_next_commit_would_have(gate):
    gate.offer("a", [CommitEntry(P0, (1, 1), 3, topic_id=NEW)])
    assert gate.offered == {P0: OffsetAndMetadata(3, pack("", NEW))}
    gate.take()
    assert gate.offered == {}


# ---------------------------------------------------------------- partitions that are dealt in slices

S0, S1 = Slice("t", 0, 0, 2), Slice("t", 0, 1, 2)
TEXT = DoneOffsets([(22, 30)], 1).text(20)


@pytest.fixture
def dealt(gate, holds):
    """A gate with P0 in two slices, from offset 10 on."""
    gate.baseline({P0: OffsetAndMetadata(10, "", 1)})
    holds.update({("a", S0): (1, 1), ("b", S1): (1, 2)})
    return gate


def offer(gate, slice_, offset, done="", **more):
    worker, epoch = ("a", (1, 1)) if slice_.part == 0 else ("b", (1, 2))
    made = CommitEntry(slice_, epoch, offset, 1, done=done, **more)
    assert gate.offer(worker, [made]) == []
    return made


def commit(gate, reset=()):
    """Commits what is offered; returns it as offset and ranges of what is done beyond. `reset`: slices whose reset is acknowledged by that."""
    found = gate.take()
    assert gate.finished(dict.fromkeys(found)) == list(reset)
    return {
        p: (o.offset, DoneOffsets.of_text(unpack(o.metadata).done, o.offset).ranges.tolist())
        for p, o in found.items()
    }


def test_a_slice_that_has_offered_nothing_holds_its_partition_where_it_is(dealt):
    entry = offer(dealt, S0, 40)
    assert commit(dealt) == {P0: (10, [])}
    assert dealt.is_committed(entry), "it went into an acknowledged commit: its worker may release it"
    assert dealt.start_of(S0) == OffsetAndMetadata(40, "", 1)
    assert dealt.start_of(S1) == OffsetAndMetadata(10, "", 1)


def test_what_each_slice_has_done_is_kept_though_only_one_offers_now(dealt):
    offer(dealt, S0, 40)
    commit(dealt)
    offer(dealt, S1, 20, TEXT)
    assert commit(dealt) == {P0: (20, [[22, 30]])}
    offer(dealt, S1, 60)
    assert commit(dealt) == {P0: (40, [])}


def test_what_failed_is_offered_again_with_its_slice(dealt):
    entry = offer(dealt, S0, 40)
    dealt.take()
    dealt.finished({P0: RebalanceInProgressError()})
    assert not dealt.is_committed(entry)
    offer(dealt, S1, 35)
    assert commit(dealt) == {P0: (35, [])}


def test_a_slice_never_goes_back_and_neither_does_its_partition(dealt):
    offer(dealt, S0, 40)
    offer(dealt, S1, 30)
    commit(dealt)
    dealt.offer("b", [CommitEntry(S1, (1, 2), 25, 1)])
    assert commit(dealt) == {}


def test_a_reset_of_one_slice_takes_back_what_was_known_of_the_others(dealt):
    offer(dealt, S0, 40)
    offer(dealt, S1, 60)
    commit(dealt)
    offer(dealt, S1, 5, rewind=True)
    assert commit(dealt, [S1]) == {P0: (5, [])}
    assert dealt.start_of(S0) == OffsetAndMetadata(5, "", 1)


def test_what_others_offer_beside_a_reset_or_behind_it_is_of_the_log_before(dealt):
    """They begin anew with the partition, under other epochs."""
    offer(dealt, S0, 40)
    offer(dealt, S1, 60)
    commit(dealt)
    offer(dealt, S0, 50)
    offer(dealt, S1, 5, rewind=True)
    dealt.take()
    offer(dealt, S0, 70)
    assert dealt.finished({P0: None}) == [S1]
    assert dealt.start_of(S0) == OffsetAndMetadata(5, "", 1)
    assert dealt.take() == {}
    assert [(each.part, each.offset) for each in dealt.slices_done(P0)] == [(0, 5), (1, 5)]


def test_what_is_not_done_in_front_of_where_another_slice_was_reset_is_not_committed(dealt):
    """A log that was cut behind it is the same in front of that; what it has done beyond the cut is not."""
    offer(dealt, S0, 20, DoneOffsets([(22, 30), (45, 60)], 1).text(20))
    offer(dealt, S1, 60)
    commit(dealt)
    offer(dealt, S1, 50, rewind=True)
    assert commit(dealt, [S1]) == {P0: (20, [[22, 30], [45, 50]])}
    assert dealt.start_of(S0).offset == 20
    assert dealt.start_of(S1).offset == 50


def test_a_slice_that_has_offered_nothing_stays_where_the_group_has_committed_beside_a_reset(dealt):
    offer(dealt, S1, 60)
    commit(dealt)
    offer(dealt, S1, 50, rewind=True)
    assert commit(dealt, [S1]) == {P0: (10, [])}


def test_a_reset_that_was_not_acknowledged_has_others_begin_anew_when_it_is(dealt):
    offer(dealt, S1, 5, rewind=True)
    dealt.take()
    assert dealt.finished({P0: RebalanceInProgressError()}) == []
    assert commit(dealt, [S1]) == {P0: (5, [])}


def test_slices_that_were_reset_together_keep_what_they_do_from_there(dealt):
    offer(dealt, S0, 5, rewind=True)
    offer(dealt, S1, 5, rewind=True)
    assert commit(dealt, [S0, S1]) == {P0: (5, [])}
    offer(dealt, S0, 9)
    assert commit(dealt) == {P0: (5, [])}
    offer(dealt, S1, 8)
    assert commit(dealt) == {P0: (8, [])}


def test_a_reset_of_a_whole_partition_has_nobody_else_begin_anew(gate):
    gate.baseline({P0: OffsetAndMetadata(50)})
    gate.offer("a", [CommitEntry(P0, (1, 1), 7, rewind=True)])
    gate.take()
    assert gate.finished({P0: None}) == []


def test_offsets_of_another_topic_of_the_name_do_not_count(dealt):
    old, new = bytes(15) + b"1", bytes(15) + b"2"
    offer(dealt, S0, 40, topic_id=old)
    offer(dealt, S1, 60, topic_id=old)
    commit(dealt)
    offer(dealt, S1, 3, topic_id=new, rewind=True)
    commit(dealt, [S1])
    offer(dealt, S0, 50, topic_id=old)
    offer(dealt, S1, 3, DoneOffsets([(5, 9)], 1).text(3), topic_id=new)
    assert commit(dealt) == {P0: (3, [])}


def test_who_gets_a_partition_dealt_anew_hears_what_was_done_of_former_slices(dealt, holds):
    offer(dealt, S0, 40)
    offer(dealt, S1, 20, TEXT)
    commit(dealt)
    known = [SliceDone(0, 2, 40, 1), SliceDone(1, 2, 20, 1, TEXT)]
    assert sorted(dealt.slices_done(P0), key=lambda each: each.part) == known
    for part in range(3):
        holds["c", each := Slice("t", 0, part, 3)] = (1, 5 + part)
        dealt.offer("c", [CommitEntry(each, (1, 5 + part), 40, 1)])
    commit(dealt)
    assert {each.parts for each in dealt.slices_done(P0)} == {3}, "the partition is done beyond the others"


def test_offers_of_former_slices_are_void_once_it_is_dealt_anew(dealt, holds):
    offer(dealt, S0, 40)
    holds["c", third := Slice("t", 0, 0, 3)] = (1, 5)
    dealt.offer("c", [CommitEntry(third, (1, 5), 12, 1)])
    commit(dealt)
    assert dealt.start_of(S0) == OffsetAndMetadata(10, "", 1)


def test_what_the_member_gives_away_takes_its_slices_along(dealt):
    offer(dealt, S0, 40)
    offer(dealt, S1, 20)
    commit(dealt)
    offer(dealt, S0, 50)
    assert dealt.unconfirmed({S1: HeldReport(P0, (1, 2), 25)}) == [P0]
    dealt.forget([P0])
    assert dealt.take() == {}
    assert dealt.start_of(S0) is None
    assert dealt.slices_done(P0) == []


def test_slices_that_a_new_incarnation_finds_in_a_topic_without_commits_are_committed_only_by_a_reset(
    gate, holds
):
    """Their topic was made anew, and the group's commits went with the one before. Where the others stand nobody knows."""
    holds.update({("a", S0): (1, 1), ("b", S1): (1, 2)})
    entry = offer(gate, S0, 40, topic_id=OLD)
    assert commit(gate) == {}
    assert gate.is_gone(entry)
    offer(gate, S0, 0, topic_id=NEW, rewind=True)
    assert commit(gate, [S0]) == {P0: (0, [])}
    assert gate.start_of(S1) == OffsetAndMetadata(0, pack("", NEW), 1)


def test_what_a_slice_offers_first_and_alone_of_the_topic_before_changes_nothing(gate, holds):
    """A new incarnation knows of no slice yet, and another worker has committed in the topic of now."""
    holds["b", S1] = (1, 2)
    known = OffsetAndMetadata(10, pack("", NEW), 1)
    gate.baseline({P0: known})
    offer(gate, S1, 50, topic_id=OLD)
    assert commit(gate) == {P0: (10, [])}
    assert (gate.committed[P0], gate.slices_done(P0)) == (known, [])


def test_an_answer_for_what_the_member_gave_away_meanwhile_changes_nothing(dealt):
    offer(dealt, S0, 40)
    dealt.take()
    dealt.give_up([P0])
    assert dealt.finished({P0: None}) == []
    assert dealt.start_of(S0) == OffsetAndMetadata(10, "", 1)


def test_nothing_that_slices_had_done_in_the_topic_before_is_told_to_those_of_the_one_of_now(dealt, holds):
    offer(dealt, S0, 40, topic_id=OLD)
    offer(dealt, S1, 40, topic_id=OLD)
    commit(dealt)
    holds["a", P0] = (1, 9)
    dealt.recreated([P0])
    dealt.offer("a", [CommitEntry(P0, (1, 9), 4, topic_id=NEW)])
    dealt.take()
    dealt.finished({P0: None})
    assert dealt.slices_done(P0) == []
    assert dealt.start_of(S0) == OffsetAndMetadata(4, pack("", NEW))
