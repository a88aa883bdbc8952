"""`Supervisor`: the life of a job from its start to its end, and the requests of its user.

It runs on one event loop, in the driver or, for a detached job, in the job actor. `ActorManager` starts and replaces actors,
`Rescaling` changes the number of workers, `Announcements` sends actors each other's handles, and `JobReport` has the status.
`StartProgress` says, in words, why a job has not started yet: brokers, topics, room in the Ray cluster, the user's constructor.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from kafka_actors.errors import JobFailed, KafkaActorsError
from kafka_actors.job.autoscale import Autoscale
from kafka_actors.job.messages import JobFailure, unpack
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.status import PROBLEMS, JobStatus

from .actor_manager import CLOSE_S, UNCLOSED, ActorManager
from .announcements import Announcements
from .context import SupervisorContext
from .machines.supervision import ActorKey
from .runtime import (
    COORDINATOR,
    METADATA,
    RunningActor,
    Runtime,
    actor_name,
    bounded,
    none_if_disconnected,
    retry_while,
)
from .worker_scaling import Rescaling

__all__ = ["STOP_S", "Each", "StartProgress", "Supervisor", "log_waits"]

logger = logging.getLogger(__name__)


Each = Callable[[JobStatus], None]
"""Callback that gets the status of a starting job twice a second."""

LOOK_S = 0.5
PLACED_S = 2.0
"""A worker without a place counts as waiting after this time: a process takes a second or two to come up."""
LOG_S = 10.0
PROBLEM_S = 2.0
"""A broker or topic that isn't there is told of after this time: that is no matter of a slow start."""


class StartProgress:
    """Looks for what keeps one job from having started."""

    def __init__(self, job: SupervisorContext) -> None:
        self._job = job
        self._began = job.clock()

    async def follow(self) -> None:
        """Updates `report.waits_for` twice a second until the job has started."""
        job = self._job
        while not job.started.done():
            job.report.waits_for = await self._reasons()
            await asyncio.sleep(LOOK_S)

    async def _reasons(self) -> list[str]:
        roster = self._job.running
        reasons = await self._cluster(roster.get(METADATA))
        workers = [ActorKey("worker", number) for number in range(self._job.scaling.workers)]
        unplaced = [key for key in workers if (running := roster.get(key)) is None or running.info is None]
        if unplaced and self._job.plan.resources and self._job.clock() - self._began > PLACED_S:
            why = await asyncio.to_thread(self._job.runtime.why_not_placed, unplaced[0])
            reasons.append(f"a place for {_some([str(key) for key in unplaced])}: {why}")
        if reasons:
            return reasons
        if making := [str(key) for key in workers if key not in unplaced and not roster[key].begun]:
            return [f"{self._what_is_made()} in {_some(making)}"]
        if unplaced:
            return [f"processes for {_some([str(key) for key in unplaced])}"]
        return ["the coordinator"]

    async def _cluster(self, metadata: RunningActor | None) -> list[str]:
        if metadata is None or metadata.info is None or self._job.job_start is not None:
            return []
        problem = await none_if_disconnected(metadata.ref.call("waits_for"))
        return [problem] if problem else []

    def _what_is_made(self) -> str:
        spec = self._job.plan.spec
        return f"the constructor of {spec.target.__name__}" if spec.is_class else "the process"


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def log_waits(clock: Callable[[], float] = time.monotonic) -> Each:
    """Makes the callback of a program without a display: logs a warning about what has been missing for `LOG_S` seconds, of the Kafka cluster
    for `PROBLEM_S`."""
    began, logged = clock(), ""

    def each(status: JobStatus) -> None:
        nonlocal logged
        now = "; ".join(status.waits_for)
        if now and now != logged and clock() - began >= (PROBLEM_S if now.startswith(PROBLEMS) else LOG_S):
            logged = now
            logger.warning("the job of group %s has not started yet: it waits for %s", status.group_id, now)

    return each


STOP_S = 30.0
"""The shortest timeout of a stop for which none is given."""
VERDICT_S = 1.0
AGAIN_S = 0.2
ANSWER_S = 0.5


class Supervisor:
    """One job. `start` returns when it works, `wait` when it has ended. `report` has its state, status and timeline."""

    def __init__(self, plan: JobPlan, runtime: Runtime, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan = plan
        self._clock = clock
        self._job = SupervisorContext(plan, runtime, clock, self._fail)
        self.report = self._job.report
        self._announcements = Announcements(self._job)
        self._actors = ActorManager(self._job, self._announcements)
        self._rescaling = Rescaling(self._job, self._announcements, self._actors)
        self._ended: asyncio.Future[None] = asyncio.get_event_loop().create_future()
        self._stopping: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ its start

    async def start(self) -> None:
        """Starts all actors. Raises what keeps the job from starting, after ending them again."""
        tasks = self._job.tasks
        self._actors.want()
        tasks.create_task(self._actors.run())
        tasks.create_task(StartProgress(self._job).follow())
        try:
            await asyncio.shield(self._job.started)
        except BaseException as error:
            await self._leave()
            await self._actors.quit_all()
            self._end(error if isinstance(error, JobFailed) else JobFailed(error))
            raise
        self.report.become("running")
        self._job.telemetry.begin(self.status)
        tasks.create_task(self._watch_verdict())
        tasks.create_task(self._rescaling.run())

    async def _leave(self) -> None:
        """Leaves the group: else a job that can't start would stay a member until its session ends."""
        if (coordinator := self._job.running.begun(COORDINATOR)) is not None:
            await bounded(
                coordinator.ref.call("stop", True),
                CLOSE_S,
                "leaving the group",
                "its partitions wait for the session to end (session_timeout_ms)",
            )

    # ------------------------------------------------------------ what becomes of it

    async def _watch_verdict(self) -> None:
        """Follows the coordinator: ends the job when a bounded run is finished, or a function or the member has failed."""
        while self._stopping is None:
            status = await self.report.verdict(VERDICT_S)
            if status is not None:
                failed = [w.failed for w in status.workers.values() if w.failed is not None]
                for failure in [f for f in [status.fatal, *failed] if f is not None]:
                    self._fail(unpacked_failure(failure))
                    return
                self._job.deaths.forget(status.passed)
                self._rescaling.drop_retired(status.retired)
                if status.finished and self._stopping is None:
                    self._stopping = self._ending(self._time_to_end, True)
            if status is None or status.retired:  # a retired worker is listed until it was dropped
                await asyncio.sleep(AGAIN_S)

    def _fail(self, error: BaseException) -> None:
        """Ends the job with the error. Before it has started, `start` raises the error as it is."""
        if not self._job.started.done():
            self._job.started.set_exception(error)
        elif self._stopping is None and self._job.started.exception() is None:
            failure = error if isinstance(error, JobFailed) else JobFailed(error)
            self._stopping = self._ending(self._time_to_end, True, failure)

    async def wait(self) -> None:
        """Returns when the job has ended. Raises `JobFailed` if it failed."""
        await asyncio.shield(self._ended)

    async def ended_within(self, limit_s: float | None) -> bool:
        """Waits for up to `limit_s` seconds. Returns whether the job has ended; raises `JobFailed` if it failed."""
        if not self.has_ended:
            try:
                async with asyncio.timeout(limit_s):
                    await self.wait()
            except TimeoutError:
                return False
        return self.result()

    @property
    def has_ended(self) -> bool:
        """Whether the job is over, however it ended."""
        return self._ended.done()

    def result(self) -> bool:
        """Returns whether the job has ended, without waiting. Raises `JobFailed` if it failed."""
        if not self._ended.done():
            return False
        self._ended.result()
        return True

    # ------------------------------------------------------------ its end

    async def stop(self, timeout_s: float, leave: bool = True) -> bool:
        """Drains, commits, leaves the group and ends all actors within the timeout. Returns whether the brokers have confirmed
        the commits of all processed records."""
        if self._stopping is None:
            self._stopping = self._ending(timeout_s, leave)
        await asyncio.shield(self._stopping)
        return self.report.confirmed

    @property
    def time_to_stop(self) -> float:
        """The timeout of a stop for which none is given, in seconds. For any thread."""
        return max(STOP_S, self._time_to_end)

    @property
    def _time_to_end(self) -> float:
        """The timeout for a job that ends by itself, in seconds."""
        return self.plan.config.drain_timeout_ms / 1000 + 3 * CLOSE_S

    def _ending(
        self, timeout_s: float, leave: bool, failure: BaseException | None = None
    ) -> asyncio.Task[None]:
        self._job.stopping = True
        return asyncio.ensure_future(self._stop(timeout_s, leave, failure))

    async def _stop(self, timeout_s: float, leave: bool, failure: BaseException | None) -> None:
        """Gives each part what is left of the time; whatever has not stopped by then is killed."""
        self.report.become("stopping")
        actors, deadline = self._job.running, self._clock() + timeout_s

        def left(at_most: float) -> float:
            return max(0.1, min(at_most, deadline - self._clock()))

        def called(running: RunningActor, *what: Any) -> Awaitable[Any]:
            return retry_while(partial(running.ref.call, *what), lambda: running in actors.values())

        try:
            stopped = None
            if (coordinator := actors.begun(COORDINATOR)) is not None:
                stopped = await bounded(
                    called(coordinator, "stop", leave),
                    left(timeout_s - CLOSE_S),
                    "stop of the coordinator, which waits for calls in hand and commits their offsets,",
                    "what it has not committed is read again at the next start; stop(timeout=…) waits longer",
                )
                self.report.final = await bounded(
                    self.status(),
                    left(CLOSE_S if stopped else ANSWER_S),
                    "the last status of the coordinator",
                    "status() shows what was known before",
                )
            self.report.unheard = stopped is None or self.report.final is None
            workers = {key: r for key, r in actors.of_kind("worker").items() if r.begun}
            await asyncio.gather(
                *(
                    bounded(
                        called(w, "close"),
                        left(CLOSE_S),
                        f"close of {actor_name(key, w.incarnation)}",
                        UNCLOSED,
                    )
                    for key, w in workers.items()
                )
            )
            await bounded(
                self._actors.last_counts(),
                left(ANSWER_S),
                "the last question for counts",
                "metrics lack the last second",
            )
        finally:
            self._job.telemetry.end()
            await self._actors.quit_all()
            await bounded(
                self._job.scaling.release_resources(),
                left(CLOSE_S),
                "the end of the request for resources",
                "Ray may keep nodes for it until this cluster ends",
            )
            self._end(failure)

    def _end(self, failure: BaseException | None) -> None:
        """Notes that the job is over, also one that could not start: whoever holds its name, or waits for it, has to know."""
        self.report.become("failed" if failure else "stopped", failure)
        if not self._ended.done():
            if failure is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(failure)
                self._ended.exception()  # marks it as retrieved: nobody has to wait

    # ------------------------------------------------------------ what a user asks

    async def scale(self, workers: int | Autoscale) -> None:
        """Sets the number of workers, or the policy that decides it. Only the partitions that must move do."""
        await self._rescaling.scale(workers)

    async def pause(self, paused: bool) -> None:
        """Pauses or resumes calls of the user's function; the job stays in the group and keeps its partitions."""
        self.report.pause(paused)
        await self._announcements.send_plan()

    async def status(self) -> JobStatus:
        """Returns the job's status now; once it has ended, the status at its end."""
        return await self.report.status()

    def __repr__(self) -> str:
        machine = self._job.machine
        return f"<Supervisor of {self.plan.config.group_id} {self.report.state} {machine!r}>"


def unpacked_failure(data: bytes) -> BaseException:
    failure = unpack(data, JobFailure)
    try:
        error: BaseException = pickle.loads(failure.pickled)
    except Exception:
        return KafkaActorsError(failure.text)
    return error
