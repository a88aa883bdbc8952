"""A job's status as gauges, and the tallies of its actors."""

import asyncio

from kafka_actors.job.messages import pack
from kafka_actors.job.status import (
    GroupState,
    JobStatus,
    PartitionStatus,
    ScalingStatus,
    WindowStatus,
    WorkerStatus,
)
from kafka_actors.job.supervisor import telemetry as observing
from kafka_actors.job.supervisor.telemetry import JobTelemetry, points_of
from kafka_actors.telemetry.instruments import BY_NAME, CONSUMED_MESSAGES
from kafka_actors.telemetry.tally import Tally


def status():
    partitions = [
        PartitionStatus("t", 0, "worker-0.1", 70, 60, 100, 30, "granted", "", 2.5, start=40),
        PartitionStatus("t", 1, "worker-0.1", 10, None, 20, 10, "granted", "retrying: offset 10, ValueError"),
        PartitionStatus(
            "u",
            0,
            None,
            None,
            5,
            None,
            None,
            "free",
            "no worker",
            window=WindowStatus(7, 3, 2, 5, 1.5, "offset 5, key #12"),
        ),
    ]
    workers = [
        WorkerStatus("worker-0.1", 1, "n", True, [("t", 0), ("t", 1)], 9, 90, 0),
        WorkerStatus("worker-1.2", None, None, False, [], 0, 0, 1),
    ]
    group = GroupState("stable", 3, "m", None, 3, 1, members=4)
    return JobStatus("running", "g", group, workers, partitions, 9, 90, {}, {}, {}, ScalingStatus(workers=2))


def test_a_status_becomes_the_gauges_of_the_table():
    points = list(points_of(status()))
    for point in points:
        assert {key for key, _ in point.attributes} == set(BY_NAME[point.name].attributes)
    found = {(p.name, *(v for k, v in p.attributes if k != "group")): p.value for p in points}
    assert found == {
        ("kafka_actors.consumer_group.assigned_partitions",): 3,
        ("kafka_actors.workers", "true"): 1,
        ("kafka_actors.workers", "false"): 1,
        ("kafka.consumer_group.lag", "t", 0): 30,
        ("kafka.consumer_group.lag", "t", 1): 10,
        ("kafka.consumer_group.lag_sum", "t"): 40,
        ("kafka.consumer_group.offset", "t", 0): 60,
        ("kafka.consumer_group.offset", "u", 0): 5,
        ("kafka.consumer_group.offset_sum", "t"): 60,
        ("kafka.consumer_group.offset_sum", "u"): 5,
        ("kafka.consumer_group.members",): 4,
        ("kafka.partition.oldest_offset", "t", 0): 40,
        ("kafka.partition.current_offset", "t", 0): 100,
        ("kafka.partition.current_offset", "t", 1): 20,
        ("kafka_actors.consumer_group.lag.time", "t", 0): 2.5,
        ("kafka_actors.partition.position", "t", 0): 70,
        ("kafka_actors.partition.position", "t", 1): 10,
        ("kafka_actors.partition.blocked", "t", 1, "retrying"): 1,
        ("kafka_actors.partition.blocked", "u", 0, "no_worker"): 1,
        ("kafka_actors.partition.window", "u", 0): 7,
        ("kafka_actors.partition.calls", "u", 0, "in_flight"): 3,
        ("kafka_actors.partition.calls", "u", 0, "parked"): 2,
        ("kafka_actors.partition.watermark.age", "u", 0): 1.5,
    }


def test_what_actors_count_goes_to_one_recorder():
    actor, here = Tally(), Tally()
    observer = JobTelemetry("g", on=True, recorder=here)
    actor.add(CONSUMED_MESSAGES, 5, (("messaging.destination.name", "t"),))
    observer.counted("worker-0.1", pack(actor.state()))
    observer.counted("worker-0.1", pack(actor.state()))
    observer.counted("coordinator.1", b"")
    observer.gone("worker-0.1")
    observer.restarted("worker")
    assert {(p.name, p.value) for p in here.state().counts} == {
        ("messaging.client.consumed.messages", 5),
        ("kafka_actors.actor.restarts", 1),
    }


def test_a_job_that_nobody_measures_counts_nothing():
    actor, here = Tally(), Tally()
    observer = JobTelemetry("g", on=False, recorder=here)
    actor.add(CONSUMED_MESSAGES, 5)
    observer.counted("worker-0.1", pack(actor.state()))
    observer.restarted("worker")
    assert here.state().counts == []


def test_counters_whose_series_are_known_are_there_before_anything_happens():
    here = Tally()
    observer = JobTelemetry("g", on=True, recorder=here)

    async def status_of_nothing():
        raise AssertionError("nobody looks")

    async def begins():
        observer.begin(status_of_nothing)

    asyncio.run(begins())
    observer.end()
    zeros = {(p.name, *(v for k, v in p.attributes if k != "group")): p.value for p in here.state().counts}
    assert set(zeros.values()) == {0}
    assert zeros.keys() >= {
        ("kafka_actors.actor.restarts", "worker"),
        ("kafka_actors.partition.drains", "forced"),
        ("kafka_actors.partition.moves", "worker_died"),
        ("kafka_actors.consumer_group.rebalance.failures",),
    }
    for point in here.state().counts:
        assert {key for key, _ in point.attributes} == set(BY_NAME[point.name].attributes)
    observer.restarted("worker")
    restarts = {p.attributes: p.value for p in here.state().counts if p.name == "kafka_actors.actor.restarts"}
    assert sorted(restarts.values()) == [0, 0, 0, 1], "what happens counts in the series that was there"


def test_metrics_go_somewhere_only_where_the_process_has_an_sdk(monkeypatch):
    for has in (True, False):
        monkeypatch.setattr(observing, "has_meter_provider", lambda has=has: has)
        assert JobTelemetry("g", on=True, recorder=Tally()).measured is has
        assert not JobTelemetry("g", on=False, recorder=Tally()).measured
