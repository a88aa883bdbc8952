"""The actors that run at this moment, and what others are told of them: the worker plan, the wiring, the status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kafka_actors.job.messages import ActorInfo, CoordinatorStatus, DeathsInCall, WorkerPlan
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.status import ActorStatus, JobStatus, ScalingStatus, WorkerStatus
from kafka_actors.job.transport.links import Wiring

from .machines.supervision import ActorKey

__all__ = ["COORDINATOR", "METADATA", "RunningActor", "RunningActors", "actor_name"]

METADATA = ActorKey("metadata")
COORDINATOR = ActorKey("coordinator")


class RunningActor(msgspec.Struct):
    """A started actor: how to call it, where it is, and whether its `begin` has returned."""

    incarnation: int
    ref: Any
    info: ActorInfo | None = None
    begun: bool = False


def actor_name(key: ActorKey, incarnation: int) -> str:
    """As logs and `status()` name it: role and incarnation."""
    return f"{key}.{incarnation}"


class RunningActors(dict[ActorKey, RunningActor]):
    """Role → the actor that fills it now. `brokers`: where each connection actor is to connect to; `retiring`: the
    numbers of workers that give up what they have, because there are to be fewer; `lost`: nodes that are gone;
    `connected`: nodes whose connection actors have come up."""

    def __init__(self, plan: JobPlan) -> None:
        super().__init__()
        self.brokers: dict[ActorKey, tuple[str, int]] = {}
        self.retiring: set[int] = set()
        self.lost: set[str] = set()
        self.connected: set[str] = set()
        self._plan = plan
        self._plan_version = 0
        self.wiring_version = 0

    def of_kind(self, kind: str) -> dict[ActorKey, RunningActor]:
        """The actors of one kind, in the order of their numbers."""
        return {key: self[key] for key in sorted(self) if key.kind == kind}

    def begun(self, key: ActorKey) -> RunningActor | None:
        """The actor in this role if its `begin` has returned."""
        running = self.get(key)
        return running if running is not None and running.begun else None

    def worker_nodes(self) -> list[str]:
        """The nodes of the Ray cluster that have workers."""
        return sorted({r.info.node for r in self.of_kind("worker").values() if r.info is not None})

    def workers_on(self, node: str) -> list[str]:
        """The names of the workers there."""
        workers = self.of_kind("worker").items()
        return [
            actor_name(k, r.incarnation) for k, r in workers if r.info is not None and r.info.node == node
        ]

    def connects(self, node: str) -> bool:
        """Whether the last of the connection actors there has come up for the first time."""
        there = [key for key in self.brokers if key.node == node]
        if node in self.connected or not all(self.begun(key) for key in there):
            return False
        self.connected.add(node)
        return True

    def lose_node(self, node: str) -> None:
        """It is gone: no connections are wanted there."""
        self.lost.add(node)
        self.brokers = {key: address for key, address in self.brokers.items() if key.node != node}

    # ------------------------------------------------------------ what others are told

    def worker_plan(
        self,
        *,
        paused: bool,
        complete: bool,
        expected: int,
        ends_every_s: float | None,
        measured: bool,
        silent: Iterable[str],
        died: list[DeathsInCall],
    ) -> WorkerPlan:
        """For the coordinator, under the next version. `silent`: workers of which nothing is heard; `died`: calls in which
        workers died."""
        placed = {k: r for k, r in self.of_kind("worker").items() if r.info is not None}
        self._plan_version += 1
        return WorkerPlan(
            self._plan_version,
            {actor_name(k, r.incarnation): self._plan.capacity_of(k.number) for k, r in placed.items()},
            [actor_name(k, r.incarnation) for k, r in placed.items() if k.number in self.retiring],
            paused,
            complete,
            expected,
            ends_every_s,
            measured,
            silent=sorted(silent),
            unconnected=[
                actor_name(k, r.incarnation)
                for k, r in placed.items()
                if r.info is not None and r.info.node not in self.connected
            ],
            died=died,
            ready=[actor_name(k, r.incarnation) for k, r in placed.items() if r.begun],
        )

    def wiring(self, info: ActorInfo | None) -> Wiring:
        """For an actor at this place: whom it calls, under the wiring's version now."""
        metadata, coordinator = self.get(METADATA), self.begun(COORDINATOR)
        node = info.node if info is not None else ""
        return Wiring(
            self.wiring_version,
            metadata.ref.raw if metadata is not None and metadata.begun else None,
            metadata.incarnation if metadata is not None else 0,
            coordinator.ref.raw if coordinator is not None else None,
            {
                k.number: (r.incarnation, r.ref.raw)
                for k, r in self.of_kind("connection").items()
                if k.node == node and r.begun
            },
        )

    # ------------------------------------------------------------ what a user is shown

    def status(
        self,
        state: str,
        group: CoordinatorStatus | None,
        restarts: Mapping[ActorKey, int],
        scaling: ScalingStatus,
    ) -> JobStatus:
        """The job now; `group` is what its coordinator said last."""
        return JobStatus(
            state=state,
            group_id=self._plan.config.group_id or "",
            group=group.group if group else None,
            workers=[
                self._worker_status(key, running, group, restarts.get(key, 0))
                for key, running in self.of_kind("worker").items()
            ],
            partitions=group.partitions if group else [],
            records=group.records if group else 0,
            value_bytes=group.value_bytes if group else 0,
            connections=self._connections_by_node(),
            restarts={str(key): count for key, count in sorted(restarts.items())},
            actors={actor_name(k, self[k].incarnation): self._pid(k) for k in sorted(self)},
            scaling=scaling,
            others=[
                self._actor_status(key, restarts.get(key, 0)) for key in sorted(self) if key.kind != "worker"
            ],
            latency=group.latency if group else {},
            unconfirmed=[(p.topic, p.partition) for p in group.unconfirmed] if group else [],
        )

    def _pid(self, key: ActorKey) -> int | None:
        info = self[key].info
        return info.pid if info is not None else None

    def _actor_status(self, key: ActorKey, restarts: int) -> ActorStatus:
        running = self[key]
        info = running.info
        host, port = self.brokers.get(key, ("", 0))
        return ActorStatus(
            name=actor_name(key, running.incarnation),
            role=key.kind,
            pid=info.pid if info else None,
            node=info.node if info else key.node or None,
            ready=running.begun,
            restarts=restarts,
            broker=key.number if key.kind == "connection" else None,
            host=host,
            port=port,
        )

    def _connections_by_node(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for key, running in self.of_kind("connection").items():
            if running.begun:
                found.setdefault(key.node, []).append(key.number)
        return found

    def _worker_status(
        self, key: ActorKey, running: RunningActor, group: CoordinatorStatus | None, restarts: int
    ) -> WorkerStatus:
        name = actor_name(key, running.incarnation)
        progress = group.workers.get(name) if group else None
        held = [(p.topic, p.partition) for p in group.partitions if p.worker == name] if group else []
        return WorkerStatus(
            name=name,
            pid=running.info.pid if running.info else None,
            node=running.info.node if running.info else None,
            ready=running.begun,
            partitions=held,
            records=progress.records if progress else 0,
            value_bytes=progress.value_bytes if progress else 0,
            restarts=restarts,
            work_s=progress.work_s if progress else 0.0,
            retiring=key.number in self.retiring,
        )
