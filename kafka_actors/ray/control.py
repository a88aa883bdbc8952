"""Control of a supervisor by a `RunningJob`: on a thread of this process, or in a job actor."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayTaskError

from kafka_actors.base.io_thread import IoThread
from kafka_actors.errors import DisconnectedError, JobFailed, KafkaActorsError, KafkaTimeoutError, UsageError
from kafka_actors.job.autoscale import Autoscale
from kafka_actors.job.status import JobStatus
from kafka_actors.job.supervisor.supervisor import STOP_S

from .job_process import JobProcess
from .links import noted_once

__all__ = ["ActorControl", "LocalControl"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

CONTROL_S = 10.0
CLOSE_S = 10.0
LOOP_S = 5.0
"""Time after which a supervisor's loop that runs nothing counts as standing still."""
UNREACHABLE_S = 0.5
"""Pause before a job actor that can't be reached is called again."""


class LocalControl:
    """Controls a supervisor on a thread of this process. `job_actor` holds the job's name, if it has one."""

    def __init__(
        self,
        job_process: JobProcess,
        thread: IoThread,
        job_actor: ActorHandle | None,
        release_ray: Callable[[], None],
    ) -> None:
        self._job_process = job_process
        self._supervisor = job_process.supervisor
        self._thread = thread
        self._job_actor = job_actor
        self._release_ray = release_ray
        self._last: JobStatus | None = None
        self._stopped = False
        self._ending = threading.RLock()

    def status(self) -> JobStatus:
        return self._run(self._supervisor.status(), self._last_status)

    def _last_status(self) -> JobStatus:
        assert self._last is not None  # set when the job was stopped
        return self._last

    def scale(self, workers: int | Autoscale) -> None:
        self._running(self._supervisor.scale(workers))

    def pause(self, paused: bool) -> None:
        self._running(self._supervisor.pause(paused))

    def _running(self, work: Coroutine[Any, Any, None]) -> None:
        self._run(work, _refuse)

    def wait(self, timeout_s: float | None) -> bool:
        return self._run(self._supervisor.ended_within(timeout_s), self._supervisor.result)

    def _run(self, work: Coroutine[Any, Any, T], ended: Callable[[], T]) -> T:
        """Runs a coroutine in the supervisor's thread. Returns what `ended` does once the job is stopped, also by another thread
        meanwhile."""
        if self._stopped:
            work.close()
            return ended()
        try:
            return self._thread.run(work)
        except (concurrent.futures.CancelledError, RuntimeError):
            if self._thread.takes_work:
                raise
        return ended()

    def stop(self, timeout_s: float | None, leave: bool) -> bool:
        with self._ending:  # a call from another thread or a signal handler waits, and finds it done
            if not self._stopped:
                self._stop(self._supervisor.time_to_stop if timeout_s is None else timeout_s, leave)
        return self._supervisor.report.confirmed

    def _stop(self, timeout_s: float, leave: bool) -> None:
        try:
            self._thread.run(self._supervisor.stop(timeout_s, leave), timeout=timeout_s + 1)
        except concurrent.futures.TimeoutError:
            logger.warning(
                "%s did not stop within %.1f s: its actors are ended; what it has not committed is read again at the next "
                "start; stop(timeout=…) waits longer",
                self._supervisor,
                timeout_s,
            )
        if not self._stopped:  # else a signal handler has stopped it
            self._take_down()

    def _take_down(self) -> None:
        self._last = self._known()
        self._stopped = True
        try:
            self._thread.run(self._job_process.close(), timeout=CLOSE_S)
        except concurrent.futures.TimeoutError:
            logger.warning("%s: its status page did not close within %g s", self._supervisor, CLOSE_S)
        self._thread.stop()
        if self._job_actor is not None:
            ray.kill(self._job_actor)
        self._release_ray()

    def _known(self) -> JobStatus:
        """Returns the status without a question to the coordinator, which may be what keeps the job from ending; read from this thread where
        the supervisor's loop stands still, as in a call of Ray that blocks."""

        async def shown() -> JobStatus:
            return self._supervisor.report.shown()

        try:
            return self._thread.run(shown(), timeout=LOOP_S)
        except concurrent.futures.TimeoutError:
            return self._supervisor.report.shown()

    def detach(self) -> None:
        raise UsageError("only a detached job goes on without its driver")

    def __repr__(self) -> str:
        group = self._supervisor.plan.config.group_id
        return f"of group {group!r}, {self._supervisor.report.state}"


def _refuse() -> NoReturn:
    raise UsageError("the job has ended")


class ActorControl:
    """Controls a supervisor in a job actor. `name` is the job's. With the actor its status is gone: who stops the job keeps the last one."""

    def __init__(self, job_actor: ActorHandle, name: str | None) -> None:
        self._job_actor = job_actor
        self._name = name
        self._confirmed = False
        self._last: JobStatus | None = None
        self._failure: JobFailed | None = None
        self._stopped = False

    def call(self, method: str, *args: Any, limit_s: float | None = CONTROL_S) -> Any:
        """Calls a method, again where the job actor can't be reached for a while. Raises `KafkaTimeoutError` after `limit_s` seconds,
        `DisconnectedError` when the job actor is dead."""
        until = None if limit_s is None else time.monotonic() + limit_s
        while True:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            try:
                return self._get(getattr(self._job_actor, method).remote(*args), left_s)
            except ActorUnavailableError:
                if left_s == 0:
                    raise self._silent(method, limit_s) from None
                time.sleep(UNREACHABLE_S if left_s is None else min(UNREACHABLE_S, left_s))
            except GetTimeoutError:
                raise self._silent(method, limit_s) from None

    def result(self, method: str, answer: Any, limit_s: float | None) -> Any:
        """Waits for the result of a call under way. Raises as `call`."""
        try:
            return self._get(answer, limit_s)
        except GetTimeoutError:
            raise self._silent(method, limit_s) from None
        except ActorUnavailableError:
            raise DisconnectedError("the job actor can't be reached") from None

    def _get(self, answer: Any, limit_s: float | None) -> Any:
        try:
            return ray.get(answer, timeout=limit_s)
        except RayTaskError as error:
            if isinstance(error.cause, KafkaActorsError):
                raise error.cause from error.cause.__cause__
            raise error.cause from noted_once(error)
        except ActorUnavailableError:  # unlike others of its kind it says nothing about the actor's life
            raise
        except RayActorError:
            raise self._gone() from None

    def _gone(self) -> DisconnectedError:
        return DisconnectedError(
            f"the job {self._name!r} has ended: its actor is gone, and with it its status"
        )

    def _silent(self, method: str, limit_s: float | None) -> KafkaTimeoutError:
        return KafkaTimeoutError(f"the job actor did not answer {method!r} within {limit_s:g} s")

    def _call(self, ended: Callable[[], T], method: str, *args: Any, limit_s: float | None = CONTROL_S) -> T:
        """Calls a method. Returns what `ended` does once the job was stopped here, also by another thread meanwhile."""
        if not self._stopped:
            try:
                answer: T = self.call(method, *args, limit_s=limit_s)
                return answer
            except DisconnectedError:
                if not self._stopped:
                    raise
        return ended()

    def status(self) -> JobStatus:
        return self._call(self._last_status, "status")

    def _last_status(self) -> JobStatus:
        if self._last is None:  # it did not answer when it was stopped, or had not begun
            raise self._gone()
        return self._last

    def scale(self, workers: int | Autoscale) -> None:
        self._call(_refuse, "scale", workers)

    def pause(self, paused: bool) -> None:
        self._call(_refuse, "pause", paused)

    def _result(self) -> bool:
        if self._failure is not None:
            raise self._failure
        return True

    def wait(self, timeout_s: float | None) -> bool:
        limit_s = None if timeout_s is None else timeout_s + CONTROL_S
        try:
            return bool(self._call(self._result, "wait", timeout_s, limit_s=limit_s))
        except KafkaTimeoutError:
            return False  # as far as anybody knows: the job goes on while Ray, or its own node, is stopped for a while

    def stop(self, timeout_s: float | None, leave: bool) -> bool:
        if self._stopped:
            return self._confirmed
        limit_s = (STOP_S if timeout_s is None else timeout_s) + CONTROL_S
        try:
            if timeout_s is None:
                timeout_s = float(self.call("time_to_stop", limit_s=limit_s))
                limit_s = timeout_s + CONTROL_S
            self._confirmed = bool(self.call("stop", timeout_s, leave, limit_s=limit_s))
            self._note_end()
        except KafkaTimeoutError:
            logger.warning("the job actor did not answer within %.1f s and is ended", limit_s)
            self._confirmed = False
        except DisconnectedError:
            return self._confirmed  # of an earlier stop, if there was one
        self._stopped = True
        ray.kill(self._job_actor)
        return self._confirmed

    def _note_end(self) -> None:
        """Takes the last status of a job that was stopped, and why it failed, before its actor is ended."""
        with suppress(KafkaTimeoutError, DisconnectedError):
            self._last = self.call("starting", limit_s=LOOP_S)
            try:
                if self._last is not None:
                    self.call("wait", 0.0, limit_s=LOOP_S)
            except JobFailed as failure:
                self._failure = failure

    def detach(self) -> None:
        """Leaves the job running."""

    def __repr__(self) -> str:
        return f"{self._name!r}, detached"
