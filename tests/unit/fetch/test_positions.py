"""Positions that are looked up or validated: starts, seeks to an end, data loss, truncation, recreated topics."""

import traceback

import pytest

from kafka_actors.errors import (
    FetchOffsetOutOfRangeError,
    LogTruncationError,
    NoOffsetForPartitionError,
    RequestTimedOutError,
    TopicRecreatedError,
)
from kafka_actors.events import NoCommittedOffset, OffsetReset
from kafka_actors.fetch.machines.partition_state import (
    CommitPosition,
    FetchState,
    LookupPurpose,
)
from kafka_actors.fetch.machines.resets import LookupKind
from tests.fakes.fetching import A0, E1, E2, Bench, got, nothing, snapshot, wants


@pytest.mark.parametrize(
    ("policy", "kind", "seconds"),
    [
        ("earliest", LookupKind.EARLIEST, 0),
        ("latest", LookupKind.LATEST, 0),
        ("by_duration:PT1H", LookupKind.DURATION, 3600),
    ],
)
def test_no_committed_offset_follows_the_policy_with_an_event(policy, kind, seconds):
    bench = Bench(auto_offset_reset=policy)
    bench.assign(offset=None)
    plan = bench.plan()
    assert plan.pulls == []
    (lookup,) = plan.lookups
    assert (lookup.tp, lookup.kind, lookup.seconds) == (A0, kind, seconds)
    assert bench.plan().lookups == [], "one look-up is under way already"
    bench.machine.on_offset(lookup, (42, 3), bench.now)
    assert bench.events == [NoCommittedOffset("a", 0, 42, policy)]
    assert wants(bench.pull()) == [(0, 42, E1)]


def test_policy_none_is_a_typed_error():
    bench = Bench(auto_offset_reset="none")
    bench.assign(offset=None)
    assert bench.plan().lookups == []
    with pytest.raises(NoOffsetForPartitionError):
        bench.machine.take()


def test_an_error_that_is_raised_again_and_again_does_not_grow():
    """Whoever polls on in spite of it would keep the frames of every call."""
    bench = Bench(auto_offset_reset="none")
    bench.assign(offset=None)
    bench.plan()
    lengths = set()
    for _ in range(3):
        with pytest.raises(NoOffsetForPartitionError) as caught:
            bench.machine.take()
        lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(lengths) == 1


@pytest.mark.parametrize("known", [True, False])
def test_an_error_goes_with_its_partition_also_if_nobody_has_heard_of_it(known):
    bench = Bench(auto_offset_reset="none")
    bench.assign(offset=None)
    bench.plan()
    if known:
        with pytest.raises(NoOffsetForPartitionError):
            bench.machine.take()
    bench.assign(epoch=E2)  # somebody has committed an offset
    assert bench.machine.take() is None
    bench.assign(offset=None, epoch=E1)
    bench.plan()
    bench.machine.revoke(A0)
    assert not bench.machine.has_something
    assert bench.machine.take() is None


def test_a_new_partition_starts_at_its_beginning_under_latest():
    bench = Bench(auto_offset_reset="latest")
    bench.assign(offset=None, from_start=True)
    assert [x.kind for x in bench.plan().lookups] == [LookupKind.EARLIEST]


def test_a_failed_lookup_is_repeated_and_changes_nothing():
    bench = Bench()
    partition = bench.assign(offset=None)
    (lookup,) = bench.plan().lookups
    bench.machine.on_offset(lookup, RequestTimedOutError("slow"), bench.now)
    plan = bench.plan()
    assert (plan.lookups, plan.refresh_metadata, partition.state) == ([], True, FetchState.AWAITING_OFFSET)
    assert [x.kind for x in bench.plan(after=0.11).lookups] == [LookupKind.EARLIEST]


def test_an_answer_to_a_lookup_that_a_seek_overtook_is_ignored():
    bench = Bench()
    partition = bench.assign(offset=None)
    (lookup,) = bench.plan().lookups
    bench.machine.seek(A0, 77)
    bench.machine.on_offset(lookup, (0, 3), bench.now)
    assert partition.position == 77


def test_seek_to_the_ends_looks_them_up_silently():
    bench = Bench()
    bench.assign()
    for purpose, kind in (
        (LookupPurpose.SEEK_BEGINNING, LookupKind.EARLIEST),
        (LookupPurpose.SEEK_END, LookupKind.LATEST),
    ):
        bench.machine.seek_to(A0, purpose)
        (lookup,) = bench.plan().lookups
        assert lookup.kind is kind
        bench.machine.on_offset(lookup, (3, 1), bench.now)
    assert bench.events == []
    assert bench.machine.partitions.require(A0).position == 3


def out_of_range(bench):
    bench.assign()
    bench.reply(bench.pull(), nothing(10, error_code=1, high_watermark=-1))
    (lookup,) = bench.plan().lookups
    assert lookup.kind is LookupKind.BOUNDS
    return lookup


def test_out_of_range_is_an_error_with_the_bounds_of_the_log():
    bench = Bench()
    bench.machine.on_offset(out_of_range(bench), (50, 90), bench.now)
    with pytest.raises(FetchOffsetOutOfRangeError) as caught:
        bench.machine.take()
    error = caught.value
    assert (error.offset, error.log_start_offset, error.log_end_offset) == (10, 50, 90)
    bench.machine.seek(A0, 50)
    assert bench.machine.take() is None
    assert wants(bench.pull()) == [(0, 50, E1)]


def test_a_reset_follows_the_policy_and_counts_what_was_skipped():
    bench = Bench(on_data_loss="reset")
    bench.machine.on_offset(out_of_range(bench), (50, 90), bench.now)
    (lookup,) = bench.plan().lookups
    assert lookup.kind is LookupKind.EARLIEST
    bench.machine.on_offset(lookup, (50, 4), bench.now)
    assert bench.events == [OffsetReset("a", 0, 10, 50, "out_of_range", 40)]
    assert wants(bench.pull()) == [(0, 50, E1)]


def test_reset_with_policy_none_is_still_the_error():
    bench = Bench(on_data_loss="reset", auto_offset_reset="none")
    bench.machine.on_offset(out_of_range(bench), (50, 90), bench.now)
    with pytest.raises(FetchOffsetOutOfRangeError):
        bench.machine.take()


def test_an_offset_that_the_log_has_after_all_is_not_reset():
    bench = Bench(on_data_loss="reset")
    bench.machine.on_offset(out_of_range(bench), (0, 90), bench.now)
    assert bench.plan().lookups == []
    assert wants(bench.pull(after=0.11)) == [(0, 10, E1)]
    assert bench.events == []


def test_good_records_come_before_the_question_whether_the_rest_is_out_of_range():
    bench = Bench(on_data_loss="reset")
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    second, third = bench.pulls()
    bench.reply(second, nothing(20, error_code=1))
    bench.reply(third)
    assert bench.plan().lookups == []
    assert bench.read() == [(0, 10, 20)]
    issue = bench.pulls(after=0.2)[0]
    bench.reply(issue, nothing(20, error_code=1))
    assert [x.kind for x in bench.plan().lookups] == [LookupKind.BOUNDS]


def validating(bench, *, position_epoch=5):
    bench.assign(leader_epoch=position_epoch)
    bench.pulls()
    bench.machine.update_metadata(snapshot(2, epochs=[6]))
    return bench.plan().validations


def test_a_new_leader_epoch_is_checked_before_anything_is_read():
    bench = Bench(leaders=(1,))
    ((tp, version, current, epoch),) = validating(bench)
    assert (tp, current, epoch) == (A0, 6, 5)
    assert bench.pulls() == []
    bench.machine.on_epoch_end(tp, version, (5, 10), bench.now)
    issue = bench.pull()
    assert (issue.broker, wants(issue)) == (2, [(0, 10, E1)])
    assert bench.events == []


def test_an_unknown_epoch_is_never_a_rewind():
    bench = Bench(leaders=(1,), on_data_loss="reset")
    ((tp, version, _, _),) = validating(bench)
    bench.machine.on_epoch_end(tp, version, (-1, -1), bench.now)
    assert wants(bench.pull()) == [(0, 10, E1)]
    assert bench.events == []


def test_a_position_of_unknown_epoch_is_not_doubted():
    bench = Bench(leaders=(1,))
    assert validating(bench, position_epoch=-1) == []
    assert bench.machine.partitions.require(A0).state is FetchState.FETCHING


def test_a_truncated_log_is_an_error_with_the_divergence():
    bench = Bench(leaders=(1,))
    ((tp, version, _, _),) = validating(bench)
    bench.machine.on_epoch_end(tp, version, (4, 7), bench.now)
    with pytest.raises(LogTruncationError) as caught:
        bench.machine.take()
    error = caught.value
    assert (error.offset, error.divergent_offset, error.divergent_epoch) == (10, 7, 4)


def test_a_reset_after_truncation_goes_to_the_divergence_and_is_told_once():
    bench = Bench(leaders=(1,), on_data_loss="reset", auto_offset_reset="latest")
    ((tp, version, _, _),) = validating(bench)
    bench.machine.on_epoch_end(tp, version, (4, 7), bench.now)
    assert wants(bench.pull()) == [(0, 7, E1)]
    assert bench.events == [OffsetReset("a", 0, 10, 7, "truncated", 0)]


def test_what_is_in_the_users_hands_is_consumed_before_the_check():
    bench = Bench(leaders=(1,))
    bench.assign(leader_epoch=5)
    bench.reply(bench.pull(), got(10, 20))
    bench.reply(bench.pulls()[0], got(20, 30))
    item = bench.machine.take()
    bench.machine.update_metadata(snapshot(2, epochs=[6]))
    assert bench.plan().validations == []
    assert bench.machine.take() is None, "what was fetched and not handed out is fetched again"
    bench.machine.consumed(item)
    assert bench.machine.partitions.needs_plan
    ((tp, version, _, _),) = bench.plan().validations
    bench.machine.on_epoch_end(tp, version, (5, 30), bench.now)
    assert wants(bench.pull()) == [(0, 20, E1)]


def test_endless_failures_of_the_check_back_off():
    bench = Bench(leaders=(1,))
    ((tp, version, _, _),) = validating(bench)
    bench.machine.on_epoch_end(tp, version, RequestTimedOutError("slow"), bench.now)
    assert bench.plan().validations == []
    assert len(bench.plan(after=0.11).validations) == 1


def test_a_recreated_topic_is_an_error_of_its_own():
    bench = Bench(leaders=(1,))
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    bench.machine.update_metadata(snapshot(1, topic_id=b"j" * 16, epochs=[0]))
    with pytest.raises(TopicRecreatedError) as caught:
        bench.machine.take()
    assert caught.value.offset == 10
    assert "6a6a" in str(caught.value)


@pytest.mark.parametrize("leaders", [(), (1,)], ids=["gone at first", "made anew before"])
def test_offsets_of_one_topic_are_not_read_in_another_of_its_name(leaders):
    """A task of Spark knows the id from its plan."""
    bench = Bench(leaders=leaders)
    bench.assign(topic_id=b"h" * 16)
    bench.machine.update_metadata(snapshot(1, epochs=[0]))
    with pytest.raises(TopicRecreatedError, match="6868"):
        bench.machine.take()
    assert bench.plan().pulls == []


def test_a_reset_reads_the_recreated_topic_by_policy_and_nothing_of_the_old_one_counts():
    bench = Bench(leaders=(1,), on_data_loss="reset")
    bench.assign()
    bench.reply(bench.pull(), got(10, 20))
    item = bench.machine.take()
    bench.machine.update_metadata(snapshot(1, topic_id=b"j" * 16, epochs=[0]))
    assert not bench.machine.consumed(item)
    (lookup,) = bench.plan().lookups
    bench.machine.on_offset(lookup, (0, 0), bench.now)
    assert bench.events == [OffsetReset("a", 0, 10, 0, "recreated", 0)]
    want = bench.pulls()[-1].pull.wants[0]
    assert (want.fetch_offset, want.topic_id, want.leader_epoch) == (0, b"j" * 16, 0)


@pytest.mark.parametrize("auto_offset_reset", ["earliest", "latest", "by_duration:PT1H"])
@pytest.mark.parametrize("offset", [10, None])
def test_a_topic_that_was_made_anew_is_read_from_its_start_whatever_it_held(auto_offset_reset, offset):
    """The group knows the id from a commit, or the member from before: nothing of the new topic has been read."""
    bench = Bench(leaders=(1,), on_data_loss="reset", auto_offset_reset=auto_offset_reset)
    partition = bench.assign(offset=offset, topic_id=b"h" * 16)
    assert partition.where is None
    (lookup,) = bench.plan().lookups
    assert lookup.kind is LookupKind.EARLIEST
    bench.machine.on_offset(lookup, (3, 0), bench.now)
    old, skipped = (-1, None) if offset is None else (offset, 0)
    assert bench.events == [OffsetReset("a", 0, old, 3, "recreated", skipped)]
    assert partition.where == CommitPosition(3, 0, b"i" * 16)


@pytest.mark.parametrize(
    "options", [{"on_data_loss": "fail"}, {"on_data_loss": "reset", "auto_offset_reset": "none"}]
)
@pytest.mark.parametrize("offset", [10, None])
def test_a_topic_that_was_made_anew_has_no_position_under_a_policy_that_forbids_one(options, offset):
    bench = Bench(leaders=(1,), **options)
    partition = bench.assign(offset=offset, topic_id=b"h" * 16)
    with pytest.raises(TopicRecreatedError, match="6868"):
        bench.machine.take()
    assert partition.where is None
    bench.machine.seek(A0, 0)
    assert partition.where == CommitPosition(0, -1, b"i" * 16)


def test_a_position_is_of_the_topic_in_which_it_was_read():
    bench = Bench(leaders=(1,), on_data_loss="reset")
    partition = bench.assign()
    assert partition.where == CommitPosition(10, -1, b"i" * 16)
    bench.machine.update_metadata(snapshot(1, topic_id=b"j" * 16, epochs=[0]))
    assert partition.position_id == b"i" * 16
    assert partition.where is None
    (lookup,) = bench.plan().lookups
    bench.machine.on_offset(lookup, (0, 0), bench.now)
    assert partition.where == CommitPosition(0, 0, b"j" * 16)


def test_an_unknown_topic_id_with_unchanged_metadata_is_a_temporary_error():
    bench = Bench(leaders=(1,))
    partition = bench.assign()
    bench.reply(bench.pull(), nothing(10, error_code=100))
    bench.machine.update_metadata(snapshot(1))
    assert partition.state is FetchState.FETCHING
    assert partition.position == 10
