"""Calls by which a supervisor watches its actors: pings, probes of silent processes, and crash reports of dead workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafka_actors.errors import DisconnectedError
from kafka_actors.job.messages import ActorInfo, CrashReport, WorkerPong, unpack

from . import runtime
from .announcements import Announcements
from .context import SupervisorContext
from .machines.supervision import ActorKey, PingActor, ProbeProcess
from .runtime import Death, RunningActor, actor_name, none_if_disconnected

__all__ = ["HealthChecks"]

KILLED = "SIGKILL, perhaps of the kernel for want of memory, or an end in native code"
"""Cause of death of a process that left no crash report."""

CRASH_REPORT_S = 0.5
"""Time for other actors of its node to tell about an actor that may be dead."""

PROBE_S = 3.0
"""Time for the answer to a probe: a later one says nothing about the process now."""


class HealthChecks:
    """Pings the actors of one job, looks at their processes, and awaits their deaths; `wake` is called when there is news."""

    def __init__(
        self,
        job: SupervisorContext,
        announcements: Announcements,
        wake: Callable[[], None],
    ) -> None:
        self._job = job
        self._machine = job.machine
        self._running = job.running
        self._clock = job.clock
        self._announcements = announcements
        self._wake = wake

    async def ping(self, ping: PingActor, running: RunningActor) -> None:
        key, incarnation = ping.key, ping.incarnation
        try:
            answer = await running.ref.call("ping")
        except DisconnectedError:  # a dead actor has a death notice of its own
            self._machine.ping_failed(key, incarnation, self._clock())
            self._wake()
            return
        if self._running.get(key) is not running:
            return
        self._counted(key, running, answer)
        if key.kind == "worker":
            pong = unpack(answer, WorkerPong)
            ready = pong.ready and running.begun
            self._machine.ponged(key, incarnation, self._clock(), ready=ready, busy_s=pong.busy_s)
            if running.begun and not self._announcements.is_wired(pong.wiring):
                await self._announcements.wire(running)
        else:
            self._machine.ponged(key, incarnation, self._clock(), ready=running.begun)
        self._wake()

    async def probe(self, probe: ProbeProcess, running: RunningActor) -> None:
        runs = await self._runs(running, probe.witness)
        if runs is not None:
            self._machine.probed(probe.key, probe.incarnation, runs, self._clock())
            self._wake()

    async def death(self, key: ActorKey, running: RunningActor) -> Death:
        """Returns when the actor is dead. Where Ray may only have lost the call, the process is probed."""
        while True:
            death: Death = await running.ref.died()
            if not death.uncertain:
                return death
            node = running.info.node if running.info is not None else key.node
            # A neighbour on the same lost node can't answer: Ray itself may know more in the next moment.
            neighbour = self._machine.neighbour(node, self._clock(), key)
            if await self._runs(running, neighbour, limit_s=CRASH_REPORT_S) is False:
                return death
            await asyncio.sleep(runtime.AGAIN_S)

    async def _runs(
        self, running: RunningActor, witness: ActorKey | None, limit_s: float = PROBE_S
    ) -> bool | None:
        """Whether the actor's process exists and is not stopped. None where nobody can tell within `limit_s`: the silence of
        the witness says nothing about the actor."""
        if running.info is None:
            return None
        info = running.info
        if witness is None:
            return self._job.runtime.is_running(info.pid) if info.node == self._job.runtime.own_node else None
        if (other := self._running.get(witness)) is None:
            return None
        try:
            async with asyncio.timeout(limit_s):
                runs: bool = await other.ref.call("runs", info.pid)
        except (TimeoutError, DisconnectedError):
            return None
        return runs

    async def calls_at_death(self, key: ActorKey, running: RunningActor, death: Death) -> str:
        """Counts the calls that a dead worker had in hand, and describes them. Connection actors of its node have the
        worker's call record."""
        report = await self._crash_report(actor_name(key, running.incarnation), running.info)
        if report is None:
            return ""
        how = report.ended or death.how or (KILLED if report.calls else "")
        died = self._job.deaths.count(report.calls, how)
        return "".join(f": {part}" for part in (how, self._job.deaths.describe(died)) if part)

    async def _crash_report(self, name: str, info: ActorInfo | None) -> CrashReport | None:
        connections = [
            connection.ref
            for key, connection in self._running.of_kind("connection").items()
            if info is not None and key.node == info.node and connection.begun
        ]
        try:
            async with asyncio.timeout(CRASH_REPORT_S):
                for answer in asyncio.as_completed(
                    [none_if_disconnected(ref.call("crash_report", name)) for ref in connections]
                ):
                    if (report := await answer) is not None:
                        return unpack(report, CrashReport)
        except TimeoutError:
            pass
        return None

    async def last_counts(self) -> None:
        """Takes what actors counted since the last pings: of a short run that may be all."""
        if self._job.telemetry.on:
            counting = [(k, r) for k, r in self._running.items() if k.kind in ("worker", "coordinator")]
            answers = [none_if_disconnected(running.ref.call("ping")) for _, running in counting]
            for (key, running), answer in zip(counting, await asyncio.gather(*answers), strict=True):
                self._counted(key, running, answer)

    def _counted(self, key: ActorKey, running: RunningActor, pong: bytes | None) -> None:
        """Takes the tally in an actor's pong; an actor that doesn't count has none."""
        if pong is not None:
            tally = unpack(pong, WorkerPong).tally if key.kind == "worker" else pong
            self._job.telemetry.counted(actor_name(key, running.incarnation), tally)
