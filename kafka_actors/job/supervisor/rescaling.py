"""The number of workers of a job that runs: what a user says, what a policy decides, and those that are to go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kafka_actors.job.autoscale import Autoscale

from .actor_manager import ActorManager
from .announcements import Announcements
from .context import SupervisorContext
from .running_actors import actor_name

__all__ = ["Rescaling"]

LOOK_S = 1.0


class Rescaling:
    """`Autoscaler` says how many there should be; this class sees to it, drained partition by drained partition."""

    def __init__(self, job: SupervisorContext, briefing: Announcements, keeper: ActorManager) -> None:
        self._job = job
        self._scaling = job.scaling
        self._running = job.roster
        self._briefing = briefing
        self._keeper = keeper

    async def scale(self, workers: int | Autoscale) -> None:
        """So many workers from now on, or as many as a policy decides. Only the partitions that must move do."""
        before = self._scaling.workers
        self._scaling.say(workers)
        await self._rescale(before)

    async def follow_load(self) -> None:
        """Looks at the load every second, for as long as a policy decides about the number of workers; and whether all
        that there should be have found room."""
        while not self._job.stopping:
            if self._scaling.autoscale is not None and not self._job.report.paused:
                await self._look_at_load()
            await self._look_at_room()
            await asyncio.sleep(LOOK_S)

    async def _look_at_room(self) -> None:
        placed = sum(number < self._scaling.workers for number in self._placed())
        given_up = await self._scaling.see_to_room(placed, self._why_unplaced())
        if given_up is not None:
            await self._rescale(given_up.before)

    async def _look_at_load(self) -> None:
        status = await self._job.report.ask()
        if status is None or status.group.state != "stable":
            return
        start = self._job.job_start
        bounds = dict(start.ends or ()) if start is not None else {}
        workers = self._running.of_kind("worker")
        ready = sum(r.begun for key, r in workers.items() if key.number < self._scaling.workers)
        if (decision := self._scaling.look(status, bounds, ready)) is not None:
            await self._rescale(decision.before)

    def _why_unplaced(self) -> str:
        """The first worker that has no place, and what it waits for; empty while all have one."""
        for key, running in self._running.of_kind("worker").items():
            if running.info is None and key.number < self._scaling.workers:
                return self._job.runtime.why_not_placed(key)
        return ""

    def _placed(self) -> set[int]:
        """The numbers of the workers that have a place."""
        return {k.number for k, r in self._running.of_kind("worker").items() if r.info is not None}

    async def _rescale(self, before: int) -> None:
        """More workers start; fewer are drained first. One that has no place yet holds nothing that could be."""
        workers = self._scaling.workers
        gone = set(range(workers, before)) & self._placed()
        self._running.retiring = {n for n in self._running.retiring | gone if n >= workers}
        self._keeper.want()
        await self._briefing.plan_changed()

    def drop_retired(self, names: Iterable[str]) -> None:
        """Those that hold nothing any more go in this same moment: a later one might want the number again."""
        retired = set(names)
        for key, running in self._running.of_kind("worker").items():
            if key.number in self._running.retiring and actor_name(key, running.incarnation) in retired:
                self._running.retiring.discard(key.number)
                self._keeper.want()
                self._keeper.poll()
