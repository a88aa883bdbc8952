"""When a member's next heartbeat is due, and when its session is over."""

from __future__ import annotations

import math

from kafka_actors.group.machines.heartbeat_timer import HeartbeatTimer


def timer() -> HeartbeatTimer:
    return HeartbeatTimer(interval=3.0, session_timeout=10.0)


def test_without_a_session_nothing_expires() -> None:
    made = timer()
    assert made.expires_at() is None
    assert not made.session_expired(1e9)


def test_a_heartbeat_is_due_an_interval_after_the_begin_or_the_last_one() -> None:
    made = timer()
    made.reset(100.0)
    assert (made.due_at(), made.ttl(101.0), made.ttl(104.0)) == (103.0, 2.0, 0.0)
    made.sent(104.0)
    assert made.due_at() == 107.0


def test_after_a_failure_the_next_one_waits_for_the_pause() -> None:
    made = timer()
    made.reset(100.0)
    made.postpone(105.0)
    assert made.due_at() == 105.0
    made.sent(105.0)
    assert made.due_at() == 108.0, "a pause that is over changes nothing"


def test_disabled_heartbeats_are_never_due_and_the_session_runs_out() -> None:
    made = timer()
    made.reset(100.0)
    made.enabled = False
    assert made.due_at() == math.inf
    assert made.expires_at() == 110.0


def test_the_session_counts_from_the_sending_of_what_was_acknowledged() -> None:
    made = timer()
    made.reset(100.0)
    made.sent(103.0)
    assert made.expires_at() == 110.0, "what was only sent proves nothing"
    made.acknowledged(103.0)
    assert made.expires_at() == 113.0
    made.acknowledged(101.0)
    assert made.expires_at() == 113.0, "answers overtake each other"
    assert [made.session_expired(now) for now in (112.9, 113.0)] == [False, True]


def test_a_stopped_session_leaves_nothing_of_it() -> None:
    made = timer()
    made.reset(100.0)
    made.acknowledged(100.0)
    made.stop()
    assert (made.expires_at(), made.acknowledged_at) == (None, None)
