"""Job actor: holds a job's name in the Ray cluster, and the supervisor of a detached job. Claims and finds names."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError

from kafka_actors.errors import JobNameInUseError, KafkaTimeoutError, UsageError
from kafka_actors.job.autoscale import Autoscale
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.status import JobStatus
from kafka_actors.job.supervisor.supervisor import STOP_S, Supervisor
from kafka_actors.job.supervisor.telemetry import measure
from kafka_actors.ray.job_process import JobProcess
from kafka_actors.ray.running_job import DriverPage
from kafka_actors.ray.runtime import on_node

from .actor import ActorShell, resource_of, set_up_process

__all__ = ["JobActor", "claim_name", "find_detached", "find_job", "names_of_jobs"]

NAMESPACE = "kafka_actors"
HEAD_NODE = "node:__internal_head__"
"""A resource that only Ray's head node has."""
PREFIX = "kafka-actors/"
NAME_TIMEOUT_S = 8.0
ANSWER_S = 10.0
UNBEGUN_S = 30.0
"""A driver has its job begin as soon as the job actor is up. After this time it is gone, and nobody else would."""


class JobActor(ActorShell):
    """Holds a job's name in the Ray cluster, and runs the supervisor of a detached job."""

    def __init__(self, detached: bool) -> None:
        self._detached = detached
        self._made_at = time.monotonic()
        self._supervisor: Supervisor | None = None
        self._page = DriverPage()

    def shown_at(self, page: DriverPage) -> None:
        """Takes where the status page of a job in its driver is, once the job has started."""
        self._page = page

    def drivers_page(self) -> DriverPage | None:
        """Returns the status page of a job in its driver; None for a detached one, which this actor controls."""
        return None if self._detached else self._page

    def has_ended(self) -> bool:
        """Whether a detached job is over. One that its driver left behind before it began is, too."""
        if self._supervisor is None:
            return self._detached and time.monotonic() - self._made_at > UNBEGUN_S
        return self._supervisor.has_ended

    async def begin(self, plan: JobPlan) -> None:
        measure(plan, resource_of(plan.config.group_id or "", plan.name or "", "supervisor"))
        set_up_process(plan.setup("job"))
        job_process = JobProcess(plan)
        self._supervisor = job_process.supervisor
        await job_process.start()

    async def starting(self) -> JobStatus | None:
        """Returns the status as far as it is known without a question to the coordinator; None before `begin`."""
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

    def time_to_stop(self) -> float:
        """Returns the timeout of a stop for which none is given, in seconds."""
        return STOP_S if self._supervisor is None else self._supervisor.time_to_stop

    async def stop(self, timeout_s: float, leave: bool) -> bool:
        """Stops the job; one that has not begun has read nothing. Returns whether all commits are confirmed."""
        return self._supervisor is None or await self._supervisor.stop(timeout_s, leave)


def claim_name(name: str, detached: bool) -> ActorHandle:
    """Creates the job actor that holds this name, of which a Ray cluster has one at a time.

    Waits for up to `NAME_TIMEOUT_S` for the end of a killed driver's job actor. Raises `JobNameInUseError`. The actor runs on a
    node whose loss ends the job anyway: the driver's, or, detached, the head node.
    """
    deadline = time.monotonic() + NAME_TIMEOUT_S
    options: dict[str, Any] = {"scheduling_strategy": on_node(ray.get_runtime_context().get_node_id())}
    if detached:
        options = {"lifetime": "detached", "resources": {HEAD_NODE: 0.001}}
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
            if _release_name(name):
                continue
            if time.monotonic() > deadline:
                raise JobNameInUseError(name) from None
            time.sleep(0.25)


def _release_name(name: str) -> bool:
    """Frees the name of a detached job that has ended: it keeps the name, for queries, until the next job claims it."""
    try:
        job_actor = ray.get_actor(_actor_name(name), namespace=NAMESPACE)
        ended = bool(ray.get(job_actor.has_ended.remote(), timeout=1.0))
    except (ValueError, RayActorError, GetTimeoutError):
        return False
    if ended:
        ray.kill(job_actor)
    return ended


def find_job(name: str) -> tuple[ActorHandle, DriverPage | None]:
    """Returns the actor that holds the name, and the page of a job that isn't detached. Raises `UsageError` if there is none,
    `KafkaTimeoutError` where it doesn't answer."""
    try:
        job_actor = ray.get_actor(_actor_name(name), namespace=NAMESPACE)
        return job_actor, ray.get(job_actor.drivers_page.remote(), timeout=ANSWER_S)
    except (ActorUnavailableError, GetTimeoutError):
        raise KafkaTimeoutError(
            f"the job actor that holds the name {name!r} is there, and does not answer within {ANSWER_S:g} s"
        ) from None
    except (ValueError, RayActorError):
        raise UsageError(f"no job named {name!r} runs in this Ray cluster") from None


def find_detached(name: str) -> ActorHandle:
    """Returns the job actor of a detached job. Raises `UsageError` if there is none of this name, and as `find_job`."""
    job_actor, page = find_job(name)
    if page is not None:
        raise UsageError(f"the job named {name!r} runs in its driver: only a detached one can be attached to")
    return job_actor


def names_of_jobs() -> list[str]:
    """Lists the names of jobs in this Ray cluster, also of ended ones that keep their name."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    named = [actor["name"] for actor in actors if actor["namespace"] == NAMESPACE]
    return sorted(n.removeprefix(PREFIX) for n in named if n.startswith(PREFIX))


def _actor_name(name: str) -> str:
    return PREFIX + name
