"""Owned partitions that nobody reads."""

from __future__ import annotations

from kafka_actors.base.machine import Ready
from kafka_actors.group.machines.unread_partitions import UnreadWatch, UntakenPartitions


def test_what_was_assigned_stays_until_it_is_taken_on(tp):
    untaken = UntakenPartitions()
    first = untaken.assigned(tp("t-0", "t-1"))
    taking = untaken.up_to(first)
    untaken.gone(tp("t-1"))
    assert set(untaken.up_to(first)) == tp("t-0")
    untaken.taken(taking)
    assert not untaken.up_to(first)


def test_an_earlier_call_says_nothing_about_a_later_assignment(tp):
    untaken = UntakenPartitions()
    first = untaken.assigned(tp("t-0"))
    taking = untaken.up_to(first)
    untaken.gone(tp("t-0"))
    second = untaken.assigned(tp("t-0"))
    untaken.taken(taking)
    assert not untaken.up_to(first)
    assert set(untaken.up_to(second)) == tp("t-0")
    assert next(iter(tp("t-0"))) in untaken


def looked(watch, unread, now):
    watch.observe(unread, now)
    return watch.poll(now)


def test_what_nobody_reads_is_told_once_after_its_time(tp):
    watch, (t0,) = UnreadWatch(30.0), tp("t-0")
    assert looked(watch, tp("t-0"), 100.0) == Ready(next_wake=130.0)
    assert looked(watch, tp("t-0", "t-1"), 129.0).events == ()
    assert looked(watch, tp("t-0", "t-1"), 131.0) == Ready(events=((t0, 31.0),), next_wake=159.0)
    assert looked(watch, tp("t-0"), 200.0) == Ready()


def test_the_time_begins_anew_when_it_was_read_meanwhile(tp):
    watch, (t0,) = UnreadWatch(30.0), tp("t-0")
    for now in (0.0, 40.0):
        looked(watch, tp("t-0"), now)
        looked(watch, frozenset(), now + 10.0)
    assert looked(watch, tp("t-0"), 60.0).events == ()
    assert looked(watch, tp("t-0"), 90.0).events == ((t0, 30.0),)
