"""How many workers a job gets, by the load it has: shapes of load played through second by second."""

import math

import pytest
from fakes.scaled_job import SimulatedJob

from kafka_actors.job import Autoscale
from kafka_actors.job.supervisor.machines.load import Observation, PartitionLoad
from kafka_actors.job.supervisor.machines.scaling import WorkerCount
from kafka_actors.types import TopicPartition

POLICY = Autoscale(min=1, max=16, target_lag_seconds=30)


def job(shape, policy=POLICY, **more):
    return SimulatedJob(policy, shape, **more)


def test_a_step_gets_what_it_needs_and_keeps_it():
    played = job(lambda t: 700.0 if t < 300 else 5_600.0)
    assert played.run(300) == []
    up = played.run(120)
    assert up
    assert all(d.after > d.before for d in up)
    # 5,600 records/s at 1,000 each with workers busy for 70 % of their time are 8 workers.
    assert 8 <= up[-1].after <= 10
    assert played.run(900) == []
    assert played.worst_age < 45
    assert played.lag < 6_000


def test_a_ramp_is_followed_before_there_is_a_backlog():
    played = job(lambda t: 500.0 + t * 10, partitions=16)
    played.run(900)
    assert [d.after > d.before for d in played.decisions] == [True] * len(played.decisions)
    assert 4 <= len(played.decisions) <= 14
    assert played.worst_age < 20
    assert "records/s come in" in played.decisions[0].reason


def test_a_spike_that_is_done_within_the_target_asks_for_nobody():
    played = job(lambda t: 200.0 + (15_000.0 if t == 400 else 0))
    assert played.run(1_000) == []
    assert played.worst_age <= 30


def test_a_burst_is_worked_off_within_the_target_once_workers_are_up():
    played = job(lambda t: 100.0 + (300_000.0 if t == 300 else 0))
    played.run(300)
    played.run(90)
    assert played.decisions[0].at - 300 <= 10, "seen late"
    assert played.most == 12
    assert "s of work for 1 worker; the target is 30 s" in played.decisions[0].reason
    assert played.worst_age < 30 + 35  # two steps, each with the start of workers and what is seen of them
    assert played.lag < 1_000
    down = played.run(600)
    assert [d.after for d in down] == [1]
    assert down[0].reason == "1 worker would have been enough for 120 s"


def test_a_day_with_its_night():
    day = 1_440.0

    def shape(t):
        return max(0.0, 4_000 * math.sin(2 * math.pi * t / day)) + 50

    played = job(shape)
    played.run(3 * day)
    assert played.flaps() == []
    assert played.worst_age < 15
    peaks = [d.after for d in played.decisions if d.after >= 5]
    assert peaks, "the day was not seen"
    assert max(peaks) <= 8
    assert sum(d.after == 1 for d in played.decisions) == 3, "each night has one worker"
    assert len(played.decisions) <= 3 * 12


def test_a_sawtooth_faster_than_the_delay_keeps_its_peak():
    played = job(lambda t: 4_000.0 * (t % 60) / 60, policy=POLICY)
    played.run(300)
    assert played.run(1_800) == []
    assert 3 <= played.scaling.workers <= 6
    assert played.worst_age < 45


def test_one_hot_partition_gets_no_more_workers_than_can_help():
    played = job(lambda t: 1_500.0, share=0.9)
    played.run(1_200)
    # The hot partition is one worker's, whatever happens; the other eleven are less than one more.
    assert played.scaling.workers == 2
    assert played.scaling.holding == "too much for one worker to do in time, and others can't help: orders-0"
    assert played.flaps() == []


def test_where_more_workers_do_no_more_none_are_added():
    played = job(lambda t: 4_000.0, limit=1_000.0, partitions=64)
    played.run(100)
    assert len(played.decisions) == 1
    first = played.decisions[0].after
    assert first <= 4
    assert played.scaling.holding == f"more workers did no more than {first}: something else is the limit"
    # Now and then it is tried again: the limit may be gone.
    played.limit = 10_000
    played.run(200)
    assert played.scaling.workers >= 6


def test_workers_that_wait_for_records_are_not_made_more():
    scaling = WorkerCount(POLICY)
    tp = [TopicPartition("t", p) for p in range(8)]
    for second in range(60):
        # The brokers give 100 records a second; a worker could do 1,000.
        loads = {p: PartitionLoad(1_000_000, second * 100 // 8) for p in tp}
        scaling.observe(Observation(loads, {"w": second * 0.1}, 1, 1), float(second))
    assert scaling.workers == 1
    assert scaling.holding == "workers wait for records: the busiest is at work for 10% of its time"


def test_idle_workers_go_down_to_min_in_one_step():
    played = job(lambda t: 8_000.0 if t < 300 else 0.0, policy=Autoscale(min=2, max=16))
    played.run(300)
    assert played.scaling.workers >= 8
    down = played.run(300)
    assert [d.after for d in down] == [2]


def test_never_more_workers_than_partitions_even_where_min_says_so():
    few = job(lambda t: 100_000.0, partitions=3)
    few.run(200)
    assert few.scaling.workers == 3
    assert few.scaling.holding == "no more than 3 workers: there are 3 partitions"
    many = job(lambda t: 10.0, policy=Autoscale(min=4, max=8), partitions=2)
    down = many.run(200)
    assert [(d.after, d.reason) for d in down] == [(2, "there are only 2 partitions")]


def test_min_and_max_of_a_new_policy_hold_at_once():
    scaling = WorkerCount(20)
    assert scaling.set_workers(Autoscale(min=1, max=4), 0.0) is None
    seen = Observation({TopicPartition("t", p): PartitionLoad(0, 0) for p in range(32)}, {}, 20, 20)
    assert scaling.observe(seen, 1.0).after == 4
    scaling.set_workers(Autoscale(min=6, max=8), 2.0)
    seen = Observation(seen.partitions, {}, 4, 4)
    assert scaling.observe(seen, 3.0).reason == "at least 6"


def test_a_number_that_is_said_stays_until_a_policy_is_said():
    scaling = WorkerCount(POLICY)
    decision = scaling.set_workers(5, 1.0)
    assert (decision.before, decision.after, decision.reason) == (1, 5, "scale(5) instead of 1..16")
    idle = Observation({TopicPartition("t", 0): PartitionLoad(0, 0)}, {}, 5, 5)
    assert [scaling.observe(idle, float(t)) for t in range(2, 900)] == [None] * 898
    assert scaling.autoscale is None
    scaling.set_workers(POLICY, 900.0)
    assert scaling.autoscale == POLICY
    changes = [d for t in range(901, 1_100) if (d := scaling.observe(idle, float(t))) is not None]
    assert [d.after for d in changes] == [1]


def test_while_brokers_are_away_workers_are_kept():
    played = job(lambda t: 5_000.0)
    played.run(300)
    workers = played.scaling.workers
    played.reading = False
    assert played.run(400) == []
    assert played.scaling.workers == workers


def test_without_partitions_nothing_is_decided():
    scaling = WorkerCount(Autoscale(min=2, max=8))
    for second in range(300):
        assert scaling.observe(Observation({}, {}, 2, 2), float(second)) is None
    assert scaling.holding == "the group has given it no partitions"


def test_workers_that_find_no_place_are_waited_for():
    played = job(lambda t: 6_000.0, start_s=10_000.0)
    played.run(600)
    assert [d.after for d in played.decisions] == [3]
    assert played.scaling.holding == "2 of 3 workers are still starting"


@pytest.mark.parametrize("call_s", [5.0, 40.0])
def test_long_calls_are_not_mistaken_for_a_pace(call_s):
    played = job(lambda t: 3_500.0, call_s=call_s)
    played.run(600)
    assert 4 <= played.scaling.workers <= 8
    assert played.flaps() == []


def test_workers_that_are_slow_because_they_have_little_to_do_are_not_taken_for_slow():
    # Each call costs 300 ms whatever it holds: 10 records a second look like a pace of 32.
    played = job(lambda t: 10.0 + (15_000.0 if t == 300 else 0), overhead_s=0.3)
    played.run(299)
    assert played.scaling.load.pace < 35
    assert played.run(600) == []


def test_a_policy_that_begins_on_a_running_job_knows_no_rate_yet():
    scaling = WorkerCount(POLICY)
    tp = TopicPartition("t", 0)
    seen = Observation({tp: PartitionLoad(10_000_000, 9_999_000)}, {"w": 5_000.0}, 1, 1)
    assert scaling.observe(seen, 0.0) is None
    assert scaling.load.arriving == 0
    assert scaling.load.pace is None
    assert scaling.holding == "no call has ended yet: how fast workers are is not known"


def test_a_policy_has_more_workers_than_partitions_only_where_they_share_them():
    for lanes, most in ((1, 1), (64, 20)):
        scaling = WorkerCount(Autoscale(min=1, max=30, target_lag_seconds=10), lanes)
        tp = TopicPartition("t", 0)
        for second in range(0, 60, 5):
            seen = PartitionLoad(100_000, min(100_000, 100 * second * scaling.workers))
            scaling.observe(
                Observation({tp: seen}, {"w": float(second)}, scaling.workers, scaling.workers), float(second)
            )
        assert (scaling.workers > 1) is (most > 1)
