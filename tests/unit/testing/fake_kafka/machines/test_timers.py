"""Timers of the brokers."""

from __future__ import annotations

from kafka_actors.testing.fake_kafka.machines.timers import BrokerTimers, cancel


def test_timers_run_in_the_order_of_their_times_and_of_their_making() -> None:
    timers, ran = BrokerTimers(), []
    timers.at(2.0, lambda: ran.append("late"))
    timers.at(1.0, lambda: ran.append("first"))
    timers.at(1.0, lambda: ran.append("second"))
    assert timers.next_wake == 1.0
    timers.run_due(1.0)
    assert ran == ["first", "second"]
    timers.run_due(5.0)
    assert ran == ["first", "second", "late"]
    assert timers.next_wake is None


def test_a_cancelled_timer_neither_runs_nor_wakes() -> None:
    timers, ran = BrokerTimers(), []
    timer = timers.at(1.0, lambda: ran.append("never"))
    cancel(timer, None)
    assert not timer.waiting
    assert timers.next_wake is None
    timers.run_due(2.0)
    assert ran == []


def test_a_timer_that_is_made_for_now_runs_in_the_same_turn() -> None:
    timers, ran = BrokerTimers(), []
    timers.at(1.0, lambda: timers.at(1.0, lambda: ran.append("inner")))
    timers.run_due(1.0)
    assert ran == ["inner"]
