"""When heartbeats are due, and when a session is over."""

from __future__ import annotations

from kafka_actors.group import Heartbeat
from kafka_actors.group.machines.heartbeat_timer import HeartbeatTimer


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_heartbeat_is_due_an_interval_after_the_last_one_sent():
    clock = Clock()
    heartbeat = Heartbeat(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, clock=clock)
    assert heartbeat.ttl() == 3.0
    clock.now += 2.0
    assert (heartbeat.ttl(), heartbeat.should_heartbeat()) == (1.0, False)
    clock.now += 1.5
    assert (heartbeat.ttl(), heartbeat.should_heartbeat()) == (0.0, True)
    heartbeat.sent_heartbeat()
    assert not heartbeat.should_heartbeat()


def test_session_counts_from_the_sending_of_what_was_acknowledged():
    clock = Clock()
    heartbeat = Heartbeat(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, clock=clock)
    clock.now = 53.0
    heartbeat.sent_heartbeat()
    clock.now = 58.0
    heartbeat.received_heartbeat()
    clock.now = 62.9
    assert not heartbeat.session_expired()
    clock.now = 63.0
    assert heartbeat.session_expired()
    heartbeat.reset_session_timeout()
    assert not heartbeat.session_expired()


def test_heartbeat_that_is_sent_but_not_acknowledged_does_not_extend_the_session():
    clock = Clock()
    heartbeat = Heartbeat(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, clock=clock)
    for _ in range(4):
        clock.now += 2.5
        heartbeat.sent_heartbeat()
    assert heartbeat.session_expired()


def test_acknowledgements_that_arrive_out_of_order_never_move_the_session_back():
    timer = HeartbeatTimer(3.0, 10.0)
    timer.acknowledged(20.0)
    timer.acknowledged(10.0)
    assert timer.acknowledged_at == 20.0


def test_there_is_no_session_before_a_membership():
    timer = HeartbeatTimer(3.0, 10.0)
    assert timer.expires_at() is None
    assert not timer.session_expired(1e9)


def test_disabled_heartbeats_are_never_due():
    timer = HeartbeatTimer(3.0, 10.0)
    timer.reset(0.0)
    timer.enabled = False
    assert timer.ttl(1e9) == float("inf")


def test_default_options_are_this_projects():
    assert Heartbeat.DEFAULT_CONFIG == {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 3_000}
