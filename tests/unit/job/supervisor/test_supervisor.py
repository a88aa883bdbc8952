"""A supervisor over actors that answer, or don't: how a job's start and its end come out."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
from fakes.loop import turns

from kafka_actors.errors import DisconnectedError, JobFailed
from kafka_actors.job import JobStatus
from kafka_actors.job.messages import ActorInfo
from kafka_actors.job.status import NO_TOPIC, ScalingStatus
from kafka_actors.job.supervisor.machines.supervision import ActorKey
from kafka_actors.ray import Job

supervisor = pytest.importorskip("kafka_actors.job.supervisor.supervisor")
runtime = pytest.importorskip("kafka_actors.job.supervisor.runtime")


class Place:
    """Where nothing comes up."""

    own_node = "here"

    def create(self, key, name, args):
        return Actor()

    def kill(self, ref, info):
        pass

    def why_not_placed(self, key):
        return "no room"


class Actor:
    raw = None

    async def call(self, method, *args):
        if method == "quit":
            raise DisconnectedError("it is gone")
        await asyncio.Event().wait()

    async def died(self):
        await asyncio.Event().wait()


def made(**config):
    plan = Job(topics="t", group_id="g", bootstrap_servers="h:1", process=print, config=config).plan()
    return supervisor.Supervisor(plan, Place())


@pytest.fixture(autouse=True)
def short_ends(monkeypatch):
    actor_manager = pytest.importorskip("kafka_actors.job.supervisor.actor_manager")
    monkeypatch.setattr(pytest.importorskip("kafka_actors.job.supervisor.supervisor"), "LOOK_S", 0)
    for module, name in ((actor_manager, "QUIT_S"), (supervisor, "CLOSE_S"), (supervisor, "ANSWER_S")):
        monkeypatch.setattr(module, name, 0.05)


def test_a_second_error_at_the_start_changes_nothing():
    """As of two workers whose constructors fail."""

    async def scenario():
        job = made()
        starting = asyncio.ensure_future(job.start())
        await turns(10)
        job._fail(ValueError("one"))
        job._fail(ValueError("two"))
        with pytest.raises(ValueError, match="one"):
            await starting
        await turns(10)
        # Of a detached job whose driver is gone, too: it would keep its name, and be waited for, for ever.
        assert job.report.state == "failed"
        assert job.has_ended
        with pytest.raises(JobFailed, match="one"):
            await job.ended_within(0)

    asyncio.run(scenario())


def test_an_error_of_a_job_that_works_ends_it():
    async def scenario():
        job = made()
        job._job.started.set_result(None)
        job._fail(ValueError("one"))
        job._fail(ValueError("two"))
        with pytest.raises(JobFailed, match="one"):
            await job.wait()
        assert job.report.state == "failed"

    asyncio.run(scenario())


@pytest.mark.parametrize("coordinator", [None, Actor()], ids=["no coordinator", "a silent one"])
def test_nothing_counts_as_confirmed_of_which_no_coordinator_has_said_so(coordinator):
    """Nobody has asked for a status before, so which partitions there are isn't known either."""

    async def scenario():
        job = made()
        job._job.started.set_result(None)
        if coordinator is not None:
            job._job.running[runtime.COORDINATOR] = runtime.RunningActor(1, coordinator, begun=True)
        assert not await job.stop(0.5)
        assert job.report.shown().unconfirmed == []

    asyncio.run(scenario())


@pytest.mark.parametrize("drain_s", [5, 60])
def test_a_stop_for_which_no_timeout_is_given_has_time_for_the_drain_and_the_leave(drain_s):
    """Calls of 45 s that may be drained would be cut off at 28 s, and the group not left."""

    async def scenario():
        job = made(drain_timeout_ms=drain_s * 1000, rebalance_timeout_ms=120_000)
        assert job.time_to_stop >= 30
        assert job.time_to_stop - supervisor.CLOSE_S > drain_s, "what the coordinator has of it"

    asyncio.run(scenario())


# ---------------------------------------------------------------- reasons for waiting


class Slow:
    """Class of a user, constructed once per worker."""

    def __call__(self, batch):
        pass


class Metadata:
    """A metadata actor that has not found what it looks for."""

    def __init__(self, said):
        self.said = said

    async def call(self, method):
        assert method == "waits_for"
        return self.said


class Starting:
    """A job of two workers, as its supervisor has it."""

    def __init__(self, process=Slow, **options):
        plan = Job(
            topics="t", group_id="g", bootstrap_servers="h:1", process=process, workers=2, **options
        ).plan()
        self.now = 0.0
        self.running = runtime.RunningActors(plan)
        self.job = SimpleNamespace(
            plan=plan,
            running=self.running,
            clock=lambda: self.now,
            scaling=SimpleNamespace(workers=2),
            runtime=SimpleNamespace(why_not_placed=lambda key: f"{key} needs num_gpus=1"),
            job_start=None,
        )
        self.waiting = supervisor.StartProgress(self.job)

    def put(self, key, ref=None, *, placed=True, begun=False):
        info = ActorInfo(7, "n1") if placed else None
        self.running[key] = runtime.RunningActor(1, ref, info, begun=begun)

    def said(self):
        return asyncio.run(self.waiting._reasons())


def test_processes_come_up_first():
    job = Starting()
    assert job.said() == ["processes for worker-0, worker-1"]
    job.put(ActorKey("worker", 0))
    job.put(ActorKey("worker", 1), placed=False)
    assert job.said() == ["the constructor of Slow in worker-0"]


def test_brokers_and_topics_are_what_the_metadata_actor_says():
    job = Starting()
    job.put(runtime.METADATA, Metadata("a broker: h:1: connection refused"))
    assert job.said() == ["a broker: h:1: connection refused"]
    job.job.job_start = object()
    assert job.said() == ["processes for worker-0, worker-1"]


def test_a_missing_resource_is_named_once_a_process_should_be_there():
    job = Starting(resources_per_worker={"num_gpus": 1})
    assert job.said() == ["processes for worker-0, worker-1"]
    job.now = 3.0
    assert job.said() == ["a place for worker-0, worker-1: worker-0 needs num_gpus=1"]


def test_users_code_and_the_coordinator_come_last():
    job = Starting(process=lambda batch: None)
    for number in (0, 1):
        job.put(ActorKey("worker", number))
    assert job.said() == ["the process in worker-0, worker-1"]
    for number in (0, 1):
        job.put(ActorKey("worker", number), begun=True)
    assert job.said() == ["the coordinator"]


def test_a_program_without_a_view_is_warned_of_each_cause_once(caplog):
    now = [0.0]
    each = supervisor.log_waits(lambda: now[0])

    def status(*waits_for):
        return JobStatus(
            "starting", "g", None, [], [], 0, 0, {}, {}, {}, ScalingStatus(workers=1),
            waits_for=list(waits_for),
        )  # fmt: skip

    with caplog.at_level(logging.WARNING):
        for at, cause in ((1.0, "a"), (10.0, "a"), (11.0, "a"), (12.0, "b"), (13.0, "")):
            now[0] = at
            each(status(*filter(None, [cause])))
    assert [r.getMessage() for r in caplog.records] == [
        "the job of group g has not started yet: it waits for a",
        "the job of group g has not started yet: it waits for b",
    ]


def test_a_topic_that_is_not_there_is_told_of_at_once(caplog):
    now = [0.0]
    each = supervisor.log_waits(lambda: now[0])
    missing = JobStatus(
        "starting", "g", None, [], [], 0, 0, {}, {}, {}, ScalingStatus(workers=1),
        waits_for=[f"{NO_TOPIC}orders: not found on h:1"],
    )  # fmt: skip
    with caplog.at_level(logging.WARNING):
        for at in (1.0, 2.0, 2.5):
            now[0] = at
            each(missing)
    assert [r.getMessage() for r in caplog.records] == [
        "the job of group g has not started yet: it waits for topics: orders: not found on h:1"
    ]
