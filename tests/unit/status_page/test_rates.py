"""Rates, shares and latency of the last seconds, from successive statuses."""

import pytest
from fakes.statuses import job, worker

from kafka_actors.status_page.machines.rates import RateWindow
from kafka_actors.telemetry.machines.latency import LatencyTally


def latency(*ages_ms):
    tally = LatencyTally()
    for age in ages_ms:
        tally.take([age], 100)
    return tally.counts


def test_the_first_status_has_no_pace():
    rates = RateWindow()
    assert rates.observe(job(worker("worker-0.1", 500)), 1.0) is None
    assert rates.observe(job(worker("worker-0.1", 500)), 1.0) is None


def test_a_pace_is_that_of_the_last_seconds():
    rates = RateWindow(window_s=5)
    for second in range(11):  # 100 a second, from second 5 on 300
        done = 100 * second + 200 * max(0, second - 5)
        pace = rates.observe(job(worker("worker-0.1", done, work_s=second / 4)), 50.0 + second)
    assert pace.records_per_s == pytest.approx(300)
    assert pace.value_bytes_per_s == pytest.approx(3_000)
    assert pace.workers["worker-0.1"].records_per_s == pytest.approx(300)
    assert pace.workers["worker-0.1"].busy == pytest.approx(0.25)


def test_a_replacement_counts_from_zero_and_one_that_is_gone_is_not_there():
    rates = RateWindow()
    rates.observe(job(worker("worker-0.1", 900), worker("worker-1.1", 100)), 0.0)
    pace = rates.observe(job(worker("worker-0.2", 50), worker("worker-1.1", 200), records=1_150), 2.0)
    assert {name: p.records_per_s for name, p in pace.workers.items()} == {"worker-0.2": 25, "worker-1.1": 50}
    assert pace.records_per_s == 75


def test_a_coordinator_that_knows_less_makes_no_negative_rates():
    rates = RateWindow()
    rates.observe(job(worker("worker-0.1", 900), latency={4: 900}), 0.0)
    pace = rates.observe(job(worker("worker-0.1", 100), latency={4: 100}), 1.0)
    assert (pace.records_per_s, pace.value_bytes_per_s, pace.latency) == (0, 0, None)


def test_a_worker_is_busy_for_all_of_its_time_at_most():
    rates = RateWindow()
    rates.observe(job(worker("worker-0.1", work_s=0.0)), 0.0)
    assert rates.observe(job(worker("worker-0.1", work_s=1.3)), 1.0).workers["worker-0.1"].busy == 1.0


def test_latency_is_that_of_what_was_processed_lately():
    rates = RateWindow(window_s=5)
    old, new = latency(60_000.0), latency(60_000.0, 10.0)
    rates.observe(job(worker("worker-0.1", 100), latency=old), 0.0)
    pace = rates.observe(job(worker("worker-0.1", 200), latency=new), 1.0)
    assert pace.latency.p50_ms == pytest.approx(10, rel=0.2)
    assert pace.latency.p99_ms == pytest.approx(10, rel=0.2)
    for second in range(2, 9):
        pace = rates.observe(job(worker("worker-0.1", 200), latency=new), float(second))
    assert pace.latency is None, "nothing was processed lately"
