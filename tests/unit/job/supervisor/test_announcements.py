"""Plans, wirings and nodes that a supervisor announces to its actors, under versions that rise, and how each actor begins."""

import asyncio

import pytest
from fakes.loop import in_loop, turns
from fakes.runtime import FakeRuntime

from kafka_actors.errors import DisconnectedError
from kafka_actors.job.messages import Identity, JobStart, WorkerPlan, unpack
from kafka_actors.job.supervisor import runtime
from kafka_actors.job.supervisor.announcements import MARGIN_S, ActorStarter, Announcements
from kafka_actors.job.supervisor.context import SupervisorContext
from kafka_actors.job.supervisor.machines.supervision import ActorKey
from kafka_actors.job.supervisor.runtime import COORDINATOR, METADATA, RunningActor
from kafka_actors.ray import Job
from kafka_actors.types import TopicPartition

LINK, OTHER = ActorKey("connection", 1, "far"), ActorKey("connection", 2, "near")


def worker(number):
    return ActorKey("worker", number)


class Stage:
    """A job of two workers on the node "far", with all the actors that these need."""

    def __init__(self, **options):
        self.now, self.place = 100.0, FakeRuntime()
        config = {"start_timeout_s": 30.0, "session_timeout_ms": 45_000, **options}
        job = Job(topics="t", group_id="g", bootstrap_servers="h:1", process=print, workers=2, config=config)
        self.job = SupervisorContext(job.plan(), self.place, lambda: self.now, lambda error: None)
        self.announcements = Announcements(self.job)
        self.starter = ActorStarter(self.job, self.announcements)
        for key in (METADATA, COORDINATOR, worker(0), worker(1), LINK, OTHER):
            self.begin(key)

    def begin(self, key, incarnation=1, *, begun=True):
        ref = self.place.create(key, str(key), ())
        ref.raw = f"handle of {key}"
        self.job.running[key] = running = RunningActor(incarnation, ref, ref.info, begun=begun)
        return running

    def plan(self):
        return self.announcements.worker_plan()


@in_loop
async def test_each_plan_has_a_higher_version_and_all_workers_that_have_a_place():
    stage = Stage(worker_capacity={1: 3.0})
    first, second = stage.plan(), stage.plan()
    assert (first.version, second.version) == (1, 2)
    assert first.capacities == {"worker-0.1": 1.0, "worker-1.1": 3.0}
    stage.job.running[worker(1)].info = None
    assert stage.plan().capacities == {"worker-0.1": 1.0}


@in_loop
async def test_a_plan_says_who_is_up_who_goes_and_who_could_not_read():
    stage = Stage()
    stage.begin(worker(2), 4, begun=False)
    stage.job.running.retiring.add(1)
    plan = stage.plan()
    assert plan.ready == ["worker-0.1", "worker-1.1"]
    assert plan.retiring == ["worker-1.1"]
    assert plan.unconnected == ["worker-0.1", "worker-1.1", "worker-2.4"]
    stage.job.running.connected.add("far")
    assert stage.plan().unconnected == []


@in_loop
async def test_roles_are_as_many_as_there_ever_were_side_by_side():
    """A worker that was dismissed may have left a transaction."""
    stage = Stage()
    stage.begin(worker(6))
    assert stage.plan().roles == 7
    del stage.job.running[worker(6)]
    assert stage.plan().roles == 7


@in_loop
async def test_a_worker_that_is_cut_off_is_silent_until_its_lease_has_ended():
    stage = Stage()
    stage.announcements.cut_off("worker-9.1")
    assert stage.plan().silent == ["worker-9.1"]
    stage.now += 30.0
    assert stage.plan().silent == ["worker-9.1"]
    stage.now += 16.0
    assert stage.plan().silent == []


@in_loop
async def test_a_plan_that_gets_lost_is_sent_again_while_its_coordinator_has_the_role(monkeypatch):
    monkeypatch.setattr(runtime, "AGAIN_S", 0)
    stage = Stage()
    stage.place.lost["coordinator", "set_plan"] = 2
    await stage.announcements.send_plan()
    (text,) = stage.job.running[COORDINATOR].ref.told["set_plan"]
    assert unpack(text, WorkerPlan).version == 3, "each try says what holds then"

    stage.place.lost["coordinator", "set_plan"] = 10**6
    sending = asyncio.ensure_future(stage.announcements.send_plan())
    await turns(20)
    assert not sending.done()
    stage.begin(COORDINATOR, 2)
    await sending


@in_loop
async def test_a_wiring_has_the_handles_of_actors_that_have_begun_on_the_workers_node():
    stage = Stage()
    here = stage.job.running[worker(0)].info
    wiring = stage.announcements.wiring(here)
    assert (wiring.metadata, wiring.coordinator) == ("handle of metadata", "handle of coordinator")
    assert wiring.connections == {1: (1, f"handle of {LINK}")}
    stage.begin(LINK, 2, begun=False)
    stage.begin(METADATA, 2, begun=False)
    wiring = stage.announcements.wiring(here)
    assert (wiring.metadata, wiring.connections) == (None, {})


@in_loop
async def test_a_new_wiring_has_a_higher_version_and_goes_to_all_workers():
    stage = Stage()
    first = stage.announcements.first_wiring(None)
    assert stage.announcements.is_wired(first.version)
    stage.announcements.rewire()
    assert not stage.announcements.is_wired(first.version)
    await turns(5)
    for number in (0, 1):
        (told,) = stage.job.running[worker(number)].ref.told["wire"]
        assert stage.announcements.is_wired(told.version)


@in_loop
async def test_the_metadata_actor_hears_of_nodes_and_connections_of_workers_that_are_gone():
    stage = Stage()
    await stage.announcements.send_nodes()
    assert stage.job.running[METADATA].ref.told["set_nodes"] == (1, ["far"])
    assert stage.announcements.nodes_sent.is_set()
    await stage.announcements.forget_worker("worker-0.1")
    assert [stage.job.running[key].ref.told["forget"] for key in (LINK, OTHER)] == [(["worker-0.1"],)] * 2


@in_loop
async def test_only_a_later_coordinator_recovers():
    stage = Stage()
    await stage.starter.begin(COORDINATOR, stage.job.running[COORDINATOR])
    await stage.starter.begin(COORDINATOR, second := stage.begin(COORDINATOR, 2))
    assert stage.place.made[1].told["begin"][1] is False
    assert second.ref.told["begin"][1] is True


@in_loop
async def test_the_topics_at_the_start_are_asked_for_once():
    stage = Stage()
    await stage.starter.begin(METADATA, first := stage.job.running[METADATA])
    await stage.starter.begin(METADATA, second := stage.begin(METADATA, 2))
    assert (first.ref.calls["job_start"], second.ref.calls["job_start"]) == (1, 0)
    assert stage.starter.topics_known.is_set()


@in_loop
async def test_the_time_to_find_the_cluster_is_what_is_left_of_the_start_and_all_of_it_later():
    stage = Stage()
    stage.now += 10.0

    async def told():
        await stage.starter.begin(METADATA, metadata := stage.begin(METADATA))
        return metadata.ref.told["begin"]

    assert await told() == (20.0 - MARGIN_S,)
    stage.now += 60.0
    assert await told() == (MARGIN_S,)
    stage.job.started.set_result(None)
    assert await told() == (30.0,)


@in_loop
async def test_what_an_actor_is_made_with_names_it_and_the_brokers_present_addresses():
    stage = Stage()
    stage.job.running.brokers[LINK] = ("moved", 9093)
    stage.job.job_start = JobStart([TopicPartition("t", 0)])
    name, _, config, _ = stage.starter.constructor(worker(1), 3)
    assert name == "worker-1.3"
    assert config.bootstrap_servers == ["h:1", "moved:9093"]
    made = stage.starter.constructor(COORDINATOR, 2)
    assert made[1] == 2
    assert unpack(made[4], JobStart) == stage.job.job_start
    assert unpack(made[5], Identity).group_instance_id == stage.job.plan.group_instance_id
    assert stage.starter.constructor(METADATA, 1)[1] == stage.job.plan.topics


@in_loop
async def test_what_keeps_an_actor_from_beginning_is_raised():
    stage = Stage()
    stage.place.lost["worker", "begin"] = 1
    with pytest.raises(DisconnectedError):
        await stage.starter.begin(worker(0), stage.job.running[worker(0)])
