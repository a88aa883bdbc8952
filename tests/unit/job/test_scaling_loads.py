"""How many workers a job gets by loads that were recorded: what producers sent to real Kafka, second by second (`tests/loads`)."""

import csv
from pathlib import Path

import pytest
from fakes.scaled_job import SimulatedJob

from kafka_actors.job import Autoscale

LOADS = Path(__file__).parents[2] / "loads"
PACE = 400.0
"""Records that a worker does in a second. What comes in at most, 1,200 to 1,600, is work for four or five."""
POLICY = Autoscale(min=1, max=12, target_lag_seconds=20, downscale_delay_seconds=40)


class RecordedJob(SimulatedJob):
    """A job whose partitions grow as they did then, and stay as they are afterwards."""

    def __init__(self, name):
        with open(LOADS / f"{name}.csv", newline="") as file:
            self.rows = [[float(end) for end in row] for row in csv.reader(file)]
        super().__init__(POLICY, lambda t: 0.0, partitions=len(self.rows[0]), pace=PACE)

    def _arrive(self):
        row = self.rows[min(int(self.now), len(self.rows) - 1)]
        self.ends.update(zip(self.partitions, row, strict=True))
        self._history.append((self.now, dict(self.ends)))

    @property
    def total(self):
        return sum(self.rows[-1])


@pytest.fixture(params=["step", "ramp", "spike", "night"])
def played(request):
    """The job at the end of its load."""
    played = RecordedJob(request.param)
    played.name = request.param
    assert len(played.rows) == 300
    assert played.total > 30_000
    played.run(300)
    return played


def test_lag_stays_within_what_the_target_and_the_start_of_workers_allow(played):
    assert played.worst_age <= POLICY.target_lag_seconds + 15
    played.run(60)
    assert sum(played.done.values()) == played.total


def test_there_is_no_flapping_and_each_decision_has_a_reason(played):
    assert 2 <= len(played.decisions) <= 8
    assert played.flaps() == []
    assert all(decision.reason for decision in played.decisions)


def test_each_of_two_nights_has_one_worker():
    played = RecordedJob("night")
    played.run(300)
    assert sum(decision.after == 1 for decision in played.decisions) == 2


def test_workers_are_as_many_as_the_records_need_and_go_when_there_are_none(played):
    at_least, at_most = {"step": (4, 6), "ramp": (4, 6), "spike": (4, 8), "night": (3, 5)}[played.name]
    assert at_least <= played.most <= at_most
    played.run(120)
    assert played.scaling.workers == POLICY.min
