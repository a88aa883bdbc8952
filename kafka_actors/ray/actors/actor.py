"""`ActorShell`, the base of a job's Ray actors, and set-up and signals of their processes."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

import ray

from kafka_actors.job.actor_setup import ProcessSetup
from kafka_actors.job.messages import ActorInfo, pack
from kafka_actors.telemetry import configure, flush
from kafka_actors.telemetry.logs import TextFormatter, set_log_origin

__all__ = ["ActorShell", "end_process", "once", "process_runs", "resource_of", "set_up_process"]

QUIT_S = 3.0
WAKING_S = 0.2
"""A second look comes after this time: the processes of a node that is continued don't wake at the same moment."""

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def once(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Wraps a method so that it runs once; each call gets its result. When Ray loses an answer, the call is made again."""
    name = f"_{method.__name__}_once"

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        task: asyncio.Task[R] | None = vars(self).get(name)
        if task is None:
            task = vars(self)[name] = asyncio.ensure_future(method(self, *args, **kwargs))
        return await asyncio.shield(task)

    update_wrapper(call, method)
    return call


class ActorShell:
    """Methods that all of a job's actors have."""

    async def live(self) -> None:
        """Never returns: the supervisor keeps this call pending, and its failure is the notice of the actor's death."""
        await asyncio.Event().wait()

    async def whereabouts(self) -> bytes:
        """Returns a packed `ActorInfo`."""
        return pack(ActorInfo(os.getpid(), ray.get_runtime_context().get_node_id()))

    async def runs(self, pid: int) -> bool:
        """Whether the process of another actor on this node exists and is not stopped."""
        if not process_runs(pid):
            await asyncio.sleep(WAKING_S)
        return process_runs(pid)

    async def end(self, pid: int) -> None:
        """Sends SIGKILL to another actor of this node: Ray's own kill reaches a stopped process only once it is continued."""
        end_process(pid)

    async def quit(self) -> None:
        """Ends the process from inside: Ray reports a kill as a failure, and this not.

        Ray waits for calls that are under way, `live` among them, so these are cancelled first. Whatever else keeps the
        process, code of the user's or a slow machine, has `QUIT_S` seconds.
        """
        end = threading.Timer(QUIT_S, os._exit, (0,))
        end.daemon = True
        end.start()
        await asyncio.to_thread(flush)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        ray.actor.exit_actor()

    async def ping(self) -> bytes | None:
        """Returns None; the coordinator and workers return what they count."""
        return None


def set_up_process(setup: ProcessSetup) -> None:
    """Sets up logs and telemetry of an actor's process.

    Logs go to stderr, which Ray brings to the driver. Traces and logs are exported from this process, metrics by the
    supervisor.

    Imported objects are frozen: Ray has all its processes collect garbage at the same moment, and a walk through them
    would stop every actor for a tenth of a second and more.
    """
    gc.freeze()
    set_log_origin(setup.origin)
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter())
    logging.basicConfig(level=setup.log_level, handlers=[handler])
    if setup.telemetry is not None:
        origin = setup.origin
        name = f"{origin.actor}.{origin.incarnation}"
        configure(
            setup.telemetry,
            attributes=resource_of(origin.group, origin.job, name),
            signals=("traces", "logs"),
        )


def resource_of(group: str, job: str, instance: str) -> dict[str, str]:
    """Returns the OpenTelemetry resource attributes of a job's process: its job, its part of it, and where Ray runs it."""
    context = ray.get_runtime_context()
    named = {
        "messaging.consumer.group.name": group,
        "kafka_actors.job": job,
        "service.instance.id": f"{job or group}/{instance}",
        "ray.job.id": context.get_job_id(),
        "ray.node.id": context.get_node_id(),
    }
    return {name: value for name, value in named.items() if value}


def process_runs(pid: int) -> bool:
    """Reads from /proc whether a process of this machine runs: False if it is gone, stopped (state T) or dead (Z, X).

    One that a debugger or a profiler holds (t) counts as running: it goes on when the debugger lets it.
    """
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "TZX"
    except OSError:
        return False


def end_process(pid: int) -> None:
    """Sends SIGKILL to a process of this machine, if it is one of Ray's actors."""
    try:
        with open(f"/proc/{pid}/cmdline") as cmdline:
            if "ray::" not in cmdline.read():
                return  # the pid belongs to another process by now
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
