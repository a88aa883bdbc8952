"""How an actor of each kind is made and begins: the arguments of its constructor, and what it is told first."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from kafka_actors.base.addresses import format_address
from kafka_actors.config import JobConfig
from kafka_actors.job.messages import Identity, JobStart, pack, unpack

from .announcements import Announcements
from .context import SupervisorContext
from .machines.supervision import ActorKey
from .running_actors import RunningActor, actor_name

__all__ = ["ActorStarter"]

MARGIN_S = 0.5
"""So much earlier than the job gives up, whoever looks for the cluster says what is missing."""


class ActorStarter:
    """Those of one job. `topics_known`: the cluster is there and has them. No code of the user's runs before that."""

    def __init__(self, job: SupervisorContext, briefing: Announcements) -> None:
        self._job = job
        self._briefing = briefing
        self._created = job.clock()
        self._first_coordinator: int | None = None
        self.topics_known = asyncio.Event()

    def constructor(self, key: ActorKey, incarnation: int) -> tuple[Any, ...]:
        """The arguments with which the actor is made."""
        job, plan, config = self._job, self._job.plan, self._config()
        setup = plan.setup(str(key), incarnation)
        if key.kind == "metadata":
            return config, plan.topics, plan.pattern, setup
        if key.kind == "coordinator":
            identity = pack(Identity(plan.group_instance_id, job.report.member_id))
            assert job.job_start is not None  # the metadata actor has said it before a coordinator begins
            return (
                config,
                incarnation,
                plan.topics,
                plan.pattern,
                pack(job.job_start),
                identity,
                setup,
            )
        if key.kind in ("connection", "spare"):
            return config, setup
        return actor_name(key, incarnation), plan.spec, config, setup

    def _config(self) -> JobConfig:
        """The job's. Adds the brokers' present addresses to those it was given: all of them may have moved since."""
        config, brokers = self._job.plan.config, self._job.roster.brokers
        known = {format_address(*at) for at in brokers.values()}.difference(config.bootstrap_servers)
        return msgspec.structs.replace(config, bootstrap_servers=[*config.bootstrap_servers, *sorted(known)])

    async def begin(self, key: ActorKey, running: RunningActor) -> None:
        """Returns when the actor works. Raises what keeps it from that."""
        call, job = running.ref.call, self._job
        if key.kind == "metadata":
            await call("begin", self._time_to_start())
            if job.job_start is None:
                answer = await call("job_start", job.plan.bounded, self._time_to_start())
                job.job_start = unpack(answer, JobStart)
            self.topics_known.set()
        elif key.kind == "coordinator":
            if self._first_coordinator is None:
                self._first_coordinator = running.incarnation
            recovering = running.incarnation != self._first_coordinator
            await call("begin", pack(self._briefing.worker_plan()), recovering)
        elif key.kind == "worker":
            job.roster.wiring_version += 1
            await call("begin", job.roster.wiring(running.info))
        elif key.kind == "connection":
            await call("begin", key.number, *job.roster.brokers[key])

    def _time_to_start(self) -> float:
        """What is left of `start_timeout_s` for finding the cluster and its topics, so that what is missing is
        named by who looks for it; of a later incarnation it is all."""
        whole = self._job.plan.config.start_timeout_s
        if self._job.started.done():
            return whole
        return max(MARGIN_S, whole - (self._job.clock() - self._created) - MARGIN_S)
