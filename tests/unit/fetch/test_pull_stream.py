"""Streams of pulls: brokers that fail, move, refuse the login or fall silent."""

import pytest

from kafka_actors.errors import (
    DisconnectedError,
    NodeNotReadyError,
    SaslAuthenticationFailedError,
)
from tests.fakes.fetching import A0, A1, E1, MIB, Harness, got, nothing, snapshot, wants


def test_a_refused_login_fails_the_partitions_and_is_not_tried_again():
    harness = Harness()
    harness.assign(A0)
    harness.assign(A1)
    refused = SaslAuthenticationFailedError("no such user")
    harness.machine.on_pull_failed(harness.pull(), refused, harness.now)
    assert harness.plan().pulls == []
    with pytest.raises(SaslAuthenticationFailedError, match="no such user"):
        harness.machine.take()
    assert "no such user" in harness.machine.reason(A0, harness.now)


def test_a_refused_login_is_no_matter_of_partitions_that_went_meanwhile():
    harness = Harness()
    harness.assign(A0)
    harness.assign(A1)
    issue = harness.pull()
    harness.machine.revoke(A1)
    harness.machine.on_pull_failed(issue, SaslAuthenticationFailedError("no such user"), harness.now)
    with pytest.raises(SaslAuthenticationFailedError, match="no such user"):
        harness.machine.take()
    harness.machine.revoke(A0)
    assert harness.machine.take() is None


def test_a_dead_source_is_asked_again_from_our_own_position():
    harness = Harness()
    harness.assign(A0)
    harness.assign(A1)
    harness.reply(harness.pull(), got(10, 20), got(10, 15, partition=1))
    lost = harness.pulls()
    for issue in lost:
        harness.machine.on_pull_failed(issue, DisconnectedError("gone"), harness.now)
    plan = harness.plan()
    assert (plan.pulls, plan.refresh_metadata) == ([], True)
    issue = harness.pull(after=0.06)
    assert issue.pull.sequence == 0
    assert sorted(wants(issue)) == [(0, 20, E1), (1, 15, E1)]
    harness.reply(lost[0], got(20, 30))
    assert harness.read() == [(0, 10, 20), (1, 10, 15)], "what a dead stream still answers is dropped"


def test_why_a_broker_was_lost_is_told_until_it_answers_again():
    """Also while it has a new request, which it may leave without an answer as well."""
    harness = Harness(leaders=(1,))
    harness.assign(A0)
    harness.machine.on_pull_failed(harness.pull(), DisconnectedError("no answer in time"), harness.now)
    issue = harness.pull(after=0.06)
    assert harness.machine.reason(A0, harness.now) == "broker 1: no answer in time"
    harness.reply(issue, got(10, 20))
    assert harness.machine.reason(A0, harness.now) == ""


def test_a_throttled_broker_that_was_lost_before_is_said_to_throttle():
    harness = Harness(leaders=(1,))
    harness.assign(A0)
    harness.machine.on_pull_failed(harness.pull(), DisconnectedError("gone"), harness.now)
    harness.reply(harness.pull(after=0.06), got(10, 20), throttle_ms=300)
    assert harness.machine.reason(A0, harness.now) == "broker 1: throttled"


def test_failures_of_one_broker_do_not_hold_up_another():
    harness = Harness(leaders=(1, 2))
    harness.assign(A0)
    harness.assign(A1)
    one, two = harness.pulls()
    harness.machine.on_pull_failed(one, DisconnectedError("gone"), harness.now)
    harness.reply(two, got(10, 20, partition=1))
    assert {i.broker for i in harness.pulls()} == {2}
    assert harness.read() == [(1, 10, 20)]


def test_a_moved_leader_is_asked_at_once_without_waiting_for_the_old_one():
    harness = Harness(leaders=(1, 1))
    harness.assign(A0)
    harness.assign(A1)
    old = harness.pull()
    harness.machine.update_metadata(snapshot(2, 1, epochs=[6, 5]))
    (new,) = harness.pulls()
    assert (new.broker, new.pull.sequence, wants(new)) == (2, 0, [(0, 10, E1)])
    harness.reply(old, got(10, 20), got(10, 20, partition=1))
    assert harness.read() == [(1, 10, 20)]
    assert harness.pulls()[0].pull.forget == [("a", 0)]


def test_without_a_leader_nothing_is_asked():
    harness = Harness(leaders=(-1,))
    harness.assign()
    assert harness.pulls() == []
    assert harness.machine.reason(A0, harness.now) == "no leader"
    harness.machine.update_metadata(snapshot(2, epochs=[6]))
    assert harness.pull().broker == 2


def test_a_preferred_replica_is_used_until_it_expires_or_fails():
    harness = Harness(leaders=(1,), metadata_max_age_ms=1000)
    harness.assign()
    harness.reply(harness.pull(), nothing(10, preferred_read_replica=3))
    issue = harness.pull()
    assert (issue.broker, wants(issue)) == (3, [(0, 10, E1)])
    harness.reply(issue, nothing(10, error_code=1))
    plan = harness.plan()
    assert plan.lookups == [], "a follower's OFFSET_OUT_OF_RANGE is no proof"
    assert [(i.broker, wants(i)) for i in plan.pulls] == [(1, [(0, 10, E1)])]
    harness.reply(plan.pulls[0], nothing(10, preferred_read_replica=3))
    assert harness.pull().broker == 3
    assert harness.pull(after=1.1).broker == 1


def test_a_preferred_replica_that_left_the_cluster_is_replaced_by_the_leader():
    harness = Harness(leaders=(1,))
    harness.assign()
    harness.reply(harness.pull(), nothing(10, preferred_read_replica=3))
    assert harness.pull().broker == 3
    harness.machine.update_metadata(snapshot(1, brokers=(1, 2)))
    assert harness.pull().broker == 1


def test_a_preferred_replica_that_fails_is_left_at_once_and_not_named_again_for_a_while():
    harness = Harness(leaders=(1,), credit=1, metadata_max_age_ms=10_000)
    harness.assign()
    first = harness.pull()
    assert first.pull.followers
    harness.reply(first, nothing(10, preferred_read_replica=3))
    harness.machine.on_pull_failed(harness.pull(), DisconnectedError("gone"), harness.now)
    issue = harness.pull()
    assert (issue.broker, wants(issue), issue.pull.followers) == (1, [(0, 10, E1)], False)
    harness.reply(issue, got(10, 20))
    issue = harness.pull(after=9.9)
    assert not issue.pull.followers
    harness.reply(issue, got(20, 30))
    assert harness.pull(after=0.2).pull.followers


def test_a_preferred_replica_without_a_way_to_it_yet_is_asked_for_again_soon():
    """In a job that starts, its connection actor may still be in the making."""
    harness = Harness(leaders=(1,), credit=1, metadata_max_age_ms=10_000)
    harness.assign()
    harness.reply(harness.pull(), nothing(10, preferred_read_replica=3))
    harness.machine.on_pull_failed(harness.pull(), NodeNotReadyError("no way"), harness.now, sent=False)
    issue = harness.pull()
    assert (issue.broker, issue.pull.followers) == (1, False)
    harness.reply(issue, got(10, 20))
    issue = harness.pull(after=0.1)
    assert (issue.broker, issue.pull.followers) == (1, True)
    harness.reply(issue, nothing(20, preferred_read_replica=3))
    assert harness.pull().broker == 3


def test_a_failed_leader_leaves_followers_in_use():
    harness = Harness(leaders=(1, 2))
    harness.assign()
    harness.assign(A1)
    issues = {i.broker: i for i in harness.pulls()}
    harness.reply(issues[1], nothing(10, preferred_read_replica=3))
    harness.machine.on_pull_failed(issues[2], DisconnectedError("gone"), harness.now)
    assert {i.broker: i.pull.followers for i in harness.pulls(after=0.2)} == {2: True, 3: True}


def test_a_broker_that_is_silent_behind_its_long_poll_has_metadata_asked_for():
    harness = Harness(fetch_max_wait_ms=500)
    harness.assign()
    issue = harness.pull()
    plan = harness.plan(after=1.9)
    assert not plan.refresh_metadata
    assert plan.next_wake == pytest.approx(102.0), "nobody else would wake it up"
    assert harness.plan(after=0.2).refresh_metadata
    assert not harness.plan(after=1.0).refresh_metadata, "asked again, but not all the time"
    assert harness.plan(after=1.0).refresh_metadata
    assert harness.machine.reason(A0, harness.now) == "broker 1: no answer yet"
    harness.reply(issue)
    assert harness.machine.reason(A0, harness.now) == ""
    assert not harness.plan(after=0.1).refresh_metadata
    assert not harness.plan(after=1.9).refresh_metadata, "an answer begins it anew"


def test_partitions_of_a_silent_broker_are_read_from_its_successor_at_once():
    harness = Harness(leaders=(1, 1))
    harness.assign()
    assert harness.pull().broker == 1
    harness.machine.update_metadata(snapshot(2, 2, epochs=[6, 6], brokers=(2, 3)))
    plan = harness.plan(after=1.0)
    for tp, version, _, _ in plan.validations:
        harness.machine.on_epoch_end(tp, version, (5, 10), harness.now)
    assert [issue.broker for issue in [*plan.pulls, *harness.pulls()]] == [2]


def test_a_pull_that_has_more_answers_is_the_only_one_while_nothing_changes():
    harness = Harness(leaders=(1,))
    harness.assign(A0)
    issue = harness.pull()
    for first in range(10, 60, 10):
        harness.reply(issue, got(first, first + 10), more=True)
        plan = harness.plan(after=1.0)
        assert (plan.pulls, plan.ended) == ([], set())
    assert harness.read() == [(0, first, first + 10) for first in range(10, 60, 10)]
    harness.reply(issue, got(60, 70))
    assert [each.pull.sequence for each in harness.pulls()] == [1, 2]


def test_the_bytes_of_each_answer_are_taken_from_what_the_pull_may_bring():
    harness = Harness(leaders=(1,))
    harness.assign(A0)
    issue = harness.pull()
    [stream] = harness.machine._streams.by_broker.values()
    assert stream.reserved == issue.pull.max_bytes
    harness.reply(issue, got(10, 20), more=True)
    held = harness.machine.buffer.held(1)
    assert held
    assert stream.reserved == issue.pull.max_bytes - held


@pytest.mark.parametrize("change", ["another partition", "a seek", "a pause of all"])
def test_a_pull_that_has_more_answers_is_brought_to_an_end_once_for_a_change(change):
    harness = Harness(leaders=(1, 1))
    harness.assign(A0)
    issue = harness.pull()
    harness.reply(issue, got(10, 20), more=True)
    assert harness.plan().ended == set()
    if change == "another partition":
        harness.assign(A1)
    elif change == "a seek":
        harness.machine.seek(A0, 5)
    else:
        harness.machine.pause(A0)
    plan = harness.plan()
    assert (plan.pulls, plan.ended) == ([], {issue.token})
    assert harness.plan().ended == set(), "once is enough"
    harness.reply(issue, more=True)
    assert harness.plan().ended == set(), "an answer that was under way"
    harness.reply(issue)
    plan = harness.plan()
    assert [pull.pull.changes for pull in plan.pulls] == ([] if change == "a pause of all" else [True])


def test_a_pull_that_has_more_answers_and_short_waits_ends_when_nothing_is_left_out_any_more():
    """Nothing is to be asked for or forgotten then: each wait of 20 ms would be a request, for as long as the credit lasts."""
    harness = Harness(worker_buffer_bytes=8 * MIB, credit=1, fetch_max_wait_ms=500)
    harness.assign(A0)
    harness.assign(A1)
    harness.reply(harness.pull(), got(10, 30, size=4 * MIB + 1), size=100)
    issue = harness.pull()
    assert issue.pull.max_wait_ms == 20
    harness.reply(issue, nothing(10, partition=1), more=True)
    assert harness.plan().ended == set()
    harness.machine.revoke(A0)
    assert harness.plan().ended == {issue.token}
    harness.reply(issue)
    assert harness.pull().pull.max_wait_ms == 500


def test_a_broker_whose_answers_cease_is_silent_though_nothing_was_polled_since():
    harness = Harness(leaders=(1,), fetch_max_wait_ms=500)
    harness.assign(A0)
    issue = harness.pull()
    harness.plan()
    for _ in range(3):
        harness.now += 1.5
        harness.reply(issue, more=True)
    assert not harness.plan(after=1.9).refresh_metadata
    assert harness.plan(after=0.2).refresh_metadata
