"""Starts of jobs: what keeps one from starting is said in one clear line; a detached job goes on without its driver."""

import asyncio
import json
import signal
import threading
import time
from types import SimpleNamespace

import psutil
import pytest
from fakes.loop import in_loop
from fakes.refusing import refusing_address
from jobs.scene import recorder
from pace import this_run
from waiting import at_pace_s, slow_s, until

import kafka_actors as ka
from kafka_actors.cli.main import run_command_line
from kafka_actors.errors import (
    ConfigError,
    DisconnectedError,
    JobNameInUseError,
    NoBrokersAvailable,
    StartTimeoutError,
    UnknownTopicOrPartitionError,
    UsageError,
)

pytestmark = [pytest.mark.ray, pytest.mark.kafka]


@pytest.fixture
def refusing():
    """An address where nobody listens, and which no other process gets meanwhile."""
    with refusing_address() as address:
        yield address


def actors():
    """Pids of the actors in the Ray of this test."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            title = process.cmdline()[:1]
        except psutil.Error:
            continue
        if title and title[0].startswith("ray::") and "Actor" in title[0]:
            found.add(process.pid)
    return found


def one_line(error):
    assert "\n" not in str(error)
    return str(error)


def test_workers_that_no_node_can_take_are_named_with_what_is_missing(scene):
    began, limit_s = time.monotonic(), max(10.0, at_pace_s(5))
    with pytest.raises(StartTimeoutError) as failed:
        scene.start(workers=2, resources_per_worker={"num_gpus": 1}, config={"start_timeout_s": limit_s})
    assert this_run().quiet_s(min(began + limit_s, time.monotonic()), time.monotonic()) < 15
    assert "num_gpus=1" in one_line(failed.value)
    assert "worker-0" in str(failed.value) or "worker-1" in str(failed.value)
    assert scene.cluster.describe_group(scene.group).members == []


@pytest.fixture
def looking(monkeypatch):
    """`looking(servers, topics)`: a metadata actor in this process, which has not begun."""
    from kafka_actors.ray.actors import metadata_actor

    monkeypatch.setattr(metadata_actor, "set_up_process", lambda setup: None)

    def make(servers, topics):
        plan = ka.Job(topics=topics, group_id="g", bootstrap_servers=servers, process=print).plan()
        return metadata_actor.MetadataActor(plan.config, plan.topics, None, plan.setup("metadata"))

    return make


@in_loop
async def test_a_topic_that_does_not_exist_is_named(looking, kafka_cluster):
    actor = looking(kafka_cluster.bootstrap_servers, ["no-such-topic"])
    await actor.begin(20.0)
    began = time.monotonic()
    with pytest.raises(UnknownTopicOrPartitionError) as failed:
        await actor.job_start(False, 1.0)
    assert time.monotonic() - began >= 1.0, "it may come yet"
    assert "no-such-topic" in one_line(failed.value)
    assert "no-such-topic" in await actor.waits_for()
    await actor._client.close()


@in_loop
async def test_a_bootstrap_address_where_nobody_listens_is_named(looking, refusing):
    actor = looking(refusing, ["t"])
    with pytest.raises(NoBrokersAvailable) as failed:
        async with asyncio.timeout(slow_s(3)):  # it has one second
            await actor.begin(1.0)
    assert refusing in one_line(failed.value)
    assert refusing in await actor.waits_for()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"config": {"fetch_max_byte": 1}}, "fetch_max_bytes"),
        ({"config": {"session.timeout.ms": "soon"}}, "session_timeout_ms"),
        ({"config": {"ssl_cafile": "x"}}, "ssl_cafile"),
        ({"config": {"sasl.mechanism": "PLAIN"}}, "sasl_mechanism"),
        ({"workers": 0}, "workers"),
        ({"process": 5}, "process"),
        ({"resources_per_worker": {"gpus": 1}}, "resources_per_worker"),
        ({"worker_assignor": "fair"}, "worker_assignor"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_option_is_refused_by_name_before_anything_connects(refusing, options, said):
    whole = {"topics": ["t"], "group_id": "g", "bootstrap_servers": refusing}
    with pytest.raises(ConfigError) as failed:
        ka.Job(**{**whole, "process": lambda batch: None, **options})
    assert said in one_line(failed.value)


def test_code_that_cannot_travel_is_refused_in_one_line(scene):
    lock = threading.Lock()

    def process(batch):
        with lock:
            pass

    with pytest.raises(
        ConfigError, match=r"process: can't be sent to the workers: the variable 'lock': .*lock"
    ) as failed:
        ka.Job(**scene.options(process=process)).start()
    one_line(failed.value)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_starting_leaves_no_actor_and_no_member(scene):
    def members():
        return scene.cluster.describe_group(scene.group).members

    def interrupt_a_member():
        until(members, 100, "the member of the group")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    watching = threading.Thread(target=interrupt_a_member)
    before = actors()
    watching.start()
    with pytest.raises(KeyboardInterrupt):
        scene.job(workers=1, make=120).start()
    watching.join()
    until(lambda: actors() <= before, 15, "the end of all actors")
    until(lambda: members() == [], 5, "the member to have left: its session lasts 45 s")


def test_a_detached_job_that_has_ended_gives_its_name_to_the_next(scene):
    for _ in range(2):
        running = scene.job(name=scene.group, detached=True, until="latest").start()
        running.wait(timeout=slow_s(60))
        running.wait(timeout=0)
        assert ka.Job.attach(scene.group).status().state == "stopped"
    ka.Job.attach(scene.group).stop()


def test_a_second_job_of_a_name_is_refused_and_the_first_goes_on(scene, monkeypatch):
    from kafka_actors.ray.actors import job_actor

    monkeypatch.setattr(job_actor, "NAME_TIMEOUT_S", 1.0)
    scene.start(workers=1, name=scene.group)
    scene.under_load()
    scene.flowing()
    with pytest.raises(JobNameInUseError, match=scene.group):
        scene.job(workers=1, name=scene.group).start()
    scene.flowing()
    assert scene.settle().total() == 0


def test_a_detached_job_goes_on_and_is_found_and_controlled_by_its_name(scene, capsys):
    def actors_of(running):
        """Actors by name, with their processes; the spare one is left out, since it comes when the others have work."""
        return {name: pid for name, pid in running.status().actors.items() if not name.startswith("spare")}

    job = scene.job(workers=2, name=scene.group, detached=True, process=recorder(scene.journal))
    scene.under_load()
    with job.start() as running:
        scene.flowing()
        actors = actors_of(running)
    scene.flowing()  # the block's end stops a job only if it isn't detached

    found = ka.Job.attach(scene.group)
    scene.running = found
    assert actors_of(found) == actors
    assert found.status().state == "running"
    assert repr(found) == f"<RunningJob {scene.group!r}, detached>"

    def command(*arguments):
        assert run_command_line(["job", *arguments]) == 0
        return capsys.readouterr().out

    [row] = [row for row in json.loads(command("list", "-o", "json")) if row["name"] == scene.group]
    assert (row["where"], row["state"], row["group_id"]) == ("detached", "running", scene.group)
    command("pause", scene.group)
    until(lambda: found.status().state == "paused", 10, "the job to be paused")
    command("resume", scene.group)
    scene.flowing()
    command("scale", scene.group, "1")
    until(lambda: len(found.status().workers) == 1, 30, "one worker to be left")
    scene.settle()
    assert found.status().state == "stopped"
    found.wait()
    with pytest.raises(DisconnectedError, match=f"the job '{scene.group}' has ended"):
        running.status()
    with pytest.raises(UsageError, match=scene.group):
        ka.Job.attach(scene.group)
    until(lambda: scene.cluster.describe_group(scene.group).members == [], 5, "the group to be left")


def test_an_actor_of_a_detached_job_is_replaced_like_any_other(scene):
    scene.running = scene.job(workers=2, name=scene.group, detached=True).start()
    scene.under_load()
    scene.spread(2)
    scene.flowing()
    scene.kill("worker-0.1")
    scene.kill("coordinator.1")
    scene.flowing()
    until(lambda: {"worker-0.2", "coordinator.2"} <= scene.pids().keys(), 60, "both replacements")
    scene.spread(2)
    scene.flowing()
    scene.settle()


def test_a_job_that_two_threads_stop_is_taken_down_once():
    """One thread stops the job while another leaves its `with`: both see its end in the same moment."""
    from kafka_actors.base.io_thread import IoThread
    from kafka_actors.ray.control import LocalControl

    both, done = threading.Barrier(2), []

    class Supervisor:
        report = SimpleNamespace(confirmed=True, shown=lambda: done.append("told"))

        async def stop(self, timeout_s, leave):
            pass

    class Hosted:
        supervisor = Supervisor()

        async def close(self):
            done.append("closed")

    control = LocalControl(Hosted(), IoThread("test"), None, lambda: done.append("let go"))
    errors = []

    def stop():
        both.wait()
        try:
            control.stop(5, True)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=stop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(slow_s(30))
    assert (done, errors) == (["told", "closed", "let go"], [])
