"""Streams of pulls: brokers that fail, move, refuse the login or fall silent."""

import pytest

from kafka_actors.errors import (
    DisconnectedError,
    NodeNotReadyError,
    SaslAuthenticationFailedError,
)
from tests.fakes.fetching import A0, A1, E1, Bench, got, nothing, snapshot, wants


def test_a_refused_login_fails_the_partitions_and_is_not_tried_again():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    refused = SaslAuthenticationFailedError("no such user")
    bench.machine.on_pull_failed(bench.pull(), refused, bench.now)
    assert bench.plan().pulls == []
    with pytest.raises(SaslAuthenticationFailedError, match="no such user"):
        bench.machine.take()
    assert "no such user" in bench.machine.reason(A0, bench.now)


def test_a_refused_login_is_no_matter_of_partitions_that_went_meanwhile():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    issue = bench.pull()
    bench.machine.revoke(A1)
    bench.machine.on_pull_failed(issue, SaslAuthenticationFailedError("no such user"), bench.now)
    with pytest.raises(SaslAuthenticationFailedError, match="no such user"):
        bench.machine.take()
    bench.machine.revoke(A0)
    assert bench.machine.take() is None


def test_a_dead_source_is_asked_again_from_our_own_position():
    bench = Bench()
    bench.assign(A0)
    bench.assign(A1)
    bench.reply(bench.pull(), got(10, 20), got(10, 15, partition=1))
    lost = bench.pulls()
    for issue in lost:
        bench.machine.on_pull_failed(issue, DisconnectedError("gone"), bench.now)
    plan = bench.plan()
    assert (plan.pulls, plan.refresh_metadata) == ([], True)
    issue = bench.pull(after=0.06)
    assert issue.pull.sequence == 0
    assert sorted(wants(issue)) == [(0, 20, E1), (1, 15, E1)]
    bench.reply(lost[0], got(20, 30))
    assert bench.read() == [(0, 10, 20), (1, 10, 15)], "what a dead stream still answers is dropped"


def test_failures_of_one_broker_do_not_hold_up_another():
    bench = Bench(leaders=(1, 2))
    bench.assign(A0)
    bench.assign(A1)
    one, two = bench.pulls()
    bench.machine.on_pull_failed(one, DisconnectedError("gone"), bench.now)
    bench.reply(two, got(10, 20, partition=1))
    assert {i.broker for i in bench.pulls()} == {2}
    assert bench.read() == [(1, 10, 20)]


def test_a_moved_leader_is_asked_at_once_without_waiting_for_the_old_one():
    bench = Bench(leaders=(1, 1))
    bench.assign(A0)
    bench.assign(A1)
    old = bench.pull()
    bench.machine.update_metadata(snapshot(2, 1, epochs=[6, 5]))
    (new,) = bench.pulls()
    assert (new.broker, new.pull.sequence, wants(new)) == (2, 0, [(0, 10, E1)])
    bench.reply(old, got(10, 20), got(10, 20, partition=1))
    assert bench.read() == [(1, 10, 20)]
    assert bench.pulls()[0].pull.forget == [("a", 0)]


def test_without_a_leader_nothing_is_asked():
    bench = Bench(leaders=(-1,))
    bench.assign()
    assert bench.pulls() == []
    assert bench.machine.reason(A0, bench.now) == "no leader"
    bench.machine.update_metadata(snapshot(2, epochs=[6]))
    assert bench.pull().broker == 2


def test_a_preferred_replica_is_used_until_it_expires_or_fails():
    bench = Bench(leaders=(1,), metadata_max_age_ms=1000)
    bench.assign()
    bench.reply(bench.pull(), nothing(10, preferred_read_replica=3))
    issue = bench.pull()
    assert (issue.broker, wants(issue)) == (3, [(0, 10, E1)])
    bench.reply(issue, nothing(10, error_code=1))
    plan = bench.plan()
    assert plan.lookups == [], "a follower's OFFSET_OUT_OF_RANGE is no proof"
    assert [(i.broker, wants(i)) for i in plan.pulls] == [(1, [(0, 10, E1)])]
    bench.reply(plan.pulls[0], nothing(10, preferred_read_replica=3))
    assert bench.pull().broker == 3
    assert bench.pull(after=1.1).broker == 1


def test_a_preferred_replica_that_left_the_cluster_is_replaced_by_the_leader():
    bench = Bench(leaders=(1,))
    bench.assign()
    bench.reply(bench.pull(), nothing(10, preferred_read_replica=3))
    assert bench.pull().broker == 3
    bench.machine.update_metadata(snapshot(1, brokers=(1, 2)))
    assert bench.pull().broker == 1


def test_a_preferred_replica_that_fails_is_left_at_once_and_not_named_again_for_a_while():
    bench = Bench(leaders=(1,), credit=1, metadata_max_age_ms=10_000)
    bench.assign()
    first = bench.pull()
    assert first.pull.followers
    bench.reply(first, nothing(10, preferred_read_replica=3))
    bench.machine.on_pull_failed(bench.pull(), DisconnectedError("gone"), bench.now)
    issue = bench.pull()
    assert (issue.broker, wants(issue), issue.pull.followers) == (1, [(0, 10, E1)], False)
    bench.reply(issue, got(10, 20))
    issue = bench.pull(after=9.9)
    assert not issue.pull.followers
    bench.reply(issue, got(20, 30))
    assert bench.pull(after=0.2).pull.followers


def test_a_preferred_replica_without_a_way_to_it_yet_is_asked_for_again_soon():
    """In a job that starts, its connection actor may still be in the making."""
    bench = Bench(leaders=(1,), credit=1, metadata_max_age_ms=10_000)
    bench.assign()
    bench.reply(bench.pull(), nothing(10, preferred_read_replica=3))
    bench.machine.on_pull_failed(bench.pull(), NodeNotReadyError("no way"), bench.now, sent=False)
    issue = bench.pull()
    assert (issue.broker, issue.pull.followers) == (1, False)
    bench.reply(issue, got(10, 20))
    issue = bench.pull(after=0.1)
    assert (issue.broker, issue.pull.followers) == (1, True)
    bench.reply(issue, nothing(20, preferred_read_replica=3))
    assert bench.pull().broker == 3


def test_a_failed_leader_leaves_followers_in_use():
    bench = Bench(leaders=(1, 2))
    bench.assign()
    bench.assign(A1)
    issues = {i.broker: i for i in bench.pulls()}
    bench.reply(issues[1], nothing(10, preferred_read_replica=3))
    bench.machine.on_pull_failed(issues[2], DisconnectedError("gone"), bench.now)
    assert {i.broker: i.pull.followers for i in bench.pulls(after=0.2)} == {2: True, 3: True}


def test_a_broker_that_is_silent_behind_its_long_poll_has_metadata_asked_for():
    bench = Bench(fetch_max_wait_ms=500)
    bench.assign()
    issue = bench.pull()
    plan = bench.plan(after=1.9)
    assert not plan.refresh_metadata
    assert plan.next_wake == pytest.approx(102.0), "nobody else would wake it up"
    assert bench.plan(after=0.2).refresh_metadata
    assert not bench.plan(after=1.0).refresh_metadata, "asked again, but not all the time"
    assert bench.plan(after=1.0).refresh_metadata
    bench.reply(issue)
    assert not bench.plan(after=0.1).refresh_metadata
    assert not bench.plan(after=1.9).refresh_metadata, "an answer begins it anew"


def test_partitions_of_a_silent_broker_are_read_from_its_successor_at_once():
    bench = Bench(leaders=(1, 1))
    bench.assign()
    assert bench.pull().broker == 1
    bench.machine.update_metadata(snapshot(2, 2, epochs=[6, 6], brokers=(2, 3)))
    plan = bench.plan(after=1.0)
    for tp, version, _, _ in plan.validations:
        bench.machine.on_epoch_end(tp, version, (5, 10), bench.now)
    assert [issue.broker for issue in [*plan.pulls, *bench.pulls()]] == [2]
