"""A supervisor over actors that answer, or don't: how a job's start and its end come out."""

import asyncio

import pytest
from fakes.loop import turns

from kafka_actors.errors import DisconnectedError, JobFailed
from kafka_actors.ray import Job

supervisor = pytest.importorskip("kafka_actors.job.supervisor.supervisor")
runtime = pytest.importorskip("kafka_actors.job.supervisor.runtime")
running_actors = pytest.importorskip("kafka_actors.job.supervisor.running_actors")


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


def made():
    plan = Job(topics="t", group_id="g", bootstrap_servers="h:1", process=print).plan()
    return supervisor.Supervisor(plan, Place())


@pytest.fixture(autouse=True)
def short_ends(monkeypatch):
    actor_manager = pytest.importorskip("kafka_actors.job.supervisor.actor_manager")
    monkeypatch.setattr(pytest.importorskip("kafka_actors.job.supervisor.start_progress"), "LOOK_S", 0)
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
        assert job.report.state == "starting"
        assert not job.has_ended

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
            job._job.running[running_actors.COORDINATOR] = running_actors.RunningActor(
                1, coordinator, begun=True
            )
        assert not await job.stop(0.5)
        assert job.report.shown().unconfirmed == []

    asyncio.run(scenario())
