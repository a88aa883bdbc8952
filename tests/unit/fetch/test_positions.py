"""Positions that are looked up or validated: starts, seeks to an end, data loss, truncation, recreated topics."""

import traceback

import pytest

from kafka_actors.errors import (
    ClusterAuthorizationFailedError,
    FetchOffsetOutOfRangeError,
    LogTruncationError,
    NoOffsetForPartitionError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    TopicRecreatedError,
    UnknownServerError,
)
from kafka_actors.events import NoCommittedOffset, OffsetReset
from kafka_actors.fetch.machines.partition_state import (
    CommitPosition,
    FetchState,
    LookupPurpose,
)
from kafka_actors.fetch.machines.resets import LookupKind
from tests.fakes.fetching import A0, E1, E2, Harness, got, nothing, snapshot, wants


@pytest.mark.parametrize(
    ("policy", "kind", "seconds"),
    [
        ("earliest", LookupKind.EARLIEST, 0),
        ("latest", LookupKind.LATEST, 0),
        ("by_duration:PT1H", LookupKind.DURATION, 3600),
    ],
)
def test_no_committed_offset_follows_the_policy_with_an_event(policy, kind, seconds):
    harness = Harness(auto_offset_reset=policy)
    harness.assign(offset=None)
    plan = harness.plan()
    assert plan.pulls == []
    (lookup,) = plan.lookups
    assert (lookup.tp, lookup.kind, lookup.seconds) == (A0, kind, seconds)
    assert harness.plan().lookups == [], "one look-up is under way already"
    harness.machine.on_offset(lookup, (42, 3), harness.now)
    assert harness.events == [NoCommittedOffset("a", 0, 42, policy)]
    assert wants(harness.pull()) == [(0, 42, E1)]


def test_policy_none_is_a_typed_error():
    harness = Harness(auto_offset_reset="none")
    harness.assign(offset=None)
    assert harness.plan().lookups == []
    with pytest.raises(NoOffsetForPartitionError):
        harness.machine.take()


def test_an_error_that_is_raised_again_and_again_does_not_grow():
    """Whoever polls on in spite of it would keep the frames of every call."""
    harness = Harness(auto_offset_reset="none")
    harness.assign(offset=None)
    harness.plan()
    lengths = set()
    for _ in range(3):
        with pytest.raises(NoOffsetForPartitionError) as caught:
            harness.machine.take()
        lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(lengths) == 1


@pytest.mark.parametrize("known", [True, False])
def test_an_error_goes_with_its_partition_also_if_nobody_has_heard_of_it(known):
    harness = Harness(auto_offset_reset="none")
    harness.assign(offset=None)
    harness.plan()
    if known:
        with pytest.raises(NoOffsetForPartitionError):
            harness.machine.take()
    harness.assign(epoch=E2)  # somebody has committed an offset
    assert harness.machine.take() is None
    harness.assign(offset=None, epoch=E1)
    harness.plan()
    harness.machine.revoke(A0)
    assert not harness.machine.has_something
    assert harness.machine.take() is None


def test_a_new_partition_starts_at_its_beginning_under_latest():
    harness = Harness(auto_offset_reset="latest")
    harness.assign(offset=None, from_start=True)
    assert [x.kind for x in harness.plan().lookups] == [LookupKind.EARLIEST]


@pytest.mark.parametrize("error", [RequestTimedOutError("slow"), UnknownServerError()])
def test_a_failed_lookup_is_repeated_and_changes_nothing(error):
    harness = Harness()
    partition = harness.assign(offset=None)
    (lookup,) = harness.plan().lookups
    harness.machine.on_offset(lookup, error, harness.now)
    plan = harness.plan()
    assert (plan.lookups, plan.refresh_metadata, partition.state) == ([], True, FetchState.AWAITING_OFFSET)
    assert [x.kind for x in harness.plan(after=0.11).lookups] == [LookupKind.EARLIEST]


def test_a_lookup_that_is_not_allowed_is_the_partitions_error():
    harness = Harness()
    harness.assign(offset=None)
    (lookup,) = harness.plan().lookups
    harness.machine.on_offset(lookup, TopicAuthorizationFailedError(), harness.now)
    with pytest.raises(TopicAuthorizationFailedError):
        harness.machine.take()


def test_an_answer_to_a_lookup_that_a_seek_overtook_is_ignored():
    harness = Harness()
    partition = harness.assign(offset=None)
    (lookup,) = harness.plan().lookups
    harness.machine.seek(A0, 77)
    harness.machine.on_offset(lookup, (0, 3), harness.now)
    assert partition.position == 77


def test_seek_to_the_ends_looks_them_up_silently():
    harness = Harness()
    harness.assign()
    for purpose, kind in (
        (LookupPurpose.SEEK_BEGINNING, LookupKind.EARLIEST),
        (LookupPurpose.SEEK_END, LookupKind.LATEST),
    ):
        harness.machine.seek_to(A0, purpose)
        (lookup,) = harness.plan().lookups
        assert lookup.kind is kind
        harness.machine.on_offset(lookup, (3, 1), harness.now)
    assert harness.events == []
    assert harness.machine.partitions.require(A0).position == 3


def out_of_range(harness):
    harness.assign()
    harness.reply(harness.pull(), nothing(10, error_code=1, high_watermark=-1))
    (lookup,) = harness.plan().lookups
    assert lookup.kind is LookupKind.BOUNDS
    return lookup


def test_out_of_range_is_an_error_with_the_bounds_of_the_log():
    harness = Harness()
    harness.machine.on_offset(out_of_range(harness), (50, 90), harness.now)
    with pytest.raises(FetchOffsetOutOfRangeError) as caught:
        harness.machine.take()
    error = caught.value
    assert (error.offset, error.log_start_offset, error.log_end_offset) == (10, 50, 90)
    harness.machine.seek(A0, 50)
    assert harness.machine.take() is None
    assert wants(harness.pull()) == [(0, 50, E1)]


def test_a_reset_follows_the_policy_and_counts_what_was_skipped():
    harness = Harness(on_data_loss="reset")
    harness.machine.on_offset(out_of_range(harness), (50, 90), harness.now)
    (lookup,) = harness.plan().lookups
    assert lookup.kind is LookupKind.EARLIEST
    harness.machine.on_offset(lookup, (50, 4), harness.now)
    assert harness.events == [OffsetReset("a", 0, 10, 50, "out_of_range", 40)]
    assert wants(harness.pull()) == [(0, 50, E1)]


def test_reset_with_policy_none_is_still_the_error():
    harness = Harness(on_data_loss="reset", auto_offset_reset="none")
    harness.machine.on_offset(out_of_range(harness), (50, 90), harness.now)
    with pytest.raises(FetchOffsetOutOfRangeError):
        harness.machine.take()


def test_an_offset_that_the_log_has_after_all_is_not_reset():
    harness = Harness(on_data_loss="reset")
    harness.machine.on_offset(out_of_range(harness), (0, 90), harness.now)
    assert harness.plan().lookups == []
    assert wants(harness.pull(after=0.11)) == [(0, 10, E1)]
    assert harness.events == []


def out_of_range_by_a_stale_leader(harness):
    """A new owner's position is of epoch 7, as the commit says; the metadata that it has are of epoch 5."""
    harness.assign(offset=71, leader_epoch=7)
    harness.reply(harness.pull(), nothing(71, error_code=1, high_watermark=-1))
    (lookup,) = harness.plan().lookups
    assert lookup.kind is LookupKind.BOUNDS
    harness.machine.on_offset(lookup, (0, 60), harness.now)


@pytest.mark.parametrize("on_data_loss", ["reset", "fail"])
def test_a_leader_older_than_the_position_is_no_proof_that_the_offset_is_out_of_range(on_data_loss):
    """A broker that was suspended takes itself for the leader, and its log ends before what the next one has got."""
    harness = Harness(on_data_loss=on_data_loss)
    out_of_range_by_a_stale_leader(harness)
    plan = harness.plan()
    assert (plan.lookups, plan.refresh_metadata) == ([], True)
    (again,) = harness.plan(after=0.11).lookups
    assert again.kind is LookupKind.BOUNDS
    harness.machine.update_metadata(snapshot(2, 1, epochs=[7, 5]))
    harness.machine.on_offset(again, (0, 90), harness.now)
    pull = harness.pull(after=1)
    assert (pull.broker, wants(pull)) == (2, [(0, 71, E1)])
    assert harness.events == []


def test_a_leader_of_an_unknown_epoch_is_believed_at_once():
    """Else each offset out of range would stall for half a minute on brokers before Kafka 2.4."""
    harness = Harness(on_data_loss="reset")
    harness.machine.update_metadata(snapshot(1, 1, epochs=[-1, -1]))
    out_of_range_by_a_stale_leader(harness)
    (lookup,) = harness.plan().lookups
    assert lookup.kind is LookupKind.EARLIEST


def test_a_leader_that_stays_older_than_the_position_is_believed_in_the_end():
    """A topic that was made anew begins at epoch 0, and the commit may not say of which topic it is."""
    harness = Harness(on_data_loss="reset")
    out_of_range_by_a_stale_leader(harness)
    kinds, begun = [], harness.now
    while not harness.events:
        assert harness.now < begun + 60
        for lookup in harness.plan(after=1.0).lookups:
            kinds.append((lookup.kind, harness.now >= begun + 30))
            harness.machine.on_offset(lookup, (0, 60), harness.now)
    assert set(kinds) == {(LookupKind.BOUNDS, False), (LookupKind.BOUNDS, True), (LookupKind.EARLIEST, True)}
    assert harness.events == [OffsetReset("a", 0, 71, 0, "out_of_range", 0)]


def test_good_records_come_before_the_question_whether_the_rest_is_out_of_range():
    harness = Harness(on_data_loss="reset")
    harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    second, third = harness.pulls()
    harness.reply(second, nothing(20, error_code=1))
    harness.reply(third)
    assert harness.plan().lookups == []
    assert harness.read() == [(0, 10, 20)]
    issue = harness.pulls(after=0.2)[0]
    harness.reply(issue, nothing(20, error_code=1))
    assert [x.kind for x in harness.plan().lookups] == [LookupKind.BOUNDS]


def validating(harness, *, position_epoch=5):
    harness.assign(leader_epoch=position_epoch)
    harness.pulls()
    harness.machine.update_metadata(snapshot(2, epochs=[6]))
    return harness.plan().validations


def test_a_new_leader_epoch_is_checked_before_anything_is_read():
    harness = Harness(leaders=(1,))
    ((tp, version, current, epoch, _),) = validating(harness)
    assert (tp, current, epoch) == (A0, 6, 5)
    assert harness.pulls() == []
    harness.machine.on_epoch_end(tp, version, (5, 10), harness.now)
    issue = harness.pull()
    assert (issue.broker, wants(issue)) == (2, [(0, 10, E1)])
    assert harness.events == []


def planned_up_to(harness, end, epoch):
    """A partition whose end was looked up at an epoch, under a newer leader by now."""
    harness.assign(end_offset=end, end_epoch=epoch)
    return harness.plan().validations


@pytest.mark.parametrize("on_data_loss", ["reset", "fail"])
def test_the_end_of_a_bounded_run_has_to_be_in_the_log_that_it_was_looked_up_in(on_data_loss):
    """A truncated log grows again: between where it parts and the planned end there are other records."""
    harness = Harness(on_data_loss=on_data_loss)
    ((tp, version, current, epoch, _),) = planned_up_to(harness, 50, 3)
    assert (tp, current, epoch) == (A0, 5, 3)
    assert harness.pulls() == []
    harness.machine.on_epoch_end(tp, version, (3, 40), harness.now)
    with pytest.raises(LogTruncationError) as caught:
        harness.machine.take()
    error = caught.value
    assert (error.offset, error.divergent_offset, error.divergent_epoch) == (50, 40, 3)


@pytest.mark.parametrize("found", [(3, 50), (2, 50), (3, 70), (-1, -1)])
def test_a_bounded_run_whose_end_is_in_the_log_is_read_and_checked_again_under_the_next_leader(found):
    """Also where nothing was written in the epoch of the end, so that the log has only one before."""
    harness = Harness()
    ((tp, version, *_),) = planned_up_to(harness, 50, 3)
    harness.machine.on_epoch_end(tp, version, found, harness.now)
    assert wants(harness.pull()) == [(0, 10, E1)]
    harness.machine.update_metadata(snapshot(2, 1, epochs=[6, 5]))
    ((_, _, current, epoch, _),) = harness.plan().validations
    assert (current, epoch) == (6, 5)


def test_a_bounded_run_is_not_doubted_under_the_leader_of_its_end():
    harness = Harness()
    assert planned_up_to(harness, 50, 5) == []
    assert harness.machine.partitions.require(A0).state is FetchState.FETCHING


def test_an_unknown_epoch_is_never_a_rewind():
    harness = Harness(leaders=(1,), on_data_loss="reset")
    ((tp, version, *_),) = validating(harness)
    harness.machine.on_epoch_end(tp, version, (-1, -1), harness.now)
    assert wants(harness.pull()) == [(0, 10, E1)]
    assert harness.events == []


def test_a_broker_that_lets_only_brokers_ask_leaves_a_position_undoubted():
    """Before Kafka 2.3 the question needs rights on the cluster, which consumers don't have; Java's client doesn't ask it there."""
    harness = Harness(leaders=(1,))
    ((tp, version, *_),) = validating(harness)
    harness.machine.on_epoch_end(tp, version, ClusterAuthorizationFailedError(), harness.now)
    assert wants(harness.pull()) == [(0, 10, E1)]


def test_a_position_of_unknown_epoch_is_not_doubted():
    harness = Harness(leaders=(1,))
    assert validating(harness, position_epoch=-1) == []
    assert harness.machine.partitions.require(A0).state is FetchState.FETCHING


def test_a_truncated_log_is_an_error_with_the_divergence():
    harness = Harness(leaders=(1,))
    ((tp, version, *_),) = validating(harness)
    harness.machine.on_epoch_end(tp, version, (4, 7), harness.now)
    with pytest.raises(LogTruncationError) as caught:
        harness.machine.take()
    error = caught.value
    assert (error.offset, error.divergent_offset, error.divergent_epoch) == (10, 7, 4)


def test_a_reset_after_truncation_goes_to_the_divergence_and_is_told_once():
    harness = Harness(leaders=(1,), on_data_loss="reset", auto_offset_reset="latest")
    ((tp, version, *_),) = validating(harness)
    harness.machine.on_epoch_end(tp, version, (4, 7), harness.now)
    assert wants(harness.pull()) == [(0, 7, E1)]
    assert harness.events == [OffsetReset("a", 0, 10, 7, "truncated", 0)]


def test_what_is_in_the_users_hands_is_consumed_before_the_check():
    harness = Harness(leaders=(1,))
    harness.assign(leader_epoch=5)
    harness.reply(harness.pull(), got(10, 20))
    harness.reply(harness.pulls()[0], got(20, 30))
    item = harness.machine.take()
    harness.machine.update_metadata(snapshot(2, epochs=[6]))
    assert harness.plan().validations == []
    assert harness.machine.take() is None, "what was fetched and not handed out is fetched again"
    harness.machine.consumed(item)
    assert harness.machine.partitions.needs_plan
    ((tp, version, *_),) = harness.plan().validations
    harness.machine.on_epoch_end(tp, version, (5, 30), harness.now)
    assert wants(harness.pull()) == [(0, 20, E1)]


def test_what_was_fetched_behind_a_position_of_unknown_epoch_is_fetched_again_under_a_new_one():
    """It may be of a log that has ended, and the next records would be of another."""
    harness = Harness(leaders=(1,))
    harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    harness.machine.update_metadata(snapshot(2, epochs=[6]))
    plan = harness.plan()
    assert plan.validations == [], "there is no epoch to ask about"
    assert harness.machine.take() is None
    assert [wants(issue) for issue in plan.pulls] == [[(0, 10, E1)]]
    assert harness.events == []


def test_records_in_the_users_hands_give_a_position_the_epoch_that_is_checked():
    harness = Harness(leaders=(1,), on_data_loss="reset")
    harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    item = harness.machine.take()
    item.leader_epoch = 5
    harness.machine.update_metadata(snapshot(2, epochs=[6]))
    assert harness.plan().validations == []
    harness.machine.consumed(item)
    ((tp, version, current, epoch, _),) = harness.plan().validations
    assert (tp, current, epoch) == (A0, 6, 5)
    harness.machine.on_epoch_end(tp, version, (5, 11), harness.now)
    assert wants(harness.pull()) == [(0, 11, E1)]
    assert harness.events == [OffsetReset("a", 0, 20, 11, "truncated", 0)]


def test_records_that_are_put_back_leave_a_position_of_unknown_epoch_undoubted():
    harness = Harness(leaders=(1,))
    harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    harness.machine.take()
    harness.machine.update_metadata(snapshot(2, epochs=[6]))
    assert harness.plan().validations == []
    harness.machine.rewind()
    plan = harness.plan()
    assert plan.validations == []
    assert [wants(issue) for issue in plan.pulls] == [[(0, 10, E1)]]


@pytest.mark.parametrize("error", [RequestTimedOutError("slow"), UnknownServerError()])
def test_endless_failures_of_the_check_back_off(error):
    harness = Harness(leaders=(1,))
    ((tp, version, *_),) = validating(harness)
    harness.machine.on_epoch_end(tp, version, error, harness.now)
    assert harness.plan().validations == []
    assert len(harness.plan(after=0.11).validations) == 1


def test_a_recreated_topic_is_an_error_of_its_own():
    harness = Harness(leaders=(1,))
    harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    harness.machine.update_metadata(snapshot(1, topic_id=b"j" * 16, epochs=[0]))
    with pytest.raises(TopicRecreatedError) as caught:
        harness.machine.take()
    assert caught.value.offset == 10
    assert "6a6a" in str(caught.value)


@pytest.mark.parametrize("leaders", [(), (1,)], ids=["gone at first", "made anew before"])
def test_offsets_of_one_topic_are_not_read_in_another_of_its_name(leaders):
    """A task of Spark knows the id from its plan."""
    harness = Harness(leaders=leaders)
    harness.assign(topic_id=b"h" * 16)
    harness.machine.update_metadata(snapshot(1, epochs=[0]))
    with pytest.raises(TopicRecreatedError, match="6868"):
        harness.machine.take()
    assert harness.plan().pulls == []


def test_a_reset_reads_the_recreated_topic_by_policy_and_nothing_of_the_old_one_counts():
    harness = Harness(leaders=(1,), on_data_loss="reset")
    harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    item = harness.machine.take()
    harness.machine.update_metadata(snapshot(1, topic_id=b"j" * 16, epochs=[0]))
    assert not harness.machine.consumed(item)
    (lookup,) = harness.plan().lookups
    harness.machine.on_offset(lookup, (0, 0), harness.now)
    assert harness.events == [OffsetReset("a", 0, 10, 0, "recreated", 0)]
    want = harness.pulls()[-1].pull.wants[0]
    assert (want.fetch_offset, want.topic_id, want.leader_epoch) == (0, b"j" * 16, 0)


@pytest.mark.parametrize("auto_offset_reset", ["earliest", "latest", "by_duration:PT1H"])
@pytest.mark.parametrize("offset", [10, None])
def test_a_topic_that_was_made_anew_is_read_from_its_start_whatever_it_held(auto_offset_reset, offset):
    """The group knows the id from a commit, or the member from before: nothing of the new topic has been read."""
    harness = Harness(leaders=(1,), on_data_loss="reset", auto_offset_reset=auto_offset_reset)
    partition = harness.assign(offset=offset, topic_id=b"h" * 16)
    assert partition.where is None
    (lookup,) = harness.plan().lookups
    assert lookup.kind is LookupKind.EARLIEST
    harness.machine.on_offset(lookup, (3, 0), harness.now)
    old, skipped = (-1, None) if offset is None else (offset, 0)
    assert harness.events == [OffsetReset("a", 0, old, 3, "recreated", skipped)]
    assert partition.where == CommitPosition(3, 0, b"i" * 16)


@pytest.mark.parametrize("looked_up", [False, True])
def test_metadata_that_is_older_than_the_commit_moves_nothing_back(looked_up):
    """Another member committed in a topic that was made anew, before this one's broker has heard of it."""
    harness = Harness(leaders=(1,), on_data_loss="reset")
    partition = harness.assign(offset=10, topic_id=b"j" * 16)
    (lookup,) = harness.plan().lookups
    if looked_up:
        harness.machine.on_offset(lookup, (0, 0), harness.now)
    harness.machine.update_metadata(snapshot(1, topic_id=b"j" * 16, epochs=[0]))
    assert partition.where == CommitPosition(10, -1, b"j" * 16)
    assert harness.events[-1] == OffsetReset("a", 0, 0 if looked_up else 10, 10, "recreated", 0)
    want = harness.pulls()[-1].pull.wants[0]
    assert (want.fetch_offset, want.topic_id) == (10, b"j" * 16)


def test_a_topic_whose_id_comes_back_is_read_on_from_where_it_was():
    harness = Harness(leaders=(1,), on_data_loss="reset")
    partition = harness.assign()
    harness.reply(harness.pull(), got(10, 20))
    assert harness.machine.consumed(harness.machine.take())
    harness.machine.update_metadata(snapshot(1, topic_id=b"j" * 16, epochs=[0]))
    assert partition.where is None
    harness.machine.update_metadata(snapshot(1, topic_id=b"i" * 16, epochs=[0]))
    assert partition.where is not None
    assert (partition.where.offset, partition.where.topic_id) == (20, b"i" * 16)


@pytest.mark.parametrize(
    "options", [{"on_data_loss": "fail"}, {"on_data_loss": "reset", "auto_offset_reset": "none"}]
)
@pytest.mark.parametrize("offset", [10, None])
def test_a_topic_that_was_made_anew_has_no_position_under_a_policy_that_forbids_one(options, offset):
    harness = Harness(leaders=(1,), **options)
    partition = harness.assign(offset=offset, topic_id=b"h" * 16)
    with pytest.raises(TopicRecreatedError, match="6868"):
        harness.machine.take()
    assert partition.where is None
    harness.machine.seek(A0, 0)
    assert partition.where == CommitPosition(0, -1, b"i" * 16)


def test_a_position_is_of_the_topic_in_which_it_was_read():
    harness = Harness(leaders=(1,), on_data_loss="reset")
    partition = harness.assign()
    assert partition.where == CommitPosition(10, -1, b"i" * 16)
    harness.machine.update_metadata(snapshot(1, topic_id=b"j" * 16, epochs=[0]))
    assert partition.position_id == b"i" * 16
    assert partition.where is None
    (lookup,) = harness.plan().lookups
    harness.machine.on_offset(lookup, (0, 0), harness.now)
    assert partition.where == CommitPosition(0, 0, b"j" * 16)


def test_an_unknown_topic_id_with_unchanged_metadata_is_a_temporary_error():
    harness = Harness(leaders=(1,))
    partition = harness.assign()
    harness.reply(harness.pull(), nothing(10, error_code=100))
    harness.machine.update_metadata(snapshot(1))
    assert partition.state is FetchState.FETCHING
    assert partition.position == 10
