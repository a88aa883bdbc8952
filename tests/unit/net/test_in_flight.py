"""Requests that wait for their answers."""

from __future__ import annotations

import pytest

from kafka_actors.base.timeouts import MAX_THROTTLE_S
from kafka_actors.errors import CorrelationIdError
from kafka_actors.net.machines import in_flight as inflight
from kafka_actors.net.machines.in_flight import InFlightTable


def table(window: int = 2) -> InFlightTable[str]:
    return InFlightTable(window, 0.0)


def test_answers_are_matched_in_order() -> None:
    t = table()
    ids = [t.next_id(), t.next_id()]
    for i in ids:
        t.add(i, "Fetch", f"waiter {i}", now=1.0, timeout=30.0)
    assert t.full
    assert [t.answered(i, 2.0).waiter for i in ids] == [f"waiter {i}" for i in ids]
    assert len(t) == 0


def test_an_answer_to_another_request_is_an_error_that_names_both() -> None:
    t = table()
    t.add(1, "Fetch", "a", 1.0, 30.0)
    t.add(2, "Metadata", "b", 1.0, 30.0)
    with pytest.raises(
        CorrelationIdError, match="correlation id 2; the oldest request in flight is Fetch with 1"
    ):
        t.answered(2, 2.0)


def test_an_answer_to_nothing_is_an_error() -> None:
    with pytest.raises(CorrelationIdError, match="no request in flight"):
        table().answered(7, 1.0)


def test_correlation_ids_start_again_behind_the_largest_int32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "_IDS", 3)
    t = table()
    assert [t.next_id() for _ in range(5)] == [1, 2, 0, 1, 2]


def test_the_first_deadline_counts_also_behind_a_longer_one() -> None:
    t = table()
    t.add(1, "JoinGroup", "a", now=0.0, timeout=60.0)
    t.add(2, "Heartbeat", "b", now=1.0, timeout=5.0)
    assert t.next_deadline() == 6.0
    assert t.overdue(5.9) is None
    late = t.overdue(6.0)
    assert late is not None
    assert late.waiter == "b"


def test_it_is_idle_since_the_last_answer() -> None:
    t = table()
    t.add(1, "Fetch", "a", now=5.0, timeout=30.0)
    t.answered(1, 8.0)
    assert t.idle_since == 8.0


def test_throttling_ends_and_the_longest_holds() -> None:
    t = table()
    t.throttle(10.0, 2.0)
    t.throttle(10.0, 1.0)
    t.throttle(10.0, -5.0)
    assert t.throttled(11.0) == 1.0
    assert t.throttled(13.0) == 0.0


def test_no_number_of_a_broker_stops_a_connection_for_days() -> None:
    t = table()
    t.throttle(10.0, (2**31 - 1) / 1000)
    assert t.throttled(10.0) == MAX_THROTTLE_S


def test_drain_takes_each_out_once() -> None:
    t = table()
    t.add(1, "Fetch", "a", 0.0, 1.0)
    t.add(2, "Fetch", "b", 0.0, 1.0)
    assert [e.waiter for e in t.take_all()] == ["a", "b"]
    assert list(t.take_all()) == []
