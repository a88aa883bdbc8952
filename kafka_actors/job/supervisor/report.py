"""Report of a job: its state, its timeline and the last status of its coordinator, put together as a `JobStatus`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from kafka_actors import __version__
from kafka_actors.base.callables import described
from kafka_actors.errors import JobFailed, KafkaActorsError
from kafka_actors.events import Event, log_event
from kafka_actors.job.machines.health import UNANSWERED_S, LastSeen, health
from kafka_actors.job.machines.timeline import Timeline, entry_of
from kafka_actors.job.messages import CoordinatorStatus, JobFailure, unpack
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.status import JobStatus, ScalingStatus

from .machines.figures import JobRates, RateWindow, with_figures
from .machines.supervision import ActorKey
from .runtime import COORDINATOR, ActorRef, RunningActors, none_if_disconnected

__all__ = ["JobReport"]


class JobReport:
    """Asks the coordinator for its status, keeps the timeline, and makes a `JobStatus` of what is known.

    `restarts` and `scaling` are read for each status. `clock` gives steady seconds, `wall` those since 1970.

    `paused`: a user wants no new calls. `member_id`: the job's id in its group, kept over coordinators. `page`: the URL
    of the status page, empty where there is none, and `page_node` its machine. `waits_for`: what keeps the job from
    having started. `final`: the status at the end of the job, which stays; `unheard`: the coordinator did not answer
    what came of the last commits. `answered_at`: when the coordinator answered last, by `clock`.
    """

    def __init__(
        self,
        plan: JobPlan,
        roster: RunningActors,
        restarts: Mapping[ActorKey, int],
        scaling: Callable[[], ScalingStatus],
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,  # wall clock: the timeline is read by the time of day
    ) -> None:
        self.paused = False
        self.member_id = ""
        self.page = self.page_node = ""
        self.waits_for: list[str] = []
        self.final: JobStatus | None = None
        self.unheard = False
        self.answered_at: float | None = None
        self._answered_s: float | None = None
        self._name = plan.name
        self._topics = plan.topics if plan.topics is not None else [plan.pattern or ""]
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
        self._window = RateWindow()
        self._rates: JobRates | None = None
        self._state, self._why = "", ""
        self._started_s = self._state_since_s = wall()
        self.become("starting")

    # ------------------------------------------------------------ what happens

    @property
    def state(self) -> str:
        """The state, as in `JobStatus`."""
        return "paused" if self.paused and self._state == "running" else self._state

    def become(self, state: str, why: BaseException | None = None) -> None:
        """Notes that the job gets into another state; `why`: the error with which it failed."""
        self._state, self._why = state, "" if why is None else reason_of(why)
        self._state_since_s = self._wall()
        self.note("state", f"{self.state}: {self._why}" if self._why else self.state)

    def pause(self, paused: bool) -> None:
        """Notes that a user pauses the job, or resumes it."""
        if paused != self.paused:
            self.paused = paused
            self.become(self._state)

    def happened(self, event: Event) -> None:
        """Logs an event, and adds it to the timeline if it belongs there."""
        log_event(event)
        if (entry := entry_of(event)) is not None:
            self.note(*entry)

    def note(self, kind: str, text: str) -> None:
        """Adds an entry to the timeline."""
        self._timeline.note(kind, text, self._wall())

    # ------------------------------------------------------------ questions to the coordinator

    async def ask(self) -> CoordinatorStatus | None:
        """The coordinator's own status, with its partitions; None while no coordinator answers."""
        status = await self._query(lambda ref, known: ref.call("status", known))
        if status is not None:
            self._last = status
            self._rates = self._window.observe(status, self._clock())
        return status

    async def verdict(self, wait_s: float) -> CoordinatorStatus | None:
        """The coordinator's status without partitions, as soon as it holds something that decides about the job, or after
        `wait_s` seconds."""
        return await self._query(lambda ref, known: ref.call("verdict", known, wait_s))

    async def _query(self, ask: Callable[[ActorRef, int], Awaitable[bytes]]) -> CoordinatorStatus | None:
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
        self.answered_at, self._answered_s = self._clock(), self._wall()
        self.member_id = status.group.member_id or self.member_id
        self._newest = status
        for entry in status.timeline:
            if (incarnation, entry.number) > self._heard:
                self._heard = incarnation, entry.number
                self._timeline.note(entry.kind, entry.text, entry.at_s)

    # ------------------------------------------------------------ the job's status

    async def status(self) -> JobStatus:
        """Status of the job now, after a question to the coordinator; once the job has ended, as it was at its end."""
        if self.final is None:
            await self.ask()
        return self.shown()

    def shown(self) -> JobStatus:
        """Status of the job as far as it is known without a question to the coordinator."""
        known = self.final or self._known()
        unconfirmed = (
            [(p.topic, p.partition) for p in known.partitions] if self.unheard else known.unconfirmed
        )
        seen = self.seen()
        return replace(
            known,
            state=self.state,
            unconfirmed=unconfirmed,
            timeline=self._timeline.after(),
            started_s=self._started_s,
            state_since_s=self._state_since_s,
            page=self.page,
            page_node=self.page_node,
            waits_for=self.waits_for if self._state == "starting" else [],
            at_s=self._wall(),
            name=self._name,
            topics=self._topics,
            version=__version__,
            health=health(seen, seen.looked_at),
            answered_s=self._answered_s,
            session_timeout_s=self._session_timeout_s,
        )

    def _known(self) -> JobStatus:
        status = self._running.status(self.state, self._last, self._restarts, self._scaling())
        silent_s = 0.0 if self.answered_at is None else self._clock() - self.answered_at
        if (group := status.group) is not None and group.heartbeat_age_s is not None:
            status = replace(status, group=replace(group, heartbeat_age_s=group.heartbeat_age_s + silent_s))
        return with_figures(status, self._rates if silent_s <= UNANSWERED_S else None)

    @property
    def confirmed(self) -> bool:
        """Whether, at the end, the coordinator answered that the brokers confirmed the commits of all processed records."""
        return self.final is not None and not self.unheard and not self.final.unconfirmed

    def seen(self) -> LastSeen:
        """Observations from which `health` makes its verdict, at this moment."""
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
    """Text of the error that made a job fail: of the cause, where a `JobFailed` has one."""
    cause = failure.cause if isinstance(failure, JobFailed) and failure.cause is not None else failure
    return str(cause) if isinstance(cause, KafkaActorsError) else described(cause)
