"""Starting a job: which Ray, which process holds the supervisor, and the checks that need a cluster."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import time
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from kafka_actors.errors import (
    ConfigError,
    DisconnectedError,
    JobFailed,
    JobNameInUseError,
    KafkaActorsError,
    UsageError,
)

from .job import Job, LoopThread, RunningJob
from .plan import JobPlan
from .ray_runtime import RayRuntime
from .shell import ActorShell, set_up_logging
from .status import JobStatus
from .supervisor import Supervisor

__all__ = ["attach_job", "start_job"]

logger = logging.getLogger(__name__)

NAMESPACE = "kafka_actors"
NAME_PATIENCE_S = 8.0
GIVE_UP_S = 5.0
STORE_SHARE = 0.5


def start_job(job: Job) -> RunningJob:
    """Runs the supervisor in this process, or in a job actor for a detached job."""
    ours = _connect_to_ray()
    plan = job.plan()
    try:
        _check_process(plan)
        _check_store(plan)
        holder = _claim_name(job) if job.name else None
        if holder is not None and job.detached:
            return _start_detached(holder, plan)
        return _start_here(plan, holder, ours)
    except BaseException:
        if ours:
            ray.shutdown()
        raise


def _start_here(plan: JobPlan, holder: ActorHandle | None, ours: bool) -> RunningJob:
    thread = LoopThread("kafka-actors-supervisor")

    async def made() -> Supervisor:
        return Supervisor(plan, RayRuntime(plan.resources))

    async def launched() -> asyncio.Task[None]:
        return asyncio.ensure_future(supervisor.start())

    supervisor = thread.run(made())
    starting = thread.run(launched())
    try:
        thread.run(_result_of(starting))
    except BaseException:
        # On Ctrl-C too: in a Ray cluster that goes on, the actors would go on, and with them the group's member.
        thread.run(_given_up(starting))
        thread.close()
        if holder is not None:
            ray.kill(holder)
        raise
    return RunningJob(LocalControl(supervisor, thread, holder, ours))


async def _result_of(starting: asyncio.Task[None]) -> None:
    await asyncio.shield(starting)


async def _given_up(starting: asyncio.Task[None]) -> None:
    starting.cancel()
    await asyncio.wait([starting], timeout=GIVE_UP_S)


def _start_detached(holder: ActorHandle, plan: JobPlan) -> RunningJob:
    control = ActorControl(holder)
    try:
        control.call("begin", plan)
    except BaseException:
        ray.kill(holder)
        raise
    return RunningJob(control, stop_at_exit=False)


def attach_job(name: str) -> RunningJob:
    """See `Job.attach`."""
    _connect_to_ray(only_existing=True)
    try:
        holder = ray.get_actor(_actor_name(name), namespace=NAMESPACE)
        found = bool(ray.get(holder.is_detached.remote()))
    except (ValueError, RayActorError):
        found = False
    if not found:
        raise UsageError(f"no detached job named {name!r} runs in this Ray cluster")
    return RunningJob(ActorControl(holder), stop_at_exit=False)


# ---------------------------------------------------------------- Ray


def _connect_to_ray(only_existing: bool = False) -> bool:
    """Joins the Ray cluster there is, or starts a local one. Returns whether it was started here."""
    if ray.is_initialized():
        return False
    address = os.environ.get("RAY_ADDRESS") or "auto"
    try:
        ray.init(address=address, log_to_driver=True)
        return False
    except ConnectionError:
        if only_existing or "RAY_ADDRESS" in os.environ:
            raise UsageError(
                f"no Ray cluster answers at {address!r}; start one, or unset RAY_ADDRESS"
            ) from None
    ray.init(address="local", include_dashboard=False, log_to_driver=True)
    return True


def _check_process(plan: JobPlan) -> None:
    """Workers get the user's code by pickle; Ray says of what doesn't travel pages, and after a while."""
    try:
        ray.cloudpickle.dumps(plan.spec)
    except Exception as error:
        what = "process" if plan.spec.unit == "batch" else "process_message"
        said = str(error).partition("\n")[0]
        raise ConfigError(what, f"can't be sent to the workers: {said}") from error


def _check_store(plan: JobPlan) -> None:
    """All that workers may have fetched at once must stay under half of the object store: past its size Ray
    spills to disk without any back-pressure."""
    store = ray.cluster_resources().get("object_store_memory", 0)
    wanted = plan.workers * plan.config.worker_buffer_bytes
    if store and wanted > store * STORE_SHARE:
        raise ConfigError(
            "worker_buffer_bytes",
            f"is {plan.config.worker_buffer_bytes}: {plan.workers} workers may then hold {wanted} bytes, more than "
            f"half of the object store ({store:.0f}); lower it, or give Ray a larger object_store_memory",
        )


def _actor_name(name: str) -> str:
    return f"kafka-actors/{name}"


def _claim_name(job: Job) -> ActorHandle:
    """One job of a name in a Ray cluster: its job actor holds the name. A killed driver's is waited out."""
    assert job.name is not None
    deadline = time.monotonic() + NAME_PATIENCE_S
    options: dict[str, Any] = {"lifetime": "detached"} if job.detached else {}
    while True:
        try:
            return (
                ray.remote(JobActor)
                .options(
                    name=_actor_name(job.name),
                    namespace=NAMESPACE,
                    num_cpus=0,
                    max_restarts=0,
                    max_task_retries=0,
                    max_concurrency=100,
                    **options,
                )
                .remote(job.detached)
            )
        except ValueError:
            if _let_go(job.name):
                continue
            if time.monotonic() > deadline:
                raise JobNameInUseError(job.name) from None
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


class JobActor(ActorShell):
    """Holds a job's name in the cluster; of a detached job it holds the supervisor too."""

    def __init__(self, detached: bool) -> None:
        self._detached = detached
        self._supervisor: Supervisor | None = None

    def is_detached(self) -> bool:
        return self._detached

    def has_ended(self) -> bool:
        return self._supervisor is not None and self._supervisor.has_ended

    async def begin(self, plan: JobPlan) -> None:
        set_up_logging(plan.log_level)
        self._supervisor = Supervisor(plan, RayRuntime(plan.resources))
        await self._supervisor.start()

    @property
    def _job(self) -> Supervisor:
        if self._supervisor is None:
            raise UsageError("the job has not begun")
        return self._supervisor

    async def status(self) -> JobStatus:
        return await self._job.status()

    async def scale(self, workers: int) -> None:
        await self._job.scale(workers)

    async def pause(self, paused: bool) -> None:
        await self._job.pause(paused)

    async def wait(self, timeout_s: float | None) -> bool:
        return await _ended_within(self._job, timeout_s)

    async def stop(self, timeout_s: float, leave: bool) -> None:
        await self._job.stop(timeout_s, leave)


async def _ended_within(supervisor: Supervisor, limit_s: float | None) -> bool:
    if supervisor.has_ended:
        return supervisor.result()
    try:
        await asyncio.wait_for(supervisor.wait(), limit_s)
    except TimeoutError:
        return False
    return True


# ---------------------------------------------------------------- controls


class LocalControl:
    """A supervisor on a thread of this process."""

    def __init__(
        self, supervisor: Supervisor, thread: LoopThread, holder: ActorHandle | None, ours: bool
    ) -> None:
        self._supervisor = supervisor
        self._thread = thread
        self._holder = holder
        self._ours = ours
        self._last: JobStatus | None = None
        self._stopped = False

    def status(self) -> JobStatus:
        if not self._stopped:
            self._last = self._thread.run(self._supervisor.status())
        assert self._last is not None
        return self._last

    def scale(self, workers: int) -> None:
        self._running(self._supervisor.scale(workers))

    def pause(self, paused: bool) -> None:
        self._running(self._supervisor.pause(paused))

    def _running(self, work: Any) -> None:
        if self._stopped:
            work.close()
            raise UsageError("the job has ended")
        self._thread.run(work)

    def wait(self, timeout_s: float | None) -> bool:
        if self._stopped:
            return self._supervisor.result()
        return self._thread.run(_ended_within(self._supervisor, timeout_s))

    def stop(self, timeout_s: float, leave: bool) -> None:
        if self._stopped:
            return
        try:
            self._thread.run(self._supervisor.stop(timeout_s, leave), timeout_s + 1)
        except concurrent.futures.TimeoutError:
            logger.warning("the job did not stop within %.1f s; its actors are ended", timeout_s)
        self._last = self._thread.run(self._supervisor.status(), 5)
        self._stopped = True
        self._thread.close()
        if self._holder is not None:
            ray.kill(self._holder)
        if self._ours:
            ray.shutdown()

    def detach(self) -> None:
        raise UsageError("only a detached job goes on without its driver")

    def __repr__(self) -> str:
        return repr(self._supervisor)


class ActorControl:
    """A supervisor in a job actor."""

    def __init__(self, holder: ActorHandle) -> None:
        self._holder = holder

    def call(self, method: str, *args: Any) -> Any:
        try:
            return ray.get(getattr(self._holder, method).remote(*args))
        except RayTaskError as error:
            if isinstance(error.cause, KafkaActorsError):
                raise error.cause from error.cause.__cause__
            raise
        except RayActorError:
            raise DisconnectedError("the job actor is gone") from None

    def status(self) -> JobStatus:
        status: JobStatus = self.call("status")
        return status

    def scale(self, workers: int) -> None:
        self.call("scale", workers)

    def pause(self, paused: bool) -> None:
        self.call("pause", paused)

    def wait(self, timeout_s: float | None) -> bool:
        ended: bool = self.call("wait", timeout_s)
        return ended

    def stop(self, timeout_s: float, leave: bool) -> None:
        try:
            self.call("stop", timeout_s, leave)
        except JobFailed:
            pass
        except DisconnectedError:
            return  # it has ended already
        ray.kill(self._holder)

    def detach(self) -> None:
        """Leaves the job running."""

    def __repr__(self) -> str:
        return "detached"
