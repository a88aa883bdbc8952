"""The policy's shell: feeds the coordinator's answers to `WorkerCount`, reports its decisions, and asks Ray for room."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from kafka_actors.events import EventSink, NoRoomForWorkers, WorkersChanged, log_event
from kafka_actors.job.autoscale import Autoscale
from kafka_actors.job.messages import CoordinatorStatus
from kafka_actors.job.status import ScalingStatus, WorkersChange
from kafka_actors.types import TopicPartition

from .machines.load import observed
from .machines.scaling import ScalingDecision, WorkerCount
from .runtime import Runtime

__all__ = ["ENDS_S", "Autoscaler"]

logger = logging.getLogger(__name__)

ENDS_S = 2.0
"""How often the ends of the logs are asked for where somebody looks at the lag: a policy, a status page, metrics."""
NO_ROOM_S = 10.0
"""A worker that is not placed by then waits for room in the Ray cluster."""


class Autoscaler:
    """How many workers a job should have now. `workers` is the number; the supervisor does what it says. More workers
    that a running job is told to have are waited for `patience_s`; those of a policy as long as it wants them."""

    def __init__(
        self,
        said: int | Autoscale,
        runtime: Runtime,
        clock: Callable[[], float],
        events: EventSink = log_event,
        *,
        patience_s: float,
    ) -> None:
        self._scaling = WorkerCount(said)
        self._runtime = runtime
        self._clock = clock
        self._events = events
        self._patience_s = patience_s
        self._had = self.workers
        self._room = 0
        self._unplaced_since: float | None = None
        self._no_room = ""

    @property
    def workers(self) -> int:
        """How many there should be."""
        return self._scaling.workers

    @property
    def autoscale(self) -> Autoscale | None:
        """The policy that decides; None where a number was said."""
        return self._scaling.autoscale

    def ends_every_s(self, *, looked_at: bool) -> float | None:
        """How often the ends of the logs have to be asked for. `looked_at`: there are metrics, or a status page.

        What fetches say of the ends is oldest where the lag is largest: full buffers fetch nothing. Metrics want them
        as often as a page does, however seldom they are collected: lag in time is reckoned from how the logs grew, so
        it is as exact as its points are close. It is one small request to each leader, about as often as heartbeats;
        where nobody looks there is one now and then, for stalls.
        """
        policy = self.autoscale
        if policy is not None:
            return min(ENDS_S, policy.target_lag_seconds / 5)
        return ENDS_S if looked_at else None

    def say(self, said: int | Autoscale) -> ScalingDecision | None:
        """What a user wants from now on. Returns the change, if it is one at once."""
        decision = self._scaling.say(said, self._clock())
        self._had = min(self._had, self.workers)
        self._unplaced_since = None
        return self._told(decision)

    def look(
        self, status: CoordinatorStatus, ends: Mapping[TopicPartition, int], ready: int
    ) -> ScalingDecision | None:
        """What the policy makes of the job now. `ends` bounds the run; `ready`: how many workers work."""
        return self._told(self._scaling.observe(observed(status, ends, self.workers, ready), self._clock()))

    def _told(self, decision: ScalingDecision | None) -> ScalingDecision | None:
        if decision is not None:
            self._events(WorkersChanged(decision.before, decision.after, decision.reason))
        return decision

    # ------------------------------------------------------------ room in the Ray cluster

    async def see_to_room(self, placed: int, unplaced: str) -> ScalingDecision | None:
        """`placed`: how many of those that there should be have a place. `unplaced`: why one of them waits for its
        place, empty if none does. Returns the change where a number is given up for want of room.

        Ray is asked for room only until all are placed: from then on what they use keeps their nodes, and a driver
        that is killed leaves no request behind that would keep nodes for nobody.
        """
        policy, now = self.autoscale, self._clock()
        if placed >= self.workers:  # those that were just asked for are not there yet, and don't wait either
            self._had = self.workers
        if not unplaced:
            self._unplaced_since, self._no_room = None, ""
            await self._ask(0)
            return None
        since = self._unplaced_since = now if self._unplaced_since is None else self._unplaced_since
        if now - since >= NO_ROOM_S:
            if not self._no_room:
                self._events(NoRoomForWorkers(self.workers, placed, unplaced))
            self._no_room = unplaced
        if policy is None and self.workers > self._had and now - since >= self._patience_s:
            return self._give_up(unplaced)
        await self._ask(self.workers if policy is not None and policy.request_resources else 0)
        return None

    def _give_up(self, unplaced: str) -> ScalingDecision | None:
        """Back to as many as there were, all of which had room."""
        reason = f"no room for {self.workers} workers within {self._patience_s:g} s: {unplaced}"
        logger.warning("%s; the job goes on with %d", reason, self._had)
        self._unplaced_since, self._no_room = None, ""
        return self._told(self._scaling.give_up(self._had, reason, self._clock()))

    async def give_back(self) -> None:
        """The job ends."""
        await self._ask(0)

    async def _ask(self, workers: int) -> None:
        if workers == self._room:
            return
        self._room = workers
        try:
            await asyncio.to_thread(self._runtime.ask_for_room, workers)
        except Exception as error:  # it is a hint: Ray sees the workers that wait by itself, only later
            logger.warning("Ray could not be asked for room: %s: %s", type(error).__name__, error)

    # ------------------------------------------------------------ what a user is shown

    def status(self) -> ScalingStatus:
        """The number, who says so, and why."""
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
