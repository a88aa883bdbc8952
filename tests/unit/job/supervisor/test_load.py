"""The load of a job, as observations one after another show it: rates, backlog, and the workers that these need."""

import pytest
from msgspec.structs import replace

from kafka_actors.job.messages import CoordinatorStatus, WorkerProgress
from kafka_actors.job.status import GroupState, PartitionStatus, WindowStatus
from kafka_actors.job.supervisor.machines.load import Load, LoadMeter, Observation, PartitionLoad, observed
from kafka_actors.types import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def seen(done, end=1_000_000, busy_s=0.0, workers=1, **more):
    """One partition, and so many seconds at work of one worker."""
    return Observation({P0: PartitionLoad(end, done, **more)}, {"w": busy_s}, workers, workers)


def of_partition(number, *, end, lag, reason=""):
    return PartitionStatus("orders", number, "w", None, None, end, lag, "granted", reason)


def test_an_observation_has_what_the_coordinator_knows():
    partitions = [
        of_partition(0, end=50, lag=20),
        of_partition(1, end=None, lag=None),
        of_partition(2, end=90, lag=90, reason="no leader known"),
        of_partition(3, end=90, lag=90, reason="buffer full"),
    ]
    status = CoordinatorStatus(
        GroupState("stable", 1, "m", None, 4, 1),
        partitions,
        {"w": WorkerProgress(True, 5, 50, work_s=2.5)},
        finished=False,
        records=0,
        value_bytes=0,
    )
    found = observed(status, {P0: 40}, 2, 1)
    assert list(found.partitions.values()) == [
        PartitionLoad(40, 30),  # a bounded run ends at 40
        PartitionLoad(None, None),
        PartitionLoad(90, 0, blocked=True),
        PartitionLoad(90, 0),  # the worker's own matter
    ]
    assert (found.busy_s, found.wanted, found.ready) == ({"w": 2.5}, 2, 1)


@pytest.mark.parametrize(
    ("reason", "calls_overlap", "blocked"),
    [
        ("waits for its turn: behind orders-0 and 6 others", False, False),
        ("its window is full: 20,000 records, held for 3 s by offset 81253, key #5f0c2e7b", True, False),
        ("its window is full: from offset 100 on, records of other workers are not done", True, False),
        ("calls from before a reset are not over", True, False),
        ("retrying: offset 5, ValueError", True, False),  # other keys go on
        ("retrying: offset 5, ValueError", False, True),
        ("no leader", False, True),
        ("broker 3: throttled", False, True),
        ("backing off: no answer in 30 s", True, True),
        ("open transaction", False, True),
        ("waits for the registry: stage decode: no answer", False, True),
        ("reading ahead: which keys wait in orders-retry-10s-0", True, True),  # it goes on soon
    ],
)
def test_a_partition_is_blocked_where_no_other_worker_could_read_it(reason, calls_overlap, blocked):
    partition = of_partition(0, end=90, lag=90, reason=reason)
    if calls_overlap:
        partition = replace(partition, window=WindowStatus(records=10))
    status = CoordinatorStatus(
        GroupState("stable", 1, "m", None, 1, 1), [partition], {}, finished=False, records=0, value_bytes=0
    )
    assert observed(status, {}, 1, 1).partitions[P0].blocked is blocked


def test_what_waits_in_a_retry_topic_is_no_work_until_it_is_due_and_its_partitions_are_none_for_more_workers():
    """A retry partition goes with its source's to one worker."""
    of_source = [of_partition(number, end=50, lag=0) for number in (0, 1)]
    in_10s, in_1m, ahead = (
        PartitionStatus("orders-retry-" + delay, number, "w", None, None, 70, 20, "granted", reason)
        for delay, number, reason in (
            ("10s", 0, "not due: its next record waits until 2026-11-28 10:04:12 UTC"),
            ("1m", 0, ""),
            ("1m", 1, "reading ahead: which keys wait in orders-retry-1m-1"),
        )
    )
    meter = LoadMeter(window_s=10.0, utilization=0.5, lanes=4)
    for number in range(3):
        status = CoordinatorStatus(
            GroupState("stable", 1, "m", None, 5, 1),
            [*of_source, in_10s, replace(in_1m, lag=20 - number), ahead],
            {"w": WorkerProgress(True, 5, 50, work_s=number * 1.0)},
            finished=False,
            records=0,
            value_bytes=0,
        )
        topics = ["orders-retry-10s", "orders-retry-1m"]
        seen = observed(status, {}, 2, 2, topics)
        assert not any(each.blocked for each in seen.partitions.values())
        load = meter.observe(seen, number * 1.0)
        assert (load.partitions, load.most, load.blocked, load.lag) == (2, 8, 0, 20 - number)
    assert (load.pace, load.for_lag) == (1.0, 1.8)


def test_a_retry_partition_that_nobody_can_read_needs_nothing_and_keeps_no_share_of_the_workers():
    loads = {P0: PartitionLoad(5, 5), P1: PartitionLoad(9, 5, blocked=True, retry=True)}
    load = LoadMeter(window_s=10.0, utilization=0.5).observe(Observation(loads, {}, 1, 1), 0.0)
    assert (load.partitions, load.blocked, load.lag) == (1, 0, 4)


def test_the_pace_is_the_work_of_a_second_at_work():
    meter = LoadMeter(window_s=60.0, utilization=0.7)
    meter.observe(seen(0), 0.0)
    load = meter.observe(seen(800, busy_s=4.0), 10.0)
    assert (load.pace, load.done, load.busy) == (200.0, 80.0, 0.4)


def test_the_time_at_work_of_a_call_that_has_not_ended_counts_with_what_it_does():
    """Nothing is done for ten seconds of work, then all of it shows at once."""
    meter = LoadMeter(window_s=60.0, utilization=0.7)
    meter.observe(seen(0), 0.0)
    assert meter.observe(seen(0, busy_s=10.0), 10.0).pace is None
    assert meter.observe(seen(2_000, busy_s=20.0), 20.0).pace == 100.0


def test_what_comes_in_is_averaged_over_the_window_and_what_waited_at_the_start_is_no_rate():
    meter = LoadMeter(window_s=10.0, utilization=0.5)
    meter.observe(seen(0, end=5_000), 0.0)
    load = meter.observe(seen(1_000, end=6_000, busy_s=10.0), 10.0)
    assert (load.arriving, load.lag) == (100.0, 5_000)
    assert load.for_rate == 1.0, (
        "100 a second come in, and a worker that is busy for half of the time does 50"
    )


def test_a_partition_that_went_back_to_its_commit_is_no_negative_work():
    """Its worker died: what it had done since is done again."""
    meter = LoadMeter(window_s=60.0, utilization=0.7)
    meter.observe(seen(0), 0.0)
    meter.observe(seen(1_000, busy_s=10.0), 10.0)
    meter.observe(seen(400, busy_s=10.0), 12.0)
    load = meter.observe(seen(1_400, busy_s=20.0), 22.0)
    assert load.pace == 100.0


def test_the_seconds_for_a_backlog_are_those_of_all_workers_together():
    load = Load(partitions=1, most=1, lag=1_000, arriving=0.0, done=0.0, pace=50.0, busy=1.0)
    assert (load.seconds(1), load.seconds(4)) == (20.0, 5.0)
    assert (
        Load(partitions=1, most=1, lag=1_000, arriving=0.0, done=0.0, pace=None, busy=1.0).seconds(4) is None
    )
    assert Load(partitions=1, most=1, lag=0, arriving=0.0, done=0.0, pace=None, busy=1.0).seconds(4) == 0.0


def test_a_partition_that_nobody_can_read_asks_for_no_worker():
    meter = LoadMeter(window_s=10.0, utilization=0.7)
    orders = TopicPartition("orders", 0), TopicPartition("orders", 1)

    def load(now, ends, done, blocked):
        loads = {
            p: PartitionLoad(*of) for p, of in zip(orders, zip(ends, done, blocked, strict=True), strict=True)
        }
        return meter.observe(Observation(loads, {"worker-0": now}, 1, 1), now)

    load(0.0, (0, 1_000_000), (0, 0), (False, True))
    seen = load(10.0, (1_000, 1_000_000), (1_000, 0), (False, True))
    assert (seen.pace, seen.lag, seen.blocked) == (100.0, 1_000_000, 1)
    assert (seen.for_lag, seen.alone) == (0.0, ())
    seen = load(11.0, (1_000, 1_000_000), (1_000, 0), (False, False))
    assert (seen.for_lag, seen.alone) == (1.0, (orders[1],))


@pytest.mark.parametrize(("lanes", "workers"), [(1, 1), (4, 4), (64, 20)])
def test_a_partition_that_workers_may_share_asks_for_as_many_as_it_needs(lanes, workers):
    """Records of one partition have come in for 10 s and wait; one worker is busy with them for 200 s."""
    tp = TopicPartition("t", 0)
    meter = LoadMeter(window_s=10.0, utilization=0.7, lanes=lanes)
    meter.observe(Observation({tp: PartitionLoad(21_000, 0)}, {"w": 0.0}, 1, 1), 0.0)
    load = meter.observe(Observation({tp: PartitionLoad(21_000, 1_000)}, {"w": 10.0}, 1, 1), 10.0)
    assert (load.pace, round(load.workers), load.most) == (100.0, workers, lanes)
    assert load.alone == ((tp,) if lanes < 20 else ())
