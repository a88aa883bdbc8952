"""The job actor: holds a job's name in the Ray cluster; of a detached job it holds the supervisor too."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayActorError

from kafka_actors.errors import JobNameInUseError, UsageError
from kafka_actors.job.autoscale import Autoscale
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.status import JobStatus
from kafka_actors.job.supervisor.supervisor import Supervisor
from kafka_actors.job.supervisor.telemetry import measure
from kafka_actors.ray.job_lookup import DriverPage
from kafka_actors.ray.job_process import JobProcess
from kafka_actors.ray.runtime import on_node

from .actor import ActorShell, resource_of, set_up_process

__all__ = ["JobActor", "claim_name", "find_detached", "find_job", "names_of_jobs"]

NAMESPACE = "kafka_actors"
HEAD = "node:__internal_head__"
"""A resource that Ray gives to its head node."""
PREFIX = "kafka-actors/"
NAME_PATIENCE_S = 8.0
ANSWER_S = 10.0


class JobActor(ActorShell):
    """Holds a job's name in the cluster; of a detached job it holds the supervisor too."""

    def __init__(self, detached: bool) -> None:
        self._detached = detached
        self._supervisor: Supervisor | None = None
        self._page = DriverPage()

    def shown_at(self, page: DriverPage) -> None:
        """The job has started, in the driver that says so."""
        self._page = page

    def drivers_page(self) -> DriverPage | None:
        """None for a detached job, which is asked itself."""
        return None if self._detached else self._page

    def has_ended(self) -> bool:
        return self._supervisor is not None and self._supervisor.has_ended

    async def begin(self, plan: JobPlan) -> None:
        measure(plan, resource_of(plan.config.group_id or "", plan.name or "", "supervisor"))
        set_up_process(plan.setup("job"))
        hosted = JobProcess(plan)
        self._supervisor = hosted.supervisor
        await hosted.start()

    async def starting(self) -> JobStatus | None:
        """The job as far as it is known without asking anybody; None before `begin`."""
        return None if self._supervisor is None else self._supervisor.report.shown()

    @property
    def _job(self) -> Supervisor:
        if self._supervisor is None:
            raise UsageError("the job has not begun")
        return self._supervisor

    async def status(self) -> JobStatus:
        return await self._job.status()

    async def scale(self, workers: int | Autoscale) -> None:
        await self._job.scale(workers)

    async def pause(self, paused: bool) -> None:
        await self._job.pause(paused)

    async def wait(self, timeout_s: float | None) -> bool:
        return await self._job.ended_within(timeout_s)

    async def stop(self, timeout_s: float, leave: bool) -> bool:
        return await self._job.stop(timeout_s, leave)


def claim_name(name: str, detached: bool) -> ActorHandle:
    """One job of a name in a Ray cluster: its job actor holds the name. A killed driver's is waited out.

    It stands where no node but one whose loss ends the job anyway can end it: beside the driver, or, detached, on the head,
    without which there is no Ray cluster.
    """
    deadline = time.monotonic() + NAME_PATIENCE_S
    options: dict[str, Any] = {"scheduling_strategy": on_node(ray.get_runtime_context().get_node_id())}
    if detached:
        options = {"lifetime": "detached", "resources": {HEAD: 0.001}}
    while True:
        try:
            return (
                ray.remote(JobActor)
                .options(
                    name=_actor_name(name),
                    namespace=NAMESPACE,
                    num_cpus=0,
                    max_restarts=0,
                    max_task_retries=0,
                    max_concurrency=100,
                    **options,
                )
                .remote(detached)
            )
        except ValueError:
            if _let_go(name):
                continue
            if time.monotonic() > deadline:
                raise JobNameInUseError(name) from None
            time.sleep(0.25)


def _let_go(name: str) -> bool:
    """A detached job that has ended keeps its name, to be asked how it ended, until the next job of the name."""
    try:
        holder = ray.get_actor(_actor_name(name), namespace=NAMESPACE)
        ended = bool(ray.get(holder.has_ended.remote(), timeout=1.0))
    except (ValueError, RayActorError, GetTimeoutError):
        return False
    if ended:
        ray.kill(holder)
    return ended


def find_job(name: str) -> tuple[ActorHandle, DriverPage | None]:
    """The actor that holds the name, and the page of a job that isn't detached. Raises `UsageError` if there is none."""
    try:
        holder = ray.get_actor(_actor_name(name), namespace=NAMESPACE)
        return holder, ray.get(holder.drivers_page.remote(), timeout=ANSWER_S)
    except (ValueError, RayActorError, GetTimeoutError):
        raise UsageError(f"no job named {name!r} runs in this Ray cluster") from None


def find_detached(name: str) -> ActorHandle:
    """The job actor of a detached job. Raises `UsageError` if there is none of this name."""
    holder, page = find_job(name)
    if page is not None:
        raise UsageError(f"the job named {name!r} runs in its driver: only a detached one can be attached to")
    return holder


def names_of_jobs() -> list[str]:
    """Of the jobs that have one in this Ray cluster, those included that have ended and keep their name."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    named = [actor["name"] for actor in actors if actor["namespace"] == NAMESPACE]
    return sorted(n.removeprefix(PREFIX) for n in named if n.startswith(PREFIX))


def _actor_name(name: str) -> str:
    return PREFIX + name
