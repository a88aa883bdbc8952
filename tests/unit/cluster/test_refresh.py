"""When metadata is due."""

from __future__ import annotations

import pytest

from kafka_actors.cluster.machines.refresh import RefreshTimer


def timer(rand: float = 0.5) -> RefreshTimer:
    return RefreshTimer(retry_backoff=0.1, retry_backoff_max=1.0, max_age=300.0, rand=lambda: rand)


def test_the_first_metadata_is_due_at_once() -> None:
    assert timer().ttl(0.0) == 0.0


def test_after_an_update_it_is_due_by_age() -> None:
    t = timer()
    t.started()
    t.succeeded(10.0)
    assert t.ttl(10.0) == 300.0
    assert t.ttl(309.0) == 1.0
    assert t.ttl(400.0) == 0.0


def test_a_demand_makes_it_due_after_the_backoff() -> None:
    t = timer()
    t.started()
    t.succeeded(10.0)
    t.demand()
    assert t.ttl(10.0) == pytest.approx(0.1)
    assert t.ttl(10.2) == 0.0


def test_failures_make_the_pause_grow_to_its_bound_and_success_resets_it() -> None:
    t = timer()
    pauses = []
    for _ in range(6):
        t.started()
        t.failed(0.0)
        pauses.append(t.ttl(0.0))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    t.succeeded(0.0)
    t.demand()
    assert t.ttl(0.0) == 0.1


def test_the_pause_after_a_failure_differs_from_client_to_client() -> None:
    low, high = timer(0.0), timer(1.0)
    low.failed(0.0)
    high.failed(0.0)
    assert (low.ttl(0.0), high.ttl(0.0)) == pytest.approx((0.08, 0.12))


def test_a_demand_made_while_a_request_is_out_is_not_met_by_its_answer() -> None:
    t = timer()
    first = t.demand()
    t.started()
    second = t.demand()
    assert second > first
    assert t.succeeded(1.0) == first
    assert t.demanded
    t.started()
    assert t.succeeded(2.0) == second
    assert not t.demanded


def test_a_demand_made_while_the_first_request_is_out_is_not_met_by_its_answer() -> None:
    t = timer()
    t.started()
    demand = t.demand()
    assert t.succeeded(1.0) < demand
    assert t.demanded


def test_a_demand_made_while_a_request_by_age_is_out_is_not_met_by_its_answer() -> None:
    t = timer()
    t.started()
    t.succeeded(0.0)
    t.started()
    demand = t.demand()
    assert t.succeeded(301.0) < demand
    assert t.ttl(302.0) == 0.0
    t.started()
    assert t.succeeded(303.0) == demand
    assert not t.demanded


def test_a_demand_made_while_a_request_by_age_is_out_does_not_fail_with_it() -> None:
    t = timer()
    t.started()
    t.succeeded(0.0)
    t.started()
    demand = t.demand()
    assert t.failed(301.0) < demand
    t.started()
    assert t.succeeded(303.0) == demand


def test_demands_before_a_request_share_its_answer() -> None:
    t = timer()
    assert t.demand() == t.demand()


def test_an_answer_that_nobody_announced_meets_all_demands() -> None:
    t = timer()
    demand = t.demand()
    assert t.succeeded(0.0) == demand
    assert not t.demanded


def test_a_failure_leaves_the_need() -> None:
    t = timer()
    t.started()
    t.succeeded(0.0)
    demand = t.demand()
    t.started()
    assert t.failed(1.0) == demand
    assert t.demanded


def test_an_incomplete_answer_is_asked_for_again_ever_more_rarely() -> None:
    t = timer()
    now, tries = 0.0, 0
    while now < 20.0:
        t.started()
        t.succeeded(now, incomplete=True)
        tries += 1
        assert t.ttl(now) > 0
        now += t.ttl(now)
    assert tries <= 25  # 0.1 + 0.2 + 0.4 + 0.8 s, then one a second
