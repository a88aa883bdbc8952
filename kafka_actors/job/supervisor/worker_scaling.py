"""Number of a job's workers: set by a user or by the autoscaling policy, and carried out drained partition by partition.

`Autoscaler` is the shell of `machines/scaling.py`: it feeds the coordinator's status to the policy, reports decisions, and
asks Ray for resources. `Rescaling` makes the job's actors follow the number.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from kafka_actors.events import EventSink, NoRoomForWorkers, WorkersChanged, log_event
from kafka_actors.job.autoscale import Autoscale
from kafka_actors.job.messages import CoordinatorStatus
from kafka_actors.job.status import ScalingStatus, WorkersChange
from kafka_actors.types import TopicPartition

from .machines.load import observed
from .machines.scaling import ScalingDecision, WorkerCount
from .runtime import Runtime, actor_name

if TYPE_CHECKING:  # the context has an `Autoscaler`
    from .actor_manager import ActorManager
    from .announcements import Announcements
    from .context import SupervisorContext

__all__ = ["ENDS_S", "Autoscaler", "Rescaling"]

logger = logging.getLogger(__name__)

ENDS_S = 2.0
"""Interval of the requests for log ends where a policy, a status page or metrics use the lag."""
UNPLACED_S = 10.0
"""A worker without a place after this time is reported as waiting for room in the Ray cluster."""
CHECK_S = 1.0
"""Interval of the looks at the load and at workers without a place."""


class Autoscaler:
    """Number of workers that a job should have now: `workers`.

    A number of more workers, set by a user while the job runs, is taken back when they have no place within
    `placement_timeout_s`; workers that a policy wants are waited for as long as it wants them. `lanes`: the most workers that can
    share a partition. `retry_topics`: those of the job's topics in which records wait for their next try.
    """

    def __init__(
        self,
        wanted: int | Autoscale,
        runtime: Runtime,
        clock: Callable[[], float],
        events: EventSink = log_event,
        *,
        placement_timeout_s: float,
        lanes: int = 1,
        retry_topics: Collection[str] = (),
    ) -> None:
        self._scaling = WorkerCount(wanted, lanes)
        self._retry_topics = retry_topics
        self._runtime = runtime
        self._clock = clock
        self._events = events
        self._placement_timeout_s = placement_timeout_s
        self._last_placed = self.workers
        self._requested: int | None = 0
        """For how many workers Ray was asked; None where that failed, so that nobody knows."""
        self._unplaced_since: float | None = None
        self._no_room = ""

    @property
    def workers(self) -> int:
        """The number of workers that there should be."""
        return self._scaling.workers

    @property
    def autoscale(self) -> Autoscale | None:
        """The policy that decides; None where the number is fixed."""
        return self._scaling.autoscale

    def ends_every_s(self, *, looked_at: bool) -> float | None:
        """Returns how often the log ends have to be requested, in seconds; None if only for stalls. `looked_at`: the job has
        metrics or a status page.

        Fetch responses know the ends too, but are oldest where the lag is largest: full buffers fetch nothing. Metrics
        need the ends as often as a page, however seldom they are collected: lag in time is computed from how the logs
        grew, so it is as exact as its points are close. The cost is one small request to each leader.
        """
        policy = self.autoscale
        if policy is not None:
            return min(ENDS_S, policy.target_lag_seconds / 5)
        return ENDS_S if looked_at else None

    def set_workers(self, wanted: int | Autoscale) -> ScalingDecision | None:
        """Takes a user's number or policy. Returns the change, if there is one at once."""
        decision = self._scaling.set_workers(wanted, self._clock())
        self._last_placed = min(self._last_placed, self.workers)
        self._unplaced_since = None
        return self._reported(decision)

    def observe(
        self, status: CoordinatorStatus, ends: Mapping[TopicPartition, int], ready: int
    ) -> ScalingDecision | None:
        """Returns the policy's change, if any. `ends` bounds the run; `ready`: how many workers work."""
        seen = observed(status, ends, self.workers, ready, self._retry_topics)
        return self._reported(self._scaling.observe(seen, self._clock()))

    def _reported(self, decision: ScalingDecision | None) -> ScalingDecision | None:
        if decision is not None:
            self._events(WorkersChanged(decision.before, decision.after, decision.reason))
        return decision

    # ------------------------------------------------------------ resources of the Ray cluster

    async def check_resources(self, placed: int, unplaced: str) -> ScalingDecision | None:
        """Requests resources for a policy's workers; returns the change where a user's number is taken back.

        `placed`: how many of the wanted workers have a place. `unplaced`: why one has none, empty if all have.

        Ray is asked only until all are placed: from then on the workers themselves keep their nodes, and a driver that
        is killed leaves no request behind that would keep nodes for nobody.
        """
        policy, now = self.autoscale, self._clock()
        # Workers that were just wanted are not created yet, and count as no failure.
        if placed >= self.workers:
            self._last_placed = self.workers
        if not unplaced:
            self._unplaced_since, self._no_room = None, ""
            await self._request(0)
            return None
        since = self._unplaced_since = now if self._unplaced_since is None else self._unplaced_since
        if now - since >= UNPLACED_S:
            if not self._no_room:
                self._events(NoRoomForWorkers(self.workers, placed, unplaced))
            self._no_room = unplaced
        if policy is None and self.workers > self._last_placed and now - since >= self._placement_timeout_s:
            return self._revert(unplaced)
        await self._request(self.workers if policy is not None and policy.request_resources else 0)
        return None

    def _revert(self, unplaced: str) -> ScalingDecision | None:
        """Goes back to the number of workers that all had a place."""
        reason = f"no room for {self.workers} workers within {self._placement_timeout_s:g} s: {unplaced}"
        logger.warning("%s; the job goes on with %d", reason, self._last_placed)
        self._unplaced_since, self._no_room = None, ""
        return self._reported(self._scaling.revert(self._last_placed, reason, self._clock()))

    async def release_resources(self) -> None:
        """Takes the request to Ray back, at the end of the job."""
        await self._request(0)

    async def _request(self, workers: int) -> None:
        if workers == self._requested:
            return
        before, self._requested = self._requested, workers
        try:
            await asyncio.to_thread(self._runtime.request_resources, workers)
        except Exception as error:
            if before is not None:
                logger.warning("the request to Ray's autoscaler failed: %s: %s", type(error).__name__, error)
            # It is made again: Ray may have taken it all the same, and one that stays keeps nodes.
            self._requested = None

    # ------------------------------------------------------------ status

    def status(self) -> ScalingStatus:
        """Returns the number of workers, the policy, and why the number is what it is."""
        now, load = self._clock(), self._scaling.load
        return ScalingStatus(
            workers=self.workers,
            autoscale=self.autoscale,
            holding=self._no_room or self._scaling.holding,
            backlog_seconds=load.seconds(self.workers) if load is not None else None,
            arriving_per_s=load.arriving if load is not None else None,
            processed_per_s=load.done if load is not None else None,
            pace_per_s=load.pace if load is not None else None,
            busy=load.busy if load is not None else None,
            changes=[
                WorkersChange(number, d.before, d.after, d.reason, now - d.at)
                for number, d in self._scaling.numbered()
            ],
        )


class Rescaling:
    """Starts, drains and dismisses workers until there are as many as `Autoscaler` says."""

    def __init__(self, job: SupervisorContext, announcements: Announcements, actors: ActorManager) -> None:
        self._job = job
        self._scaling = job.scaling
        self._running = job.running
        self._announcements = announcements
        self._actors = actors

    async def scale(self, workers: int | Autoscale) -> None:
        """Sets the number of workers, or the policy that decides it. Only the partitions that must move do."""
        before = self._scaling.workers
        self._scaling.set_workers(workers)
        await self._rescale(before)

    async def run(self) -> None:
        """Every second feeds the load to the policy, if one decides, and looks for workers without a place."""
        while not self._job.stopping:
            if self._scaling.autoscale is not None and not self._job.report.paused:
                await self._check_load()
            await self._check_resources()
            await asyncio.sleep(CHECK_S)

    async def _check_resources(self) -> None:
        unplaced = await self._why_unplaced()  # which may take long: workers are counted behind it
        placed = sum(number < self._scaling.workers for number in self._placed())
        reverted = await self._scaling.check_resources(placed, unplaced)
        if reverted is not None:
            await self._rescale(reverted.before)

    async def _check_load(self) -> None:
        status = await self._job.report.ask()
        if status is None or status.group.state != "stable":
            return
        start = self._job.job_start
        bounds = dict(start.ends or ()) if start is not None else {}
        workers = self._running.of_kind("worker")
        ready = sum(r.begun for key, r in workers.items() if key.number < self._scaling.workers)
        if (decision := self._scaling.observe(status, bounds, ready)) is not None:
            await self._rescale(decision.before)

    async def _why_unplaced(self) -> str:
        """Returns what the first worker without a place waits for; empty while all have one. Ray is asked in a thread: its GCS may be gone for
        a while."""
        for key, running in self._running.of_kind("worker").items():
            if running.info is None and key.number < self._scaling.workers:
                return await asyncio.to_thread(self._job.runtime.why_not_placed, key)
        return ""

    def _placed(self) -> set[int]:
        """The numbers of the workers that have a place."""
        return {k.number for k, r in self._running.of_kind("worker").items() if r.info is not None}

    async def _rescale(self, before: int) -> None:
        """Starts more workers, or drains the last ones. A worker without a place holds nothing to drain."""
        workers = self._scaling.workers
        removed = set(range(workers, before)) & self._placed()
        self._running.retiring = {n for n in self._running.retiring | removed if n >= workers}
        self._actors.want()
        await self._announcements.send_plan()

    def drop_retired(self, names: Iterable[str]) -> None:
        """Dismisses drained workers in this same moment: a later `scale` might want their numbers again."""
        retired = set(names)
        for key, running in self._running.of_kind("worker").items():
            if key.number in self._running.retiring and actor_name(key, running.incarnation) in retired:
                self._running.retiring.discard(key.number)
                self._actors.want()
                self._actors.poll()
