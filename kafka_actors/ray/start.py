"""Starting a job: the checks that need a cluster, and which process holds the supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import ray
from ray.actor import ActorHandle

from kafka_actors.base.callables import unpicklable
from kafka_actors.base.io_thread import IoThread
from kafka_actors.errors import ConfigError, KafkaTimeoutError
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.status import JobStatus
from kafka_actors.job.supervisor.start_progress import Each, log_waits
from kafka_actors.job.supervisor.telemetry import measure
from kafka_actors.ray.actors.actor import resource_of

from .actors.job_actor import claim_name, find_detached, find_job, names_of_jobs
from .broker_check import check_cluster
from .cluster import connect_to_ray, known_cluster, use_ray
from .control import ActorControl, LocalControl
from .job import Job, RunningJob
from .job_lookup import DriverPage, name_among, page_from
from .job_process import JobProcess
from .sigterm import sigterm_exits

__all__ = ["attach_job", "job_to_watch", "start_job"]

EACH_S = 0.5
GIVE_UP_S = 5.0


def start_job(job: Job, each: Each | None = None) -> RunningJob:
    """Runs the supervisor in this process, or in a job actor for a detached job. `each` gets the status twice a second
    until the job has started; by default what is waited for is logged."""
    plan, each = job.plan(), each or log_waits()
    _check_process(plan)
    if not ray.is_initialized() and known_cluster() is None:
        check_cluster(
            plan.config
        )  # the job will run on this machine: what this process finds, its actors would find
    let_go = use_ray()
    try:
        with sigterm_exits():
            holder = claim_name(job.name, job.detached) if job.name else None
            if holder is not None and job.detached:
                return _start_detached(holder, plan, each)
            return _start_here(plan, holder, let_go, each)
    except BaseException:
        let_go()
        raise


def _start_here(
    plan: JobPlan, holder: ActorHandle | None, let_go: Callable[[], None], each: Each
) -> RunningJob:
    measure(plan, resource_of(plan.config.group_id or "", plan.name or "", "supervisor"))
    thread = IoThread("kafka-actors-supervisor")

    async def made() -> JobProcess:
        return JobProcess(plan)

    async def launched() -> asyncio.Task[None]:
        return asyncio.ensure_future(hosted.start())

    hosted = thread.run(made())
    starting = thread.run(launched())

    async def looked_at() -> JobStatus | None:
        await asyncio.wait([starting], timeout=EACH_S)
        return None if starting.done() else hosted.supervisor.report.shown()

    try:
        while (status := thread.run(looked_at())) is not None:
            each(status)
        thread.run(_result_of(starting))
    except BaseException:
        # On Ctrl-C too: in a Ray cluster that goes on, the actors would go on, and with them the group's member.
        thread.run(_given_up(starting))
        thread.stop()
        if holder is not None:
            ray.kill(holder)
        raise
    if holder is not None:
        report = hosted.supervisor.report
        holder.shown_at.remote(DriverPage(report.page, report.page_node))
    return RunningJob(LocalControl(hosted, thread, holder, let_go))


async def _result_of(starting: asyncio.Task[None]) -> None:
    await asyncio.shield(starting)


async def _given_up(starting: asyncio.Task[None]) -> None:
    starting.cancel()
    await asyncio.wait([starting], timeout=GIVE_UP_S)


def _start_detached(holder: ActorHandle, plan: JobPlan, each: Each) -> RunningJob:
    control = ActorControl(holder)
    beginning = holder.begin.remote(plan)
    try:
        while not ray.wait([beginning], timeout=EACH_S)[0]:
            with suppress(KafkaTimeoutError):  # its process comes up
                if (status := control.call("starting", limit_s=EACH_S)) is not None:
                    each(status)
        control.result("begin", beginning, None)
    except BaseException:
        ray.kill(holder)
        raise
    return RunningJob(control, stop_at_exit=False)


def attach_job(name: str) -> RunningJob:
    """See `Job.attach`."""
    connect_to_ray(only_existing=True)
    return RunningJob(ActorControl(find_detached(name)), stop_at_exit=False)


def job_to_watch(name: str | None) -> RunningJob | str:
    """The job of this name in the Ray cluster there is, or the only one that has any: a detached one itself, of one
    that runs in its driver the URL of its status page. Raises `UsageError` where that isn't one, or can't be seen from
    here."""
    connect_to_ray(only_existing=True)
    found = name_among(name, names_of_jobs())
    holder, page = find_job(found)
    if page is None:
        return RunningJob(ActorControl(holder), stop_at_exit=False)
    return page_from(page, found, ray.util.get_node_ip_address())


def _check_process(plan: JobPlan) -> None:
    """Workers get the user's code by pickle; Ray says of what doesn't travel pages, and after a while."""
    what = "process" if plan.spec.unit == "batch" else "process_message"
    sink = plan.spec.outputs.sink
    users = (("sink", getattr(sink, "target", sink)), (what, plan.spec.target), (what, plan.spec))
    for option, given in users:
        if (why := unpicklable(given, ray.cloudpickle.dumps)) is not None:
            raise ConfigError(option, f"can't be sent to the workers: {why}")
