"""The policy's shell: the coordinator's status in, events and requests for room out."""

import asyncio
import threading

import pytest
from fakes.runtime import FakeRuntime
from msgspec.structs import replace

from kafka_actors.events import NoRoomForWorkers, WorkersChanged
from kafka_actors.job import Autoscale
from kafka_actors.job.messages import CoordinatorStatus, WorkerProgress
from kafka_actors.job.status import GroupState, PartitionStatus
from kafka_actors.job.supervisor.machines.load import PartitionLoad, observed
from kafka_actors.job.supervisor.machines.supervision import ActorKey
from kafka_actors.job.supervisor.runtime import RunningActor
from kafka_actors.job.supervisor.worker_scaling import UNPLACED_S, Autoscaler, Rescaling
from kafka_actors.ray import Job
from kafka_actors.types import TopicPartition

ray_runtime = pytest.importorskip("kafka_actors.ray.runtime")
supervised = pytest.importorskip("kafka_actors.job.supervisor.context")

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def status(*partitions, work_s=0.0):
    group = GroupState("stable", 1, "m", None, len(partitions), 1)
    workers = {"worker-0.1": WorkerProgress(True, 0, 0, work_s=work_s)}
    return CoordinatorStatus(group, list(partitions), workers, False, 0, 0)


def partition(number, end, lag, reason=""):
    return PartitionStatus("t", number, "worker-0.1", None, None, end, lag, "granted", reason)


class Shell:
    """An `Autoscaler` whose Ray notes what it is asked for."""

    def __init__(self, said, **more):
        self.now, self.asked, self.told, self.broken = 0.0, [], [], False
        self.scaling = Autoscaler(
            said, self, lambda: self.now, self.told.append, placement_timeout_s=60.0, **more
        )

    def request_resources(self, workers):
        self.asked.append(workers)
        if self.broken:
            raise RuntimeError("Ray is gone")

    def check_resources(self, unplaced="", placed=None):
        """All are placed unless said otherwise."""
        there = self.scaling.workers - bool(unplaced) if placed is None else placed
        return asyncio.run(self.scaling.check_resources(there, unplaced))

    def burst(self):
        for second in range(8):
            self.now += 1.0
            lag = 50_000 - second * 50
            both = (partition(0, 50_000, lag), partition(1, 50_000, lag))
            self.scaling.observe(status(*both, work_s=second * 1.0), {}, 1)


def test_what_the_coordinator_says_is_what_is_observed():
    said = status(
        partition(0, 50, 20), partition(1, 90, None), partition(2, None, None, "no leader"), partition(3, 7, 0, "buffer full"),
        partition(4, 9, 2, "no worker"),
        work_s=4.5,
    )  # fmt: skip
    seen = observed(said, {P0: 40}, 3, 2)
    assert list(seen.partitions.values()) == [
        PartitionLoad(40, 30),
        PartitionLoad(90, None),
        PartitionLoad(None, None, True),
        PartitionLoad(7, 7),
        PartitionLoad(9, 7),
    ]
    assert (seen.busy_s, seen.wanted, seen.ready) == ({"worker-0.1": 4.5}, 3, 2)


def test_records_that_wait_in_retry_topics_keep_no_worker():
    """The source is idle, and a record that isn't due waits in each retry partition."""
    shell = Shell(Autoscale(max=16, initial=16), lanes=64, retry_topics=["t-10s", "t-1m"])
    reason = "not due: its next record waits until 2026-11-28 10:04:12 UTC"
    idle = [partition(number, 50, 0) for number in range(8)]
    waiting = [
        replace(partition(number, 10, 1, reason), topic=topic)
        for topic in ("t-10s", "t-1m")
        for number in range(8)
    ]
    for second in range(130):
        shell.now += 1.0
        shell.scaling.observe(status(*idle, *waiting, work_s=second * 0.01), {}, shell.scaling.workers)
    assert [event.after for event in shell.told] == [1]
    assert shell.told[0].reason == "nothing to do for 120 s"
    assert shell.scaling.status().backlog_seconds == 0.0


def test_a_decision_is_an_event_and_stands_in_the_status_with_its_reason():
    shell = Shell(Autoscale(max=4, upscale_delay_seconds=0))
    shell.burst()
    assert shell.scaling.workers == 2
    reason = shell.told[0].reason
    assert shell.told == [WorkersChanged(1, 2, reason)]
    assert "the target is 30 s" in reason
    shell.now += 5.0
    shown = shell.scaling.status()
    assert (shown.workers, str(shown.autoscale)) == (2, "1..4")
    assert [(c.number, c.before, c.after, c.reason) for c in shown.changes] == [(1, 1, 2, reason)]
    assert shown.changes[0].seconds_ago >= 5.0
    assert shown.backlog_seconds == pytest.approx(500, rel=0.1)
    assert shown.pace_per_s == pytest.approx(100)
    shell.scaling.set_workers(3)
    shown = shell.scaling.status()
    assert (shown.workers, shown.autoscale, shown.backlog_seconds) == (3, None, None)
    assert shown.changes[-1].reason == "scale(3) instead of 1..4"


def test_ray_is_asked_for_room_until_all_workers_are_placed():
    shell = Shell(Autoscale(max=4, initial=3))
    shell.check_resources()
    assert shell.asked == []
    for _ in range(3):
        shell.check_resources("worker-2 needs num_cpus=1")
    assert shell.asked == [3]
    shell.check_resources()
    assert shell.asked == [3, 0]


def test_room_that_was_asked_for_is_given_back_by_a_number_and_at_the_end():
    shell = Shell(Autoscale(max=4, initial=3))
    shell.check_resources("worker-2 needs num_cpus=1")
    shell.scaling.set_workers(2)
    shell.check_resources("worker-1 needs num_cpus=1")
    assert shell.asked == [3, 0]
    shell.scaling.set_workers(Autoscale(min=2, max=4))
    shell.check_resources("worker-1 needs num_cpus=1")
    asyncio.run(shell.scaling.release_resources())
    assert shell.asked == [3, 0, 2, 0]


def test_without_request_resources_nothing_is_asked_and_the_wait_is_shown_all_the_same():
    shell = Shell(Autoscale(max=4, request_resources=False))
    shell.check_resources("worker-2 needs num_cpus=1")
    shell.now += UNPLACED_S
    shell.check_resources("worker-2 needs num_cpus=1")
    assert shell.asked == []
    assert shell.scaling.status().holding == "worker-2 needs num_cpus=1"
    shell.check_resources()
    assert shell.scaling.status().holding == ""


LACKS = "worker-2 needs num_cpus=1"


def test_a_number_without_room_is_given_up_for_the_one_that_there_was(caplog):
    shell = Shell(2)
    shell.check_resources()
    shell.scaling.set_workers(8)
    assert shell.check_resources("", placed=2) is None, "they are asked for, and don't wait yet"
    assert shell.check_resources(LACKS) is None
    shell.now += UNPLACED_S
    assert shell.check_resources(LACKS) is None
    assert shell.scaling.workers == 8
    assert shell.scaling.status().holding == LACKS
    assert shell.told[-1] == NoRoomForWorkers(8, 7, LACKS)
    shell.now += 60.0 - UNPLACED_S
    given_up = shell.check_resources(LACKS)
    reason = f"no room for 8 workers within 60 s: {LACKS}"
    assert (given_up.before, given_up.after, given_up.reason) == (8, 2, reason)
    assert shell.scaling.workers == 2
    assert shell.told[-1] == WorkersChanged(8, 2, reason)
    assert f"{reason}; the job goes on with 2" in caplog.text
    assert shell.scaling.status().holding == ""
    assert shell.asked == []


def test_each_number_is_waited_for_anew():
    shell = Shell(2)
    shell.scaling.set_workers(8)
    shell.check_resources(LACKS)
    shell.now += 50.0
    shell.check_resources(LACKS)
    shell.scaling.set_workers(6)
    shell.check_resources(LACKS)
    shell.now += 59.0
    assert shell.check_resources(LACKS) is None
    shell.now += 1.0
    assert shell.check_resources(LACKS).after == 2


def test_workers_that_found_room_are_not_given_up_for_one_that_waits_again():
    shell = Shell(2)
    shell.scaling.set_workers(3)
    shell.check_resources()
    for _ in range(2):
        assert shell.check_resources(LACKS) is None
        shell.now += 600.0
    assert shell.scaling.workers == 3


def test_what_a_policy_wants_is_waited_for_however_long_it_takes():
    shell = Shell(Autoscale(max=4, initial=3))
    for _ in range(2):
        assert shell.check_resources(LACKS) is None
        shell.now += 600.0
    assert shell.scaling.workers == 3


def test_a_ray_that_can_not_be_asked_ends_nothing(caplog):
    shell = Shell(Autoscale(max=4))
    shell.broken = True
    shell.check_resources("worker-2 needs num_cpus=1")
    assert "the request to Ray's autoscaler failed: RuntimeError: Ray is gone" in caplog.text


def test_room_that_could_not_be_given_back_is_given_back_later_and_that_is_said_once(caplog):
    """Ray would keep nodes for it for as long as its cluster lives."""
    shell = Shell(Autoscale(max=4, initial=3))
    shell.check_resources("worker-2 needs num_cpus=1")
    shell.broken = True
    for _ in range(3):
        shell.check_resources()
    shell.broken = False
    shell.check_resources()
    shell.check_resources()
    assert shell.asked == [3, 0, 0, 0, 0]
    assert caplog.text.count("autoscaler failed") == 1


def test_a_request_that_failed_is_taken_back_too_because_ray_may_have_taken_it():
    shell = Shell(Autoscale(max=4, initial=3))
    shell.broken = True
    shell.check_resources("worker-2 needs num_cpus=1")
    shell.broken = False
    shell.check_resources()
    shell.check_resources()
    assert shell.asked == [3, 0]


def test_ray_is_asked_beside_the_loop_what_a_worker_without_a_place_waits_for():
    """Its GCS may not answer for a minute, in which deaths would be missed."""

    async def scenario():
        place, threads = FakeRuntime(), []
        place.why_not_placed = lambda key: threads.append(threading.current_thread()) or "no room"
        plan = Job(topics="t", group_id="g", bootstrap_servers="h:1", process=print).plan()
        job = supervised.SupervisorContext(plan, place, lambda: 0.0, lambda error: None)
        job.running[ActorKey("worker", 0)] = RunningActor(1, None)
        assert await Rescaling(job, None, None)._why_unplaced() == "no room"
        assert threads != [threading.current_thread()]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("resources", "room"),
    [
        ({}, {}),
        ({"num_cpus": 0}, {}),
        ({"num_cpus": 2, "num_gpus": 0.5, "memory": 1 << 30}, {"CPU": 2, "GPU": 0.5, "memory": 1 << 30}),
        ({"resources": {"scoring": 1}, "runtime_env": {"pip": ["x"]}}, {"scoring": 1}),
        ({"num_gpus": 1, "accelerator_type": "A100"}, {"GPU": 1, "accelerator_type:A100": 0.001}),
    ],
    ids=str,
)
def test_room_is_named_as_the_autoscaler_names_it(resources, room):
    assert ray_runtime.bundle_of(resources) == room


HEAD_WITHOUT_CPUS = {"Alive": True, "Resources": {"node:__internal_head__": 1.0, "memory": 1e9}}
HEAD_WITH_CPUS = {"Alive": True, "Resources": {"node:__internal_head__": 1.0, "CPU": 4.0}}
OTHER = {"Alive": True, "Resources": {"CPU": 4.0}}


@pytest.mark.parametrize(
    ("resources", "nodes", "requested"),
    [
        ({}, [HEAD_WITHOUT_CPUS, OTHER], {"num_cpus": 0.001}),
        ({}, [HEAD_WITHOUT_CPUS], {"num_cpus": 0.001}),  # the autoscaler adds a node for it
        ({"num_gpus": 1}, [HEAD_WITHOUT_CPUS, OTHER], {"num_cpus": 0.001, "num_gpus": 1}),
        ({"num_cpus": 0}, [HEAD_WITHOUT_CPUS, OTHER], {"num_cpus": 0}),
        ({"num_cpus": 2}, [HEAD_WITHOUT_CPUS, OTHER], {"num_cpus": 2}),
        ({}, [HEAD_WITH_CPUS, OTHER], {}),
        ({}, [{**HEAD_WITHOUT_CPUS, "Alive": False}, HEAD_WITH_CPUS], {}),
    ],
)
def test_workers_stay_off_a_head_that_was_given_no_cpus(resources, nodes, requested):
    assert ray_runtime.requested_resources(resources, nodes) == requested


@pytest.mark.parametrize(
    ("said", "looked_at", "every_s"),
    [
        (4, False, None),
        (4, True, 2.0),
        (Autoscale(max=4, target_lag_seconds=30), False, 2.0),
        (Autoscale(max=4, target_lag_seconds=5), True, 1.0),
    ],
)
def test_ends_are_asked_for_where_somebody_decides_or_looks_and_never_otherwise(said, looked_at, every_s):
    assert Shell(said).scaling.ends_every_s(looked_at=looked_at) == every_s
