"""A supervisor on a fake runtime, by a clock that moves by itself: starts that fail in their time, deaths at the start, room that
never comes. That Ray and Kafka do as the fake does is shown by tests/integration/test_job_start.py and test_job_autoscale.py."""

import asyncio
import itertools

import pytest
from fakes.runtime import FakeRuntime
from fakes.virtual_time import run_in_virtual_time

from kafka_actors.errors import JobError, NoBrokersAvailable, StartTimeoutError, UnknownTopicOrPartitionError
from kafka_actors.job.messages import pack
from kafka_actors.job.supervisor.machines.supervision import ActorKey
from kafka_actors.ray import Job

supervisor = pytest.importorskip("kafka_actors.job.supervisor.supervisor")
runtime = pytest.importorskip("kafka_actors.job.supervisor.runtime")

LIMIT_S = 8.0


async def never(actor, *args):
    await asyncio.Event().wait()


def job_on(place, *, workers=2, limit_s=LIMIT_S):
    plan = Job(
        topics="t",
        group_id="g",
        bootstrap_servers="h:1",
        process=print,
        workers=workers,
        config={"start_timeout_s": limit_s},
    ).plan()
    return supervisor.Supervisor(plan, place, asyncio.get_running_loop().time)


def failed_start(place, error, **options):
    """The error with which a start fails, and after how many seconds."""

    async def start():
        job = job_on(place, **options)
        with pytest.raises(error) as raised:
            await job.start()
        assert all(actor.calls["quit"] or actor.name in place.killed for actor in place.made)
        return raised.value, asyncio.get_running_loop().time()

    return run_in_virtual_time(start())


def test_workers_that_no_node_can_take_are_named_in_time_with_what_is_missing():
    place = FakeRuntime()
    place.without_place.add(ActorKey("worker", 1))
    error, took = failed_start(place, StartTimeoutError)
    assert "worker-1 needs num_gpus=1" in str(error)
    assert LIMIT_S <= took < LIMIT_S + 10
    assert place.last("coordinator").told["stop"] == (True,), (
        "it holds nothing in the group until its session would end"
    )


def test_a_constructor_that_takes_too_long_is_named_in_time():
    place = FakeRuntime()
    place.instead["worker", "begin"] = never
    error, took = failed_start(place, StartTimeoutError)
    assert "the constructor of process of worker-" in str(error)
    assert LIMIT_S <= took < LIMIT_S + 10


@pytest.mark.parametrize(
    ("method", "error"),
    [("begin", NoBrokersAvailable("h:1")), ("job_start", UnknownTopicOrPartitionError("t"))],
    ids=["no broker", "no topic"],
)
def test_who_looks_for_the_cluster_ends_a_little_before_the_start_and_says_what_is_missing(method, error):
    place, given_up = FakeRuntime(), []

    async def comes_up(actor):
        await asyncio.sleep(3.0)
        return pack(actor.info)

    async def look(actor, *args):
        await asyncio.sleep(args[-1])
        given_up.append(asyncio.get_running_loop().time())
        raise error

    place.instead["metadata", "whereabouts"] = comes_up
    place.instead["metadata", method] = look
    raised, _ = failed_start(place, type(error))
    assert raised is error
    assert LIMIT_S - 1 <= given_up[0] < LIMIT_S


def test_a_constructor_that_ends_its_process_is_tried_five_times_with_pauses_that_grow():
    place, deaths = FakeRuntime(), []

    async def die(actor, *args):
        deaths.append(asyncio.get_running_loop().time())
        actor.ended.set_result(runtime.Death("its process is gone"))
        await never(actor)

    place.instead["worker", "begin"] = die
    error, _ = failed_start(place, JobError, workers=1, limit_s=60.0)
    assert "worker-0 was started 5 times in vain" in str(error)
    assert len(deaths) == 5
    pauses = [later - sooner for sooner, later in itertools.pairwise(deaths)]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 2.0


def test_a_number_without_room_is_given_up_in_time_and_the_job_goes_on_with_the_workers_it_has():
    place = FakeRuntime()
    place.without_place.add(ActorKey("worker", 2))

    async def scale():
        clock = asyncio.get_running_loop().time
        job = job_on(place, limit_s=12.0)
        await job.start()
        await job.scale(3)
        assert (await job.status()).scaling.workers == 3
        began = clock()
        while (await job.status()).scaling.workers == 3:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        assert 12.0 <= clock() - began < 14.0
        status = await job.status()
        change = status.scaling.changes[-1]
        assert (change.before, change.after) == (3, 2)
        assert change.reason == "no room for 3 workers within 12 s: worker-2 needs num_gpus=1"
        assert status.state == "running"
        workers = [actor.name for actor in place.made if actor.key.kind == "worker"]
        assert workers == ["worker-0.1", "worker-1.1", "worker-2.1"], "nobody was replaced"
        assert not {"worker-0.1", "worker-1.1"} & set(place.killed)
        await job.stop(5.0)

    run_in_virtual_time(scale())
