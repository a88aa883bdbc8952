"""A share of the simulated runs (`make simulate` makes more), the schedules that found defects, and that the simulation finds planted ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation import group_scenario, run
from simulation.read_watch import ReadWatch
from simulation.schedule import Fault, Schedule, of_seed, shrunk
from waiting import slow_s

from kafka_actors.consumer.delivery import Delivery
from kafka_actors.fetch import Fetcher
from kafka_actors.testing.fake_kafka.machines import partition_log

SEEDS = int(os.environ.get("KAFKA_ACTORS_TEST_SEEDS", "800"))
PARTS = 4
"""Tests that share them, so that processes have as much to do."""
FIRST = int(os.environ.get("KAFKA_ACTORS_TEST_FIRST_SEED", "0"))
KEPT = sorted(run.KEPT.glob("*.json"))
GUARDED = [path for path in KEPT if run.kept_schedule(path).guard]
"""Schedules that found a defect of the product; the others found one of the checks."""
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("part", range(PARTS))
def test_promises_hold_in_simulated_groups(part):
    each = SEEDS // PARTS
    simulate("--scenario", "group", "--seeds", str(each), "--first", str(FIRST + part * each))


def simulate(*arguments, fails=False):
    """Runs the runner, where hashes of strings are the same in all runs."""
    command = [sys.executable, "-m", "simulation.run", "--processes", "1", *arguments]
    paths = {"PYTHONPATH": f"{TESTS}", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, env={**os.environ, **paths}, capture_output=True, text=True, timeout=slow_s(300)
    )
    assert done.returncode == int(fails), done.stdout + done.stderr
    return done.stdout


def test_schedules_that_found_a_defect_hold():
    assert KEPT
    simulate("--schedules", *map(str, KEPT))


@pytest.mark.slow
@pytest.mark.parametrize("path", GUARDED, ids=lambda path: path.stem)
def test_a_kept_schedule_fails_without_what_mended_its_defect(path):
    """One that holds here has come to be another run, since the product asks for other random numbers or turns of the loop: another seed that
    fails without the guard (`simulation.run --mutant GUARD`) takes its place, or it goes, where the test that `mutants.toml` names for its guard doesn't need it."""
    guard = run.kept_schedule(path).guard
    told = simulate("--mutant", guard, "--schedules", str(path), fails=True)
    assert f"{path.name}: {run.kept_schedule(path).found}" in told


def test_the_same_seed_is_the_same_run():
    traces = []
    for _ in range(2):
        assert not run.bounded_run(of_seed("group", 12)).failure
        traces.append(group_scenario.run.trace)

    assert traces[0] == traces[1]


# ---------------------------------------------------------------- planted defects


def test_a_commit_past_what_was_processed_is_found(monkeypatch):
    positions = Delivery.positions

    def one_further(self, partitions):
        return {tp: at._replace(offset=at.offset + 1) for tp, at in positions(self, partitions).items()}

    monkeypatch.setattr(Delivery, "positions", one_further)

    assert "was processed" in run.bounded_run(calm(seed=2)).failure


def test_a_partition_that_nobody_reads_is_found(monkeypatch):
    monkeypatch.setattr(Fetcher, "assign", lambda self, starts: None)

    failure = run.bounded_run(calm(seed=2)).failure

    assert "nor says why" in failure or "did not settle" in failure, failure


def test_a_record_of_an_aborted_transaction_that_is_read_is_found(monkeypatch):
    monkeypatch.setattr(partition_log.PartitionLog, "aborted", lambda self, offset, size: [])

    failure = run.bounded_run(calm(seed=1, transactions=True)).failure

    assert "are there" in failure, failure


def test_half_of_a_transaction_is_found(monkeypatch):
    ended = partition_log.PartitionLog.end_transaction

    def aborted_here(self, *args, **options):
        ended(self, *args, **{**options, "committed": False})

    monkeypatch.setattr(partition_log.PartitionLog, "end_transaction", aborted_here)

    assert "was committed:" in run.bounded_run(calm(seed=1, transactions=True)).failure


def test_more_in_memory_than_allowed_is_found(monkeypatch):
    monkeypatch.setattr(group_scenario, "ONE_RESPONSE", -(2**27))

    assert "its limit is" in run.bounded_run(calm(seed=2)).failure


def test_an_unread_partition_is_told_once_it_is_unread_for_long_without_a_reason():
    watch, partition = ReadWatch(limit_s=8.0), "t-0"

    assert watch.overdue(partition, 5, waits=False, now=0.0) == 0
    assert watch.overdue(partition, 5, waits=False, now=8.0) == 0
    assert watch.overdue(partition, 5, waits=False, now=8.5) == 8.5
    assert watch.overdue(partition, 6, waits=False, now=9.0) == 0, "it is read"
    assert watch.overdue(partition, 6, waits=True, now=30.0) == 0, "it waits for a reason"
    watch.only(set())
    assert watch.overdue(partition, 6, waits=False, now=60.0) == 0, "another owner begins anew"


def calm(seed, *, transactions=False):
    """A run without faults."""
    return Schedule("group", seed, (), 4.0, transactions)


# ---------------------------------------------------------------- shrinking and the report

HOLE, KILL, CUT = Fault(1.0, "hole"), Fault(2.0, "kill member", who="m1"), Fault(3.0, "cut")
OTHERS = [Fault(4.0 + number, "slow") for number in range(5)]


def test_a_failing_schedule_is_shrunk_to_the_faults_that_it_needs():
    tried = []

    def fails(schedule):
        tried.append(schedule)
        return {HOLE, KILL} <= set(schedule.faults)

    found = shrunk(Schedule("group", 7, (OTHERS[0], HOLE, *OTHERS[1:3], KILL, CUT, *OTHERS[3:])), fails)

    assert found == Schedule("group", 7, (HOLE, KILL)), "in their order"
    assert len(tried) < 30


def test_a_run_that_fails_without_faults_is_shrunk_to_none():
    assert shrunk(Schedule("group", 7, (HOLE, KILL, CUT)), lambda schedule: True).faults == ()


def test_shrinking_ends_after_so_many_runs():
    tried = []
    shrunk(Schedule("group", 7, tuple(OTHERS)), lambda schedule: bool(tried.append(schedule)), most=3)

    assert len(tried) == 3


def test_a_failure_tells_how_to_run_it_again_and_what_to_keep(monkeypatch):
    def failing(schedule):
        needed = any(fault.kind == "cut" for fault in schedule.faults)
        return run.Outcome(schedule.seed, "a record was lost" if needed else "", {})

    monkeypatch.setattr(run, "bounded_run", failing)
    text = run.report(Schedule("group", 7, (HOLE, CUT)), "a record was lost")

    assert "make simulate SCENARIO=group SEEDS=1 FIRST=7" in text
    assert "1 of its 2 faults are needed:\n  3.00  cut" in text
    assert (
        '{"scenario":"group","seed":7,"faults":[{"at":3.0,"kind":"cut"}],"found":"a record was lost"}' in text
    )


def test_the_table_names_the_seeds_that_failed():
    done = [run.Outcome(3, "", {"commits": 10}), run.Outcome(4, "lost\nmore", {"commits": 20})]

    text = run.table("group", done, seconds=1.0)

    assert "group: 2 schedules in 1 s, 500 ms each" in text
    assert "commits                           30          15.0" in text
    assert text.endswith("seed 4: lost")
