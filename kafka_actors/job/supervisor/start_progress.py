"""Reasons, in words, why a job has not started yet: brokers, topics, room in the Ray cluster, the user's constructor."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from kafka_actors.job.status import JobStatus

from .context import SupervisorContext
from .machines.supervision import ActorKey
from .running_actors import METADATA, RunningActor
from .runtime import none_if_disconnected

__all__ = ["Each", "StartProgress", "log_waits"]

logger = logging.getLogger(__name__)

Each = Callable[[JobStatus], None]
"""Callback that gets the status of a starting job twice a second."""

LOOK_S = 0.5
PLACED_S = 2.0
"""A worker without a place counts as waiting after this time: a process takes a second or two to come up."""
LOG_S = 10.0


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
    """Makes the callback of a program without a display: logs a warning about what has been missing for `LOG_S` seconds."""
    began, logged = clock(), ""

    def each(status: JobStatus) -> None:
        nonlocal logged
        now = "; ".join(status.waits_for)
        if now and now != logged and clock() - began >= LOG_S:
            logged = now
            logger.warning("the job of group %s has not started yet: it waits for %s", status.group_id, now)

    return each
