"""`RayRuntime`: creates, watches and kills a job's actors on Ray. Has all options with which actors are created."""

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
from ray.util.client import ray as ray_client
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
"""Kind of actor → its module below this package, and its class."""
# Ray's own restarts are off: with them on, a call that is pending on a killed actor fails seconds later, and
# only __init__ runs again. The supervisor replaces actors, under a higher incarnation.
COMMON: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": 1000, "num_cpus": 0}
BESIDE_THE_SUPERVISOR = frozenset({"metadata", "coordinator"})
"""Kinds that run on the supervisor's node: their loss pauses all workers, and the loss of that node ends the job anyway."""
REFUSED = "Connection refused"
NODE_DIED = "its node has died"
LOW_MEMORY = "running low on memory"
"""Words in Ray's messages, for causes that have no error type of their own, or not always."""
OUT_OF_MEMORY = Death(
    "its process is gone", how="ended by Ray, whose memory monitor saw that its node ran low on memory"
)


HEAD_NODE = "node:__internal_head__"
"""The resource that only the head node has."""
SMALL_CPU_SHARE = 0.001
"""A share of a CPU that fits beside any work, but not on a node without CPUs."""


class RayActorRef:
    """`ActorRef` of a Ray actor."""

    def __init__(self, handle: ActorHandle) -> None:
        self.raw = handle

    async def call(self, method: str, *args: Any) -> Any:
        return await call(self.raw, method, *args)

    async def died(self) -> Death:
        """Returns when the actor is dead, or may be.

        A refused connection shows that the actor's process is gone. If its node's raylet is gone too, Ray itself reports
        the death only after a quarter of a minute.
        """
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
    """`Runtime` on Ray. `resources`: what a worker takes, in Ray's names (num_cpus, num_gpus, memory, resources)."""

    def __init__(self, resources: Mapping[str, Any]) -> None:
        self._resources = dict(resources)
        self._requested = requested_resources(resources, ray.nodes())
        self._near: str = ray.get_runtime_context().get_node_id()
        # A driver over Ray Client is on none of its nodes: what stands under a pid in its /proc is another process.
        self.own_node = "" if ray_client.is_connected() else self._near

    def create(self, key: ActorKey, name: str, args: tuple[Any, ...]) -> ActorRef:
        options = dict(COMMON)
        if key.kind == "worker":
            options |= {"scheduling_strategy": "SPREAD", **self._requested}
        elif key.node:
            options["scheduling_strategy"] = on_node(key.node)
        elif key.kind in BESIDE_THE_SUPERVISOR:
            options["scheduling_strategy"] = on_node(self._near)
        ref = RayActorRef(ray.remote(class_of(key.kind)).options(**options).remote(*args))
        if key.kind == "worker":
            for kind in CLASSES:  # imported for later, while the worker's process comes up
                class_of(kind)
        return ref

    def kill(self, actor: ActorRef, info: ActorInfo | None) -> None:
        ray.kill(actor.raw, no_restart=True)
        if info is not None and info.node == self.own_node:
            end_process(info.pid)

    def is_running(self, pid: int) -> bool:
        return process_runs(pid)

    def why_not_placed(self, key: ActorKey) -> str:
        wanted = {"num_cpus": 0, **(self._requested if key.kind == "worker" else {})}
        needs = ", ".join(
            f"{name}={value}" for name, value in wanted.items() if value and name != "runtime_env"
        )
        total, free = ray.cluster_resources(), ray.available_resources()
        has = ", ".join(
            f"{name} {_amount(name, free.get(name, 0))} of {_amount(name, total[name])} free"
            for name in sorted(total)
            if name in ("CPU", "GPU", "memory") or name in self._resources.get("resources", {})
        )
        enough = all(free.get(name, 0) >= amount for name, amount in bundle_of(wanted).items())
        slow = ": its process is still starting, or no single node has all of that free" if enough else ""
        return f"{key} needs {needs or 'a process'}; the Ray cluster has {has or 'nothing'}{slow}"

    def request_resources(self, workers: int) -> None:
        from ray.autoscaler import sdk  # imports much that few jobs need

        if bundle := bundle_of(self._resources):
            sdk.request_resources(bundles=[bundle] * workers)


def class_of(kind: str) -> type:
    """Imports the class of the actors of one kind, a key of `CLASSES`."""
    module, name = CLASSES[kind]
    found: type = getattr(importlib.import_module(f".{module}", __package__), name)
    return found


def requested_resources(resources: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the resources with which a worker is created. `nodes`: as `ray.nodes()` lists them.

    Operators give a head node no CPUs to keep work off it, but Ray places actors there that request none. So in such a cluster
    a worker requests a small share of a CPU, unless `num_cpus` is set.
    """
    heads = [node["Resources"] for node in nodes if node["Alive"] and HEAD_NODE in node["Resources"]]
    without = heads and not any(head.get("CPU") for head in heads)
    return {**({"num_cpus": SMALL_CPU_SHARE} if without else {}), **resources}


def bundle_of(resources: Mapping[str, Any]) -> dict[str, float]:
    """Returns a worker's resources as Ray's autoscaler names them; empty for a worker without resources, which any node can
    take."""
    bundle = {
        "CPU": resources.get("num_cpus") or 0,
        "GPU": resources.get("num_gpus") or 0,
        "memory": resources.get("memory") or 0,
        **(resources.get("resources") or {}),
    }
    if kind := resources.get("accelerator_type"):
        bundle[f"accelerator_type:{kind}"] = 0.001  # as much as Ray itself requests
    return {name: amount for name, amount in bundle.items() if amount}


def on_node(node: str) -> NodeAffinitySchedulingStrategy:
    """Returns the strategy that places an actor on this node and nowhere else."""
    return NodeAffinitySchedulingStrategy(node, soft=False)


def _amount(name: str, value: float) -> str:
    return f"{value / 2**30:.1f} GiB" if name == "memory" else f"{value:g}"


def last_line(error: Exception) -> str:
    """Returns the last line of an error's text: Ray's have a traceback before it."""
    return str(error).strip().rpartition("\n")[2]
