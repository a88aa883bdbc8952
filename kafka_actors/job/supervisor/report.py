"""What a supervisor tells of its job: its state, what happened to it, and what its coordinator said last."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from kafka_actors.errors import JobFailed, KafkaActorsError
from kafka_actors.events import Event, log_event
from kafka_actors.job.messages import CoordinatorStatus, JobFailure, unpack
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.status import JobStatus, ScalingStatus
from kafka_actors.status_page.machines.health import LastSeen
from kafka_actors.status_page.machines.timeline import Timeline

from .machines.supervision import ActorKey
from .machines.timeline_entries import told_of
from .running_actors import COORDINATOR, RunningActors
from .runtime import ActorRef, none_if_disconnected

__all__ = ["JobReport"]


class JobReport:
    """`restarts` and `scaling` are looked at whenever something is told. `clock` gives steady seconds, `wall` those
    since 1970.

    `paused`: a user wants no new calls. `member_id`: what the group calls the job, kept over coordinators. `page`:
    where the status page is, if there is one, and `page_node` its machine. `waits_for`: what keeps the job from having
    started. `final`: the status at the end, which stays; `unheard`: the coordinator has not said what came of the last
    commits.
    """

    def __init__(
        self,
        plan: JobPlan,
        roster: RunningActors,
        restarts: Mapping[ActorKey, int],
        scaling: Callable[[], ScalingStatus],
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,  # wall clock: what happened is told by the time of day
    ) -> None:
        self.paused = False
        self.member_id = ""
        self.page = self.page_node = ""
        self.waits_for: list[str] = []
        self.final: JobStatus | None = None
        self.unheard = False
        self.answered_at: float | None = None
        self._session_timeout_s = plan.config.session_timeout_ms / 1000
        self._running = roster
        self._restarts = restarts
        self._scaling = scaling
        self._clock = clock
        self._wall = wall
        self._timeline = Timeline()
        self._heard = (0, 0)  # the coordinator's incarnation, and the last entry of its own timeline
        self._last: CoordinatorStatus | None = None
        self._newest: CoordinatorStatus | None = None
        self._state, self._why = "", ""
        self._started_s = self._state_since_s = wall()
        self.become("starting")

    # ------------------------------------------------------------ what happens

    @property
    def state(self) -> str:
        """As `JobStatus` has it."""
        return "paused" if self.paused and self._state == "running" else self._state

    def become(self, state: str, why: BaseException | None = None) -> None:
        """The job gets into another state; `why` it failed."""
        self._state, self._why = state, "" if why is None else reason_of(why)
        self._state_since_s = self._wall()
        self.note("state", f"{self.state}: {self._why}" if self._why else self.state)

    def pause(self, paused: bool) -> None:
        """A user wants it, or no longer."""
        if paused != self.paused:
            self.paused = paused
            self.become(self._state)

    def happened(self, event: Event) -> None:
        """For the log and the timeline."""
        log_event(event)
        if (told := told_of(event)) is not None:
            self.note(*told)

    def note(self, kind: str, text: str) -> None:
        """For the timeline alone."""
        self._timeline.note(kind, text, self._wall())

    # ------------------------------------------------------------ what the coordinator says

    async def ask(self) -> CoordinatorStatus | None:
        """The coordinator's own status, with its partitions; None while there is none to be asked."""
        status = await self._asked(lambda ref, known: ref.call("status", known))
        self._last = status or self._last
        return status

    async def verdict(self, wait_s: float) -> CoordinatorStatus | None:
        """The same without partitions, as soon as something in it decides about the job, or after `wait_s`."""
        return await self._asked(lambda ref, known: ref.call("verdict", known, wait_s))

    async def _asked(self, ask: Callable[[ActorRef, int], Awaitable[bytes]]) -> CoordinatorStatus | None:
        coordinator = self._running.begun(COORDINATOR)
        if coordinator is None:
            return None
        incarnation = coordinator.incarnation
        known = self._heard[1] if self._heard[0] == incarnation else 0
        answer = await none_if_disconnected(ask(coordinator.ref, known))
        if answer is None:
            return None
        status = unpack(answer, CoordinatorStatus)
        self._take(status, incarnation)
        return status

    def _take(self, status: CoordinatorStatus, incarnation: int) -> None:
        self.answered_at = self._clock()
        self.member_id = status.group.member_id or self.member_id
        self._newest = status
        for entry in status.timeline:
            if (incarnation, entry.number) > self._heard:
                self._heard = incarnation, entry.number
                self._timeline.note(entry.kind, entry.text, entry.at_s)

    # ------------------------------------------------------------ what is told

    async def status(self) -> JobStatus:
        """The job now; once it has ended, as it was at its end."""
        if self.final is None:
            await self.ask()
        return self.shown()

    def shown(self) -> JobStatus:
        """The job as far as it is known without asking anybody."""
        known = self.final or self._running.status(self.state, self._last, self._restarts, self._scaling())
        unconfirmed = (
            [(p.topic, p.partition) for p in known.partitions] if self.unheard else known.unconfirmed
        )
        return msgspec.structs.replace(
            known,
            state=self.state,
            unconfirmed=unconfirmed,
            timeline=self._timeline.after(),
            started_s=self._started_s,
            state_since_s=self._state_since_s,
            page=self.page,
            page_node=self.page_node,
            waits_for=self.waits_for if self._state == "starting" else [],
        )

    @property
    def confirmed(self) -> bool:
        """At the end: whether the coordinator has said that the brokers confirmed the commits of all that was processed."""
        return self.final is not None and not self.unheard and not self.final.unconfirmed

    def seen(self) -> LastSeen:
        """What the health of the job is judged by."""
        newest = self._newest
        fatal = unpack(newest.fatal, JobFailure).text if newest is not None and newest.fatal else ""
        return LastSeen(
            looked_at=self._clock(),
            state=self.state,
            why="; ".join(self.waits_for) if self._state == "starting" else self._why,
            coordinator=self._running.begun(COORDINATOR) is not None,
            answered_at=self.answered_at,
            member=newest.group.state if newest else "",
            heartbeat_age_s=newest.group.heartbeat_age_s if newest else None,
            fatal=fatal,
            session_timeout_s=self._session_timeout_s,
            workers_ready=sum(worker.begun for worker in self._running.of_kind("worker").values()),
        )


def reason_of(failure: BaseException) -> str:
    """What a job failed of, without saying once more that it has."""
    cause = failure.cause if isinstance(failure, JobFailed) and failure.cause is not None else failure
    return str(cause) if isinstance(cause, KafkaActorsError) else f"{type(cause).__name__}: {cause}"
