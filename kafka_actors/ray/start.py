"""Start of a job: looks for a broker, connects to Ray, claims the name, and runs the supervisor in this process or in a job actor.

Ray takes seconds to start, so brokers are looked for before it (`check_cluster`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import ray
from ray.actor import ActorHandle

from kafka_actors.base.callables import unpicklable
from kafka_actors.base.io_thread import IoThread
from kafka_actors.config import JobConfig, resolved
from kafka_actors.errors import ConfigError, KafkaTimeoutError, UsageError
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.status import JobStatus
from kafka_actors.job.supervisor.supervisor import Each, log_waits
from kafka_actors.job.supervisor.telemetry import measure
from kafka_actors.net import KafkaClient
from kafka_actors.ray.actors.actor import resource_of

from .actors.job_actor import claim_name, find_detached, find_job, names_of_jobs
from .cluster import connect_to_ray, known_cluster, use_ray
from .control import LOOP_S, ActorControl, LocalControl
from .job import Job
from .job_process import JobProcess
from .running_job import DriverPage, RunningJob, name_among, page_from
from .sigterm import sigterm_exits

__all__ = ["attach_job", "check_cluster", "job_to_watch", "start_job"]

logger = logging.getLogger(__name__)


EACH_S = 0.5
GIVE_UP_S = 5.0


def start_job(job: Job, each: Each | None = None) -> RunningJob:
    """Runs the supervisor in this process, or in a job actor for a detached job; see `Job.start`. `each` gets the status twice
    a second until the job has started; by default reasons for waiting are logged."""
    plan, each = job.plan(), each or log_waits()
    _check_process(plan)
    if not job.detached and not ray.is_initialized() and known_cluster() is None:
        check_cluster(plan.config)  # its actors will run on this machine, and would find the same
    release_ray = use_ray(detached=job.detached)
    try:
        with sigterm_exits():
            job_actor = claim_name(job.name, job.detached) if job.name else None
            if job_actor is not None and job.detached:
                return _start_detached(job_actor, plan, each)
            return _start_here(plan, job_actor, release_ray, each)
    except BaseException:
        release_ray()
        raise


def _start_here(
    plan: JobPlan, job_actor: ActorHandle | None, release_ray: Callable[[], None], each: Each
) -> RunningJob:
    async def create_process() -> JobProcess:
        return JobProcess(plan)

    async def begin() -> asyncio.Task[None]:
        return asyncio.ensure_future(job_process.start())

    async def next_status() -> JobStatus | None:
        await asyncio.wait([starting], timeout=EACH_S)
        return None if starting.done() else job_process.supervisor.report.shown()

    # Also on Ctrl-C: in a Ray cluster that stays up the actors would run on, and the group's member with them.
    with ExitStack() as undo:
        if job_actor is not None:
            undo.callback(ray.kill, job_actor)
        measure(plan, resource_of(plan.config.group_id or "", plan.name or "", "supervisor"))
        thread = IoThread("kafka-actors-supervisor")
        undo.callback(thread.stop)
        job_process = thread.run(create_process())
        starting = thread.run(begin())
        undo.callback(_take_back, thread, starting)
        while (status := thread.run(next_status())) is not None:
            each(status)
        thread.run(_result_of(starting))
        if job_actor is not None:
            report = job_process.supervisor.report
            job_actor.shown_at.remote(DriverPage(report.page, report.page_node))
        undo.pop_all()
    return RunningJob(LocalControl(job_process, thread, job_actor, release_ray))


async def _result_of(starting: asyncio.Task[None]) -> None:
    await asyncio.shield(starting)


def _take_back(thread: IoThread, starting: asyncio.Task[None]) -> None:
    """Cancels a start, which ends its actors. Where the supervisor's loop stands still, as in a call of Ray that blocks, they end with this
    process's connection to Ray."""
    try:
        thread.run(_cancelled(starting), timeout=GIVE_UP_S + LOOP_S)
    except TimeoutError:
        logger.warning(
            "the supervisor did not answer within %g s: its actors end when Ray is left", GIVE_UP_S + LOOP_S
        )


async def _cancelled(starting: asyncio.Task[None]) -> None:
    starting.cancel()
    await asyncio.wait([starting], timeout=GIVE_UP_S)


def _start_detached(job_actor: ActorHandle, plan: JobPlan, each: Each) -> RunningJob:
    control = ActorControl(job_actor, plan.name)
    start = job_actor.begin.remote(plan)
    try:
        while not ray.wait([start], timeout=EACH_S)[0]:
            with suppress(KafkaTimeoutError):  # its process is not up yet
                if (status := control.call("starting", limit_s=EACH_S)) is not None:
                    each(status)
        control.result("begin", start, None)
    except BaseException:
        ray.kill(job_actor)
        raise
    return RunningJob(control, stop_at_exit=False)


def attach_job(name: str) -> RunningJob:
    """Attaches to a detached job; see `Job.attach`."""
    connect_to_ray(only_existing=True)
    return RunningJob(ActorControl(find_detached(name), name), stop_at_exit=False)


def job_to_watch(name: str | None) -> RunningJob | str:
    """Finds the job of this name in the Ray cluster, or the only one with a name.

    Returns a detached job itself; for a job that runs in its driver, the URL of its status page. Raises `UsageError` if there
    is none, or this machine can't reach the page, and as `find_job`.
    """
    connect_to_ray(only_existing=True)
    found = name_among(name, names_of_jobs())
    job_actor, page = find_job(found)
    if page is None:
        return RunningJob(ActorControl(job_actor, found), stop_at_exit=False)
    return page_from(page, found, ray.util.get_node_ip_address())


def named_jobs() -> Iterator[tuple[str, RunningJob | str | None]]:
    """Yields the jobs of the Ray cluster that have a name: a detached one itself, or the URL of the status page of one that runs in
    its driver, empty where it has none; None where its actor doesn't answer. One that ends meanwhile is left out. Raises `UsageError`
    without a Ray cluster."""
    connect_to_ray(only_existing=True)
    for name in names_of_jobs():
        try:
            job_actor, page = find_job(name)
        except UsageError:
            continue
        except KafkaTimeoutError:
            yield name, None
            continue
        if page is None:
            yield name, RunningJob(ActorControl(job_actor, name), stop_at_exit=False)
        else:
            yield name, page.url or ""


def _check_process(plan: JobPlan) -> None:
    """Checks that the user's code can be pickled for the workers: Ray's own message comes late, and is pages long."""
    what = "process" if plan.spec.unit == "batch" else "process_message"
    sinks = [("sink", getattr(sink, "target", sink)) for sink in plan.spec.outputs.sinks]
    users = (*sinks, (what, plan.spec.target), (what, plan.spec))
    for option, value in users:
        if (why := unpicklable(value, ray.cloudpickle.dumps)) is not None:
            raise ConfigError(option, f"can't be sent to the workers: {why}")


LOOK_S = 1.0
"""Time for the brokers to answer. After it the job starts nevertheless, and its actors wait for them."""


def check_cluster(config: JobConfig) -> None:
    """Connects to a broker once, from the machine where the job will run; logs why none answers yet.

    Raises errors that don't go away by waiting: `ConfigError` (also for a reference to a missing variable or file),
    `AuthenticationError`, and `NoBrokersAvailable` where each bootstrap server is an unknown host or no Kafka broker.
    """
    thread = IoThread("kafka-actors-broker-check")
    try:
        thread.run(_connected(config))
    finally:
        thread.stop()


async def _connected(config: JobConfig) -> None:
    client = KafkaClient(resolved(config))
    try:
        async with asyncio.timeout(LOOK_S):
            await client.bootstrap(timeout_ms=60_000)
    except TimeoutError:
        logger.warning("no broker answers yet: %s", client.trouble())
    finally:
        await client.close()
