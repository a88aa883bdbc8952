"""What a supervisor tells the actors of each other: which workers there should be, whom to call, where workers are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from kafka_actors.job.machines import lease
from kafka_actors.job.messages import WorkerPlan, pack

from .context import SupervisorContext
from .machines.supervision import ActorKey
from .running_actors import COORDINATOR, METADATA, RunningActor
from .runtime import insist, quietly

__all__ = ["Announcements"]


class Announcements:
    """Each is told what counts now, under a version: what gets lost or comes late does no harm. `nodes_told`: the
    metadata actor knows of another set of nodes."""

    def __init__(self, job: SupervisorContext) -> None:
        self._job = job
        self._roster = job.roster
        self.nodes_told = asyncio.Event()
        self._cut_off: dict[str, float] = {}

    # ------------------------------------------------------------ the coordinator

    def worker_plan(self) -> WorkerPlan:
        """For the coordinator, under the next version."""
        job = self._job
        measured = job.observer.measured
        return self._roster.worker_plan(
            paused=job.report.paused,
            complete=job.started.done(),
            expected=job.scaling.workers,
            ends_every_s=job.scaling.ends_every_s(looked_at=measured or job.plan.status_address is not None),
            measured=measured,
            silent=self._silent(),
            died=job.deaths.known,
        )

    def cut_off(self, worker: str) -> None:
        """Ray calls the node of this worker dead, of which nothing was heard before: it may go on under its lease."""
        self._cut_off[worker] = self._job.clock() + lease.longest(
            self._job.plan.config.session_timeout_ms / 1000
        )

    def _silent(self) -> list[str]:
        now = self._job.clock()
        self._cut_off = {worker: until for worker, until in self._cut_off.items() if now < until}
        there = [name for node in self._job.machine.silent for name in self._roster.workers_on(node)]
        return [*there, *self._cut_off]

    async def plan_changed(self) -> None:
        """Workers came or went, there are to be more or fewer, or the job is paused or goes on."""
        if (coordinator := self._roster.begun(COORDINATOR)) is not None:
            await self._delivered(
                COORDINATOR, coordinator, lambda: coordinator.ref.call("set_plan", pack(self.worker_plan()))
            )

    # ------------------------------------------------------------ workers

    def rewire(self) -> None:
        """One of those whom workers call is another one now."""
        self._roster.wiring_version += 1
        for running in self._roster.of_kind("worker").values():
            if running.info is not None:
                self._job.loops.go(self.wire(running))

    def wire(self, worker: RunningActor) -> Coroutine[Any, Any, None]:
        """Whom this worker calls."""
        return quietly(worker.ref.call("wire", self._roster.wiring(worker.info)))

    # ------------------------------------------------------------ the metadata actor, and connection actors

    async def tell_nodes(self) -> None:
        """Where workers are: each of these nodes has connections of its own."""
        if (metadata := self._roster.begun(METADATA)) is not None:
            await self._delivered(
                METADATA, metadata, lambda: metadata.ref.call("set_nodes", self._roster.worker_nodes())
            )
            self.nodes_told.set()

    async def forget_worker(self, name: str) -> None:
        """Nobody will fetch under this name any more."""
        for key, running in self._roster.of_kind("connection").items():
            await self._delivered(key, running, partial(running.ref.call, "forget", [name]))

    async def _delivered(
        self, key: ActorKey, running: RunningActor, call: Callable[[], Awaitable[Any]]
    ) -> None:
        """Told again where the call gets lost, while the actor is there."""
        await quietly(insist(call, lambda: self._roster.get(key) is running))
