"""Messages from the supervisor to its actors: constructor arguments, the first call, and later changes.

Later changes are the worker plan (to the coordinator), the wiring (to workers), and the nodes with workers (to the
metadata actor). Each message has the whole present state under a version that only rises, so a lost, repeated or late
one does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from kafka_actors.base.addresses import format_address
from kafka_actors.config import JobConfig
from kafka_actors.job.actor_setup import Wiring
from kafka_actors.job.machines import lease
from kafka_actors.job.messages import ActorInfo, Identity, JobStart, WorkerPlan, pack, unpack

from .context import SupervisorContext
from .machines.supervision import ActorKey
from .runtime import COORDINATOR, METADATA, RunningActor, actor_name, none_if_disconnected, retry_while

__all__ = ["ActorStarter", "Announcements"]

MARGIN_S = 0.5
"""The metadata actor's search for the cluster ends this much before the job's start times out, so that its error, which
names what is missing, is the one that the user gets."""


class Announcements:
    """Tells running actors about changes. `nodes_sent` is set when the metadata actor has got another set of nodes."""

    def __init__(self, job: SupervisorContext) -> None:
        self._job = job
        self._running = job.running
        self._plan_version = 0
        self._roles = 0
        self._wiring_version = 0
        self._nodes_version = 0
        self.nodes_sent = asyncio.Event()
        self._cut_off: dict[str, float] = {}

    # ------------------------------------------------------------ the coordinator

    def worker_plan(self) -> WorkerPlan:
        """Makes the coordinator's worker plan, under the next version."""
        job = self._job
        measured = job.telemetry.measured
        placed = {k: r for k, r in self._running.of_kind("worker").items() if r.info is not None}
        names = {key: actor_name(key, running.incarnation) for key, running in placed.items()}
        self._plan_version += 1
        self._roles = max([self._roles, *(key.number + 1 for key in names)])
        return WorkerPlan(
            self._plan_version,
            {name: job.plan.capacity_of(key.number) for key, name in names.items()},
            [name for key, name in names.items() if key.number in self._running.retiring],
            job.report.paused,
            job.started.done(),
            job.scaling.workers,
            job.scaling.ends_every_s(looked_at=measured or job.plan.status_address is not None),
            measured,
            silent=sorted(self._silent()),
            unconnected=[
                names[key]
                for key, running in placed.items()
                if running.info is not None and running.info.node not in self._running.connected
            ],
            died=job.deaths.known,
            ready=[names[key] for key, running in placed.items() if running.begun],
            roles=self._roles,
        )

    def cut_off(self, worker: str) -> None:
        """Records that Ray calls this worker's node dead, after a silence: the worker may run on until its lease ends."""
        self._cut_off[worker] = self._job.clock() + lease.longest(
            self._job.plan.config.session_timeout_ms / 1000
        )

    def _silent(self) -> list[str]:
        now = self._job.clock()
        self._cut_off = {worker: until for worker, until in self._cut_off.items() if now < until}
        silent = [name for node in self._job.machine.silent for name in self._running.workers_on(node)]
        return [*silent, *self._cut_off]

    async def send_plan(self) -> None:
        """Sends the worker plan to the coordinator, if there is one."""
        if (coordinator := self._running.begun(COORDINATOR)) is not None:
            await self._deliver(
                COORDINATOR, coordinator, lambda: coordinator.ref.call("set_plan", pack(self.worker_plan()))
            )

    # ------------------------------------------------------------ workers

    def wiring(self, info: ActorInfo | None) -> Wiring:
        """Makes the wiring of a worker at this place: the handles of the actors that it calls."""
        metadata, coordinator = self._running.get(METADATA), self._running.begun(COORDINATOR)
        node = info.node if info is not None else ""
        return Wiring(
            self._wiring_version,
            metadata.ref.raw if metadata is not None and metadata.begun else None,
            metadata.incarnation if metadata is not None else 0,
            coordinator.ref.raw if coordinator is not None else None,
            {
                k.number: (r.incarnation, r.ref.raw)
                for k, r in self._running.of_kind("connection").items()
                if k.node == node and r.begun
            },
        )

    def first_wiring(self, info: ActorInfo | None) -> Wiring:
        """Makes the wiring with which a new worker begins, under the next version."""
        self._wiring_version += 1
        return self.wiring(info)

    def rewire(self) -> None:
        """Sends all workers their wiring again, after an actor that they call was replaced."""
        self._wiring_version += 1
        for running in self._running.of_kind("worker").values():
            if running.info is not None:
                self._job.tasks.create_task(self.wire(running))

    def is_wired(self, version: int) -> bool:
        """Whether a worker that reports this version has the newest wiring."""
        return version >= self._wiring_version

    def wire(self, worker: RunningActor) -> Coroutine[Any, Any, None]:
        """Sends one worker its wiring, once: its next pong shows whether it came."""
        return none_if_disconnected(worker.ref.call("wire", self.wiring(worker.info)))

    # ------------------------------------------------------------ the metadata actor, and connection actors

    async def send_nodes(self) -> None:
        """Sends the nodes that have workers to the metadata actor: each gets connection actors of its own."""
        if (metadata := self._running.begun(METADATA)) is not None:
            await self._deliver(METADATA, metadata, lambda: metadata.ref.call("set_nodes", *self._nodes()))
            self.nodes_sent.set()

    def _nodes(self) -> tuple[int, list[str]]:
        self._nodes_version += 1
        return self._nodes_version, self._running.worker_nodes()

    async def forget_worker(self, name: str) -> None:
        """Has the connection actors close the sockets of a worker that is gone."""
        for key, running in self._running.of_kind("connection").items():
            await self._deliver(key, running, partial(running.ref.call, "forget", [name]))

    async def _deliver(
        self, key: ActorKey, running: RunningActor, call: Callable[[], Awaitable[Any]]
    ) -> None:
        """Makes the call again when it gets lost, while this actor has the role."""
        await none_if_disconnected(retry_while(call, lambda: self._running.get(key) is running))


class ActorStarter:
    """Makes the constructor arguments of an actor and its first call, `begin`.

    `topics_known` is set once the metadata actor has found the cluster and the topics; no code of the user's runs before
    that.
    """

    def __init__(self, job: SupervisorContext, announcements: Announcements) -> None:
        self._job = job
        self._announcements = announcements
        self._created = job.clock()
        self._first_coordinator: int | None = None
        self.topics_known = asyncio.Event()

    def constructor(self, key: ActorKey, incarnation: int) -> tuple[Any, ...]:
        """Returns the arguments with which the actor is made."""
        job, plan, config = self._job, self._job.plan, self._config()
        setup = plan.setup(str(key), incarnation)
        if key.kind == "metadata":
            return config, plan.topics, plan.pattern, setup, plan.spec.registries, plan.spec.outputs.tiers
        if key.kind == "coordinator":
            identity = pack(Identity(plan.group_instance_id, job.report.member_id, plan.transactions))
            assert job.job_start is not None  # the metadata actor has sent it before a coordinator is wanted
            return (
                config,
                incarnation,
                plan.topics,
                plan.pattern,
                pack(job.job_start),
                identity,
                setup,
                plan.spec.outputs.tiers,
            )
        if key.kind in ("connection", "spare"):
            return config, setup
        return actor_name(key, incarnation), plan.spec, config, setup

    def _config(self) -> JobConfig:
        """The job's options; the brokers' present addresses are added to its bootstrap servers, all of which may have
        moved since the job was defined."""
        config, brokers = self._job.plan.config, self._job.running.brokers
        known = {format_address(*at) for at in brokers.values()}.difference(config.bootstrap_servers)
        return msgspec.structs.replace(config, bootstrap_servers=[*config.bootstrap_servers, *sorted(known)])

    async def begin(self, key: ActorKey, running: RunningActor) -> None:
        """Calls `begin` and returns when the actor works. Raises what keeps it from working."""
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
            await call("begin", pack(self._announcements.worker_plan()), recovering)
        elif key.kind == "worker":
            await call("begin", self._announcements.first_wiring(running.info))
        elif key.kind == "connection":
            await call("begin", key.number, *job.running.brokers[key])

    def _time_to_start(self) -> float:
        """Seconds for finding the cluster and its topics: the rest of `start_timeout_s`, or all of it once the job runs."""
        start_timeout_s = self._job.plan.config.start_timeout_s
        if self._job.started.done():
            return start_timeout_s
        return max(MARGIN_S, start_timeout_s - (self._job.clock() - self._created) - MARGIN_S)
