"""`Runtime`, the Protocol of what starts and ends actors, and `RunningActors`, a job's actors that run now.

`RayRuntime` is the real one; tests have a fake without processes. Calls of actors may get lost: `retry_while` makes them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from kafka_actors.errors import DisconnectedError
from kafka_actors.job.messages import ActorInfo, CoordinatorStatus
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.status import ActorStatus, JobStatus, ScalingStatus, TransactionStatus, WorkerStatus

from .machines.supervision import ActorKey

__all__ = [
    "COORDINATOR",
    "METADATA",
    "ActorRef",
    "Death",
    "RunningActor",
    "RunningActors",
    "Runtime",
    "actor_name",
    "bounded",
    "none_if_disconnected",
    "retry_while",
]

logger = logging.getLogger(__name__)

R = TypeVar("R")

AGAIN_S = 0.2


async def none_if_disconnected(call: Awaitable[Any]) -> Any:
    """Awaits a call of an actor; None if the actor is dead, whose death notice comes separately."""
    try:
        return await call
    except DisconnectedError:
        return None


async def retry_while(call: Callable[[], Awaitable[R]], lasts: Callable[[], bool]) -> R:
    """Makes a call again each time that it gets lost, while `lasts()`: the call still matters, and its actor isn't known to
    be dead. Raises `DisconnectedError` otherwise."""
    while True:
        try:
            return await call()
        except DisconnectedError:
            if not lasts():
                raise
        await asyncio.sleep(AGAIN_S)


async def bounded(call: Awaitable[Any], timeout_s: float, what: str, then: str) -> Any:
    """Awaits a call at the end of a job; logs and returns None if it takes longer or fails, because the end must come. The log
    line says `what` it was, and what comes of it and can be done: `then`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await call
    except TimeoutError:
        logger.warning("%s did not end within %.1f s: %s", what, timeout_s, then)
    except Exception as error:
        logger.warning("%s failed: %s: %s; %s", what, type(error).__name__, error, then)
    return None


class Death(NamedTuple):
    """The end of an actor, with its `reason` in words.

    `init_failed`: it could not be created. `node_gone`: it died with its node. `node_unknown`: Ray has not reported the death
    yet, so the node may be gone too. `uncertain`: Ray may only have lost the call. `how`: how the process ended, where Ray
    tells.
    """

    reason: str
    init_failed: bool = False
    node_gone: bool = False
    node_unknown: bool = False
    uncertain: bool = False
    how: str = ""


class ActorRef(Protocol):
    """One started actor."""

    @property
    def raw(self) -> Any:
        """The handle by which other actors call this one."""
        ...

    def call(self, method: str, *args: Any) -> Awaitable[Any]:
        """Calls a method. Raises `DisconnectedError` once the actor is dead, else what the method raised."""
        ...

    async def died(self) -> Death:
        """Returns when the actor is dead, or may be."""
        ...


class Runtime(Protocol):
    """Creates, probes and kills actors. `own_node`: the id of the supervisor's node, empty where it is on none."""

    own_node: str

    def create(self, key: ActorKey, name: str, args: tuple[Any, ...]) -> ActorRef: ...

    def kill(self, actor: ActorRef, info: ActorInfo | None) -> None:
        """Ends the actor's process without waiting; on the supervisor's own node also a stopped one."""
        ...

    def is_running(self, pid: int) -> bool:
        """Whether the process exists on the supervisor's own node and is not stopped."""
        ...

    def why_not_placed(self, key: ActorKey) -> str:
        """Describes the resources that the actor needs, and those that the cluster has."""
        ...

    def request_resources(self, workers: int) -> None:
        """Asks the cluster's autoscaler for room for so many workers; 0 takes the request back. May block for a moment."""
        ...


METADATA = ActorKey("metadata")
COORDINATOR = ActorKey("coordinator")


class RunningActor(msgspec.Struct):
    """A started actor. `ref` calls it; `info` is None until it has answered from its node; `begun`: its `begin` has
    returned."""

    incarnation: int
    ref: Any
    info: ActorInfo | None = None
    begun: bool = False


def actor_name(key: ActorKey, incarnation: int) -> str:
    """Role and incarnation, such as `worker-0.2`: the name in logs and in `status()`."""
    return f"{key}.{incarnation}"


class RunningActors(dict[ActorKey, RunningActor]):
    """Role → the actor that fills it now.

    `brokers`: host and port that each connection actor is to connect to. `retiring`: numbers of the workers that are
    drained because the job is to have fewer. `lost`: nodes that are gone. `connected`: nodes on which all connection
    actors have come up once.
    """

    def __init__(self, plan: JobPlan) -> None:
        super().__init__()
        self.brokers: dict[ActorKey, tuple[str, int]] = {}
        self.retiring: set[int] = set()
        self.lost: set[str] = set()
        self.connected: set[str] = set()
        self._plan = plan

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
        """The names of the workers on a node."""
        workers = self.of_kind("worker").items()
        return [
            actor_name(k, r.incarnation) for k, r in workers if r.info is not None and r.info.node == node
        ]

    def connects(self, node: str) -> bool:
        """Marks the node as connected when its last connection actor has come up. Returns whether that is new."""
        brokers = [key for key in self.brokers if key.node == node]
        if node in self.connected or not all(self.begun(key) for key in brokers):
            return False
        self.connected.add(node)
        return True

    def lose_node(self, node: str) -> None:
        """Marks a node as gone: no connection actors are wanted there."""
        self.lost.add(node)
        self.brokers = {key: address for key, address in self.brokers.items() if key.node != node}

    # ------------------------------------------------------------ status

    def status(
        self,
        state: str,
        group: CoordinatorStatus | None,
        restarts: Mapping[ActorKey, int],
        scaling: ScalingStatus,
    ) -> JobStatus:
        """Makes the job's status; `group` is the coordinator's last answer."""
        held: dict[str, list[tuple[str, int]]] = {}
        for p in group.partitions if group else ():
            for name in (p.worker or "").split(", "):
                held.setdefault(name, []).append((p.topic, p.partition))
        return JobStatus(
            state=state,
            group_id=self._plan.config.group_id or "",
            group=group.group if group else None,
            workers=[
                self._worker_status(key, running, group, held, restarts.get(key, 0))
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
            transactions=_transactions(group),
            schemas=self._plan.spec.schemas,
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
        self,
        key: ActorKey,
        running: RunningActor,
        group: CoordinatorStatus | None,
        held: Mapping[str, list[tuple[str, int]]],
        restarts: int,
    ) -> WorkerStatus:
        name = actor_name(key, running.incarnation)
        progress = group.workers.get(name) if group else None
        return WorkerStatus(
            name=name,
            pid=running.info.pid if running.info else None,
            node=running.info.node if running.info else None,
            ready=running.begun,
            partitions=held.get(name, []),
            records=progress.records if progress else 0,
            value_bytes=progress.value_bytes if progress else 0,
            restarts=restarts,
            work_s=progress.work_s if progress else 0.0,
            retiring=key.number in self.retiring,
        )


def _transactions(group: CoordinatorStatus | None) -> TransactionStatus | None:
    found = None if group is None else group.transactions
    if found is None:
        return None
    return TransactionStatus(
        committed=found.committed,
        aborted=found.aborted,
        repeated=found.repeated,
        cause=found.cause,
        open_s=found.open_s,
        committed_ago_s=found.ago_s,
    )
