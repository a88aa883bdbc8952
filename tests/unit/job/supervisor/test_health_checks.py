"""Pings, probes and crash reports: what each answer says of an actor, and what its absence does not."""

import asyncio

import pytest
from fakes.loop import in_loop, turns
from fakes.runtime import FakeRuntime

from kafka_actors.job.messages import CallInHand, CrashReport, WorkerPong, pack
from kafka_actors.job.supervisor import health_checks, runtime
from kafka_actors.job.supervisor.context import SupervisorContext
from kafka_actors.job.supervisor.health_checks import KILLED, HealthChecks
from kafka_actors.job.supervisor.machines.supervision import ActorKey, PingActor, ProbeProcess
from kafka_actors.job.supervisor.runtime import Death, RunningActor
from kafka_actors.ray import Job
from kafka_actors.types import TopicPartition

W0, LINK, METADATA = ActorKey("worker", 0), ActorKey("connection", 1, "far"), ActorKey("metadata")


class Machine:
    """Keeps what it is told."""

    def __init__(self):
        self.told = []
        self.witness = None

    def ping_failed(self, key, incarnation, now):
        self.told.append(("failed", key))

    def ponged(self, key, incarnation, now, *, ready, busy_s=None):
        self.told.append(("ponged", key, ready, busy_s))

    def probed(self, key, incarnation, runs, now):
        self.told.append(("probed", key, runs))

    def neighbour(self, node, now, but):
        return self.witness


class Wiring:
    """The newest wiring has version 5."""

    def __init__(self):
        self.wired = []

    def is_wired(self, version):
        return version >= 5

    async def wire(self, running):
        self.wired.append(running)


class Stage:
    """Actors of each kind that have begun, and the checks of them."""

    def __init__(self):
        self.place, self.woken, self.wiring = FakeRuntime(), 0, Wiring()
        plan = Job(topics="t", group_id="g", bootstrap_servers="h:1", process=print).plan()
        self.job = SupervisorContext(plan, self.place, lambda: 7.0, lambda error: None)
        self.machine = self.job.machine = Machine()
        self.actors = {}
        for key in (W0, LINK, METADATA):
            ref = self.place.create(key, str(key), ())
            self.actors[key] = self.job.running[key] = RunningActor(1, ref, ref.info, begun=True)
        self.checks = HealthChecks(self.job, self.wiring, self.wake)

    def wake(self):
        self.woken += 1

    def answers(self, kind, method, answer):
        async def instead(actor, *args):
            return answer

        self.place.instead[kind, method] = instead


@in_loop
async def test_a_worker_is_ready_once_both_it_and_its_begin_say_so():
    stage = Stage()
    stage.answers("worker", "ping", pack(WorkerPong(5, 1.5, True)))
    await stage.checks.ping(PingActor(W0, 1), stage.actors[W0])
    stage.actors[W0].begun = False
    await stage.checks.ping(PingActor(W0, 1), stage.actors[W0])
    assert stage.machine.told == [("ponged", W0, True, 1.5), ("ponged", W0, False, 1.5)]
    assert stage.woken == 2


@in_loop
async def test_a_worker_whose_wiring_got_lost_is_sent_it_again():
    stage = Stage()
    stage.answers("worker", "ping", pack(WorkerPong(4, None, True)))
    await stage.checks.ping(PingActor(W0, 1), stage.actors[W0])
    assert stage.wiring.wired == [stage.actors[W0]]


@in_loop
async def test_a_lost_ping_is_told_and_an_answer_of_one_that_was_replaced_is_not():
    stage = Stage()
    stage.place.lost["metadata", "ping"] = 1
    await stage.checks.ping(PingActor(METADATA, 1), stage.actors[METADATA])
    assert stage.machine.told == [("failed", METADATA)]
    old = stage.actors[METADATA]
    stage.job.running[METADATA] = RunningActor(2, old.ref, old.info, begun=True)
    await stage.checks.ping(PingActor(METADATA, 1), old)
    assert stage.machine.told == [("failed", METADATA)]


@pytest.mark.parametrize("runs", [True, False])
@in_loop
async def test_a_process_on_another_node_is_looked_at_by_an_actor_there(runs):
    stage = Stage()
    stage.place.runs = runs
    await stage.checks.probe(ProbeProcess(W0, 1, LINK), stage.actors[W0])
    assert stage.machine.told == [("probed", W0, runs)]
    assert stage.actors[LINK].ref.told["runs"] == (stage.actors[W0].info.pid,)


@in_loop
async def test_where_nobody_can_look_nothing_is_told():
    stage = Stage()
    await stage.checks.probe(ProbeProcess(W0, 1, None), stage.actors[W0])  # it is on a node of others
    stage.place.lost["connection", "runs"] = 1
    await stage.checks.probe(ProbeProcess(W0, 1, LINK), stage.actors[W0])
    await stage.checks.probe(ProbeProcess(W0, 1, ActorKey("connection", 9, "far")), stage.actors[W0])
    stage.actors[W0].info = None  # it has not said where it is
    await stage.checks.probe(ProbeProcess(W0, 1, LINK), stage.actors[W0])
    assert (stage.machine.told, stage.woken) == ([], 0)


@in_loop
async def test_a_process_of_the_own_node_needs_nobody_else():
    stage = Stage()
    await stage.checks.probe(ProbeProcess(METADATA, 1, None), stage.actors[METADATA])
    assert stage.machine.told == [("probed", METADATA, True)]


@in_loop
async def test_a_death_that_ray_is_not_sure_of_is_one_when_the_process_is_gone(monkeypatch):
    monkeypatch.setattr(runtime, "AGAIN_S", 0)
    stage = Stage()
    stage.machine.witness = LINK
    uncertain = Death("unavailable", uncertain=True)
    stage.actors[W0].ref.ended.set_result(uncertain)
    waiting = asyncio.ensure_future(stage.checks.death(W0, stage.actors[W0]))
    await turns(30)
    assert not waiting.done(), "the process runs: Ray has lost the call only"
    stage.place.runs = False
    assert await waiting is uncertain


@in_loop
async def test_what_a_dead_worker_had_in_hand_is_told_by_a_connection_actor_of_its_node():
    stage = Stage()
    call = CallInHand(TopicPartition("t", 0), 3, 5)
    stage.place.words = pack(CrashReport([call], "exit code 3"))
    text = await stage.checks.calls_at_death(W0, stage.actors[W0], Death("gone"))
    assert "exit code 3" in text
    assert "t-0" in text
    assert [died.times for died in stage.job.deaths.known] == [1]


@in_loop
async def test_a_worker_that_died_in_a_call_without_a_word_was_killed(monkeypatch):
    stage = Stage()
    stage.place.words = pack(CrashReport([CallInHand(TopicPartition("t", 0), 3, 5)]))
    assert KILLED in await stage.checks.calls_at_death(W0, stage.actors[W0], Death(""))
    stage.place.words = pack(CrashReport([]))
    assert await stage.checks.calls_at_death(W0, stage.actors[W0], Death("")) == "", "it was in no call"
    monkeypatch.setattr(health_checks, "CRASH_REPORT_S", 0)
    stage.place.words = None
    assert await stage.checks.calls_at_death(W0, stage.actors[W0], Death("")) == ""
