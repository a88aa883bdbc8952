"""Actors on Ray: every option an actor is started with stands here."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import (
    ActorUnavailableError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RuntimeEnvSetupError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kafka_actors.job.messages import ActorInfo
from kafka_actors.job.supervisor.machines.supervision import ActorKey
from kafka_actors.job.supervisor.runtime import ActorRef, Death

from .actors.actor import end_process, process_runs
from .links import call

__all__ = ["RayActorRef", "RayRuntime", "bundle_of"]

CLASSES = {
    "metadata": ("actors.metadata_actor", "MetadataActor"),
    "coordinator": ("actors.coordinator_actor", "CoordinatorActor"),
    "connection": ("actors.connection_actor", "ConnectionActor"),
    "spare": ("actors.connection_actor", "ConnectionActor"),
    "worker": ("actors.worker_actor", "WorkerActor"),
}
"""The module below this package, and the class in it, for each kind of actor."""
# Ray's own restarts are off: with them on, a call that is pending on a killed actor fails seconds later, and
# only __init__ runs again. The supervisor replaces actors, under a higher incarnation.
COMMON: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": 1000, "num_cpus": 0}
BESIDE_THE_SUPERVISOR = frozenset({"metadata", "coordinator"})
"""Their loss stands for a rebalance and a pause of all workers; the loss of the supervisor's node ends the job anyway."""
REFUSED = "Connection refused"
NODE_DIED = "its node has died"
LOW_MEMORY = "running low on memory"
"""In Ray's words, of which it makes no types, or not always."""
OUT_OF_MEMORY = Death(
    "its process is gone", how="ended by Ray, whose memory monitor saw that its node ran low on memory"
)


HEAD = "node:__internal_head__"
"""The resource that Ray gives to the head node alone."""
SLIVER = 0.001
"""A share of a CPU that fits beside any work, and nowhere where there are no CPUs."""


class RayActorRef:
    """A started Ray actor."""

    def __init__(self, handle: ActorHandle) -> None:
        self.raw = handle

    async def call(self, method: str, *args: Any) -> Any:
        return await call(self.raw, method, *args)

    async def died(self) -> Death:
        """A port at which nobody listens any more was closed with its process: where Ray itself is gone from the node,
        nobody but the kernel says so for a quarter of a minute."""
        try:
            await self.raw.live.remote()
        except ActorUnavailableError as error:
            if REFUSED in str(error):
                return Death("its process is gone, and its node's raylet", node_unknown=True)
            return Death("its process is gone", uncertain=True)
        except RuntimeEnvSetupError as error:
            return Death(f"its runtime_env failed: {last_line(error)}", init_failed=True)
        except RayActorError as error:
            if error.actor_init_failed:
                return Death(last_line(error), init_failed=True)
            if NODE_DIED in str(error):
                return Death("its node is gone", node_gone=True)
            return OUT_OF_MEMORY if LOW_MEMORY in str(error) else Death("its process is gone")
        except OutOfMemoryError:
            return OUT_OF_MEMORY
        except RayError as error:
            return Death(type(error).__name__)
        return Death("it ended")


class RayRuntime:
    """`resources` are `resources_per_worker`, in Ray's own names (num_cpus, num_gpus, memory, resources)."""

    def __init__(self, resources: Mapping[str, Any]) -> None:
        self._resources = dict(resources)
        self._asked = asked_of_ray(resources, ray.nodes())
        self.own_node: str = ray.get_runtime_context().get_node_id()

    def create(self, key: ActorKey, name: str, args: tuple[Any, ...]) -> ActorRef:
        options = dict(COMMON)
        if key.kind == "worker":
            options |= {"scheduling_strategy": "SPREAD", **self._asked}
        elif key.node:
            options["scheduling_strategy"] = on_node(key.node)
        elif key.kind in BESIDE_THE_SUPERVISOR:
            options["scheduling_strategy"] = on_node(self.own_node)
        ref = RayActorRef(ray.remote(class_of(key.kind)).options(**options).remote(*args))
        if key.kind == "worker":
            for kind in CLASSES:  # of those that follow, while its process comes up
                class_of(kind)
        return ref

    def kill(self, actor: ActorRef, info: ActorInfo | None) -> None:
        ray.kill(actor.raw, no_restart=True)
        if info is not None and info.node == self.own_node:
            end_process(info.pid)

    def is_running(self, pid: int) -> bool:
        return process_runs(pid)

    def why_not_placed(self, key: ActorKey) -> str:
        wanted = {"num_cpus": 0, **(self._asked if key.kind == "worker" else {})}
        needs = ", ".join(f"{name}={value}" for name, value in wanted.items() if value)
        total, free = ray.cluster_resources(), ray.available_resources()
        has = ", ".join(
            f"{name} {_amount(name, free.get(name, 0))} of {_amount(name, total[name])} free"
            for name in sorted(total)
            if name in ("CPU", "GPU", "memory") or name in self._resources.get("resources", {})
        )
        return f"{key} needs {needs or 'a process'}; the Ray cluster has {has or 'nothing'}"

    def request_resources(self, workers: int) -> None:
        from ray.autoscaler import sdk  # imports much that few jobs need

        if room := bundle_of(self._resources):
            sdk.request_resources(bundles=[room] * workers)


def class_of(kind: str) -> type:
    """Imports the class of the actors of one kind: `kind` is a key of `CLASSES`."""
    module, name = CLASSES[kind]
    found: type = getattr(importlib.import_module(f".{module}", __package__), name)
    return found


def asked_of_ray(resources: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The resources with which a worker is started; `nodes` as `ray.nodes()` lists them.

    Operators give a head node no CPUs to keep work off it, but Ray places there what asks for none. So a worker of such
    a cluster asks for a sliver of a CPU, unless `num_cpus` is given.
    """
    heads = [node["Resources"] for node in nodes if node["Alive"] and HEAD in node["Resources"]]
    without = heads and not any(head.get("CPU") for head in heads)
    return {**({"num_cpus": SLIVER} if without else {}), **resources}


def bundle_of(resources: Mapping[str, Any]) -> dict[str, float]:
    """What a worker takes of a Ray cluster, as the autoscaler names it; nothing for one without resources, which
    has a place on any node."""
    room = {
        "CPU": resources.get("num_cpus") or 0,
        "GPU": resources.get("num_gpus") or 0,
        "memory": resources.get("memory") or 0,
        **(resources.get("resources") or {}),
    }
    if kind := resources.get("accelerator_type"):
        room[f"accelerator_type:{kind}"] = 0.001  # as Ray itself asks for one
    return {name: amount for name, amount in room.items() if amount}


def on_node(node: str) -> NodeAffinitySchedulingStrategy:
    """There and nowhere else."""
    return NodeAffinitySchedulingStrategy(node, soft=False)


def _amount(name: str, value: float) -> str:
    return f"{value / 2**30:.1f} GiB" if name == "memory" else f"{value:g}"


def last_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]
