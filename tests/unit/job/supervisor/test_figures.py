"""Rates, shares and latency of the last seconds from successive coordinator statuses, and the totals of a job."""

import pytest
from fakes.statuses import job, partition, worker

from kafka_actors.job.messages import CoordinatorStatus, WorkerProgress
from kafka_actors.job.status import GroupState
from kafka_actors.job.supervisor.machines.figures import JobRates, RateWindow, WorkerRates, with_figures
from kafka_actors.telemetry.machines.latency import LatencyTally


def status(records=None, *, latency=None, **workers):
    """Workers by name, with an underscore for the dash and the point: records, or (records, work_s)."""
    progress = {}
    for name, counters in workers.items():
        done, work_s = counters if isinstance(counters, tuple) else (counters, 0.0)
        role, number, incarnation = name.split("_")
        progress[f"{role}-{number}.{incarnation}"] = WorkerProgress(True, done, 10 * done, work_s=work_s)
    total = sum(p.records for p in progress.values()) if records is None else records
    group = GroupState("stable", 3, "m", None, 2, 1)
    return CoordinatorStatus(group, [], progress, False, total, 10 * total, latency=latency or {})


def latency(*ages_ms):
    tally = LatencyTally()
    for age in ages_ms:
        tally.take([age], 100)
    return tally.counts


def test_the_first_status_has_no_rates():
    rates = RateWindow()
    assert rates.observe(status(worker_0_1=500), 1.0) is None
    assert rates.observe(status(worker_0_1=500), 1.0) is None


def test_rates_are_those_of_the_last_seconds():
    rates = RateWindow(window_s=5)
    for second in range(11):  # 100 a second, from second 5 on 300
        done = 100 * second + 200 * max(0, second - 5)
        found = rates.observe(status(worker_0_1=(done, second / 4)), 50.0 + second)
    assert found.records_per_s == pytest.approx(300)
    assert found.value_bytes_per_s == pytest.approx(3_000)
    assert found.workers["worker-0.1"].records_per_s == pytest.approx(300)
    assert found.workers["worker-0.1"].busy == pytest.approx(0.25)


def test_a_replacement_counts_from_zero_and_the_total_keeps_what_the_dead_one_did():
    rates = RateWindow()
    rates.observe(status(worker_0_1=900, worker_1_1=100), 0.0)
    rates.observe(status(1_050, worker_1_1=150), 1.0)
    found = rates.observe(status(1_150, worker_0_2=50, worker_1_1=200), 2.0)
    assert {name: each.records_per_s for name, each in found.workers.items()} == {
        "worker-0.2": 25,
        "worker-1.1": 50,
    }
    assert found.records_per_s == 75


def test_a_coordinator_that_knows_less_makes_no_negative_rates():
    rates = RateWindow()
    rates.observe(status(worker_0_1=900, latency={4: 900}), 0.0)
    found = rates.observe(status(worker_0_1=100, latency={4: 100}), 1.0)
    assert (found.records_per_s, found.value_bytes_per_s) == (0, 0)
    assert (found.latency_p50_ms, found.latency_p99_ms) == (None, None)


def test_a_worker_is_busy_for_all_of_its_time_at_most():
    rates = RateWindow()
    rates.observe(status(worker_0_1=(0, 0.0)), 0.0)
    assert rates.observe(status(worker_0_1=(0, 1.3)), 1.0).workers["worker-0.1"].busy == 1.0


def test_latency_is_that_of_what_was_processed_lately():
    rates = RateWindow(window_s=5)
    old, new = latency(60_000.0), latency(60_000.0, 10.0)
    rates.observe(status(worker_0_1=100, latency=old), 0.0)
    found = rates.observe(status(worker_0_1=200, latency=new), 1.0)
    assert found.latency_p50_ms == pytest.approx(10, rel=0.2)
    assert found.latency_p99_ms == pytest.approx(10, rel=0.2)
    for second in range(2, 9):
        found = rates.observe(status(worker_0_1=200, latency=new), float(second))
    assert found.latency_p50_ms is None, "nothing was processed lately"


# ---------------------------------------------------------------- filled into a status


def test_totals_are_sums_over_partitions_and_the_largest_age():
    partitions = [
        partition(0, lag=5, lag_seconds=1.5),
        partition(1, lag=None, lag_seconds=None, reason="retrying: offset 3, ValueError"),
        partition(2, lag=7, lag_seconds=9.0, reason="at end"),
        partition(3, worker=None, state="free", lag=None, reason="no worker"),
        partition(4, lag=0, reason="not due: its next record waits until 2026-11-28 10:04:12 UTC"),
        partition(5, lag=0, reason="reading ahead: which keys wait in t-retry-10s-5"),
    ]
    shown = with_figures(
        job(
            worker("worker-0.1", 500),
            worker("worker-1.2", 0, ready=False),
            partitions=partitions,
            restarts={"worker-1": 1, "metadata": 2},
        ),
        JobRates(100.0, 1_000.0, 5.0, 50.0, {}),
    )
    totals = shown.totals
    assert (totals.lag, totals.lag_s, shown.lag) == (12, 9.0, 12)
    assert (totals.blocked, totals.workers_ready, totals.restarts) == (2, 1, 3)
    assert (totals.records_per_s, totals.value_bytes_per_s) == (100.0, 1_000.0)
    assert (totals.latency_p50_ms, totals.latency_p99_ms) == (5.0, 50.0)


def test_lag_is_unknown_while_no_end_is_known_and_zero_where_all_is_processed():
    def lag_of(*lags):
        return with_figures(job(partitions=[partition(lag=lag) for lag in lags]), None)

    unknown = lag_of(None, None)
    assert (unknown.totals.lag, unknown.totals.lag_s, unknown.totals.records_per_s) == (None,) * 3
    assert unknown.lag == 0
    assert lag_of(None, 7).totals.lag == 7
    assert lag_of(0, 0).totals.lag == 0


def test_workers_have_their_rates_and_one_that_has_not_reported_has_none():
    rates = JobRates(1.0, 2.0, None, None, {"worker-0.1": WorkerRates(11.0, 22.0, 0.5)})
    first, second = with_figures(job(worker("worker-0.1", 5), worker("worker-1.1")), rates).workers
    assert (first.records_per_s, first.value_bytes_per_s, first.busy) == (11.0, 22.0, 0.5)
    assert (second.records_per_s, second.busy) == (None, None)
