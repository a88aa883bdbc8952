"""A share of the simulated jobs (`simulation/job_scenario.py`), and that they find planted defects."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from simulation.job_journal import Violation
from simulation.job_scenario import run_jobs, setup_of
from simulation.schedule import Fault, Schedule, of_seed
from waiting import slow_s

from kafka_actors.fetch.machines.fetch_machine import FetchMachine
from kafka_actors.job.coordinator.machines import slice_commits
from kafka_actors.job.coordinator.machines.placement import Placement
from kafka_actors.job.worker.machines.record_window import WindowChunk
from kafka_actors.job.worker.machines.worker_assignment import WorkerAssignment

SEEDS = int(os.environ.get("KAFKA_ACTORS_TEST_SEEDS", "200"))
PARTS = 4
FIRST = int(os.environ.get("KAFKA_ACTORS_TEST_FIRST_SEED", "0"))
TESTS = Path(__file__).parents[1]
SHARED = (620102, 620033, 620089)
"""Seeds whose workers share partitions. Hashes of strings decide the order of some calls, so a defect is looked for in several."""


@pytest.mark.parametrize("part", range(PARTS))
def test_promises_hold_in_simulated_jobs(part):
    """In a process of its own, where hashes of strings are the same in all runs: sets of names decide the order of some calls."""
    each = SEEDS // PARTS
    options = [
        "--scenario",
        "job",
        "--processes",
        "1",
        "--seeds",
        str(each),
        "--first",
        str(FIRST + part * each),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "simulation.run", *options],
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=slow_s(300),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_same_seed_is_the_same_run_of_jobs():
    first, second = (run_jobs(of_seed("job", 3)).trace for _ in range(2))
    assert first == second


# ---------------------------------------------------------------- planted defects


def test_a_job_that_commits_past_what_was_processed_is_found(monkeypatch):
    commits = WorkerAssignment.commits

    def one_further(self):
        return [replace(entry, offset=entry.offset + 1) for entry in commits(self)]

    monkeypatch.setattr(WorkerAssignment, "commits", one_further)
    with pytest.raises(Violation, match="processed up to"):
        run_jobs(calm(1))


def test_an_epoch_that_is_granted_twice_is_found(monkeypatch):
    grant = Placement._grant

    def under_the_first(self, placed, worker, continues=None):
        self._epochs = 0
        grant(self, placed, worker, continues)

    monkeypatch.setattr(Placement, "_grant", under_the_first)
    with pytest.raises(Violation, match="is granted to"):
        run_jobs(calm(2, Fault(2.0, "kill worker"), Fault(8.0, "kill worker"), Fault(14.0, "kill worker")))


def test_partitions_that_are_neither_processed_nor_explained_are_found(monkeypatch):
    monkeypatch.setattr(FetchMachine, "take", lambda self: None)
    with pytest.raises(Violation, match="without a reason"):
        run_jobs(calm(23))


def test_an_offset_that_counts_as_committed_for_another_topic_is_found(monkeypatch):
    """Without it a job had no commit for a topic that was made anew, where it had processed as much of it as of the one before."""

    def positioned(self, partition, offset, leader_epoch=-1, *, rewind=False, topic_id=None):
        held = self.held.get(partition)
        if held is not None and (held.processed is None or rewind):
            held.processed, held.rewind = offset, rewind
            held.topic_id = topic_id or held.topic_id
            held.resets += rewind

    monkeypatch.setattr(WorkerAssignment, "positioned", positioned)
    with pytest.raises(Violation, match="processed, 0 committed of"):
        run_jobs(of_seed("job", 6952))


def test_workers_that_share_a_partition_and_do_not_keep_the_order_of_its_keys_are_found(monkeypatch):
    init = WindowChunk.__init__

    def without_keys(self, *args, **options):
        init(self, *args, **{**options, "keyed": False})

    monkeypatch.setattr(WindowChunk, "__init__", without_keys)
    assert "of its key" in violations(SHARED)


def violations(seeds):
    """Returns what is found in runs of these seeds."""
    found = []
    for seed in seeds:
        try:
            run_jobs(of_seed("job", seed))
        except Violation as violation:
            found.append(str(violation))
    return "\n".join(found)


def test_slices_that_are_taken_for_one_another_are_found(monkeypatch):
    """The offset of one was committed for all of its partition."""
    monkeypatch.setattr(
        slice_commits, "of_all_slices", lambda found: max(found, key=lambda entry: entry.offset)
    )
    found = violations(SHARED)
    assert "processed up to" in found or "committed as done beyond" in found


def test_partitions_are_shared_in_a_part_of_the_runs():
    assert setup_of(SHARED[0]).by_key
    assert run_jobs(of_seed("job", SHARED[0])).counts["seconds with shared partitions"] > 3


def calm(seed, *faults):
    """A run with these faults only."""
    return Schedule("job", seed, faults)
