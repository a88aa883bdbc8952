"""What all actors have in common: they answer pings, and one call stays pending for as long as they live."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

import ray

from kafka_actors.job.messages import ActorInfo, pack
from kafka_actors.job.process_setup import ProcessSetup
from kafka_actors.job.supervisor.local_processes import end_process, process_runs
from kafka_actors.telemetry import configure, flush
from kafka_actors.telemetry.logs import TextFormatter, set_log_origin

__all__ = ["ActorShell", "once", "resource_of", "set_up_process"]

QUIT_S = 3.0
WAKING_S = 0.2
"""The processes of a node that is continued don't wake at the same moment."""

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def once(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """A method of an actor that acts once and answers each of its calls: when Ray loses an answer, the call comes again."""
    name = f"_{method.__name__}_once"

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        task: asyncio.Task[R] | None = vars(self).get(name)
        if task is None:
            task = vars(self)[name] = asyncio.ensure_future(method(self, *args, **kwargs))
        return await asyncio.shield(task)

    update_wrapper(call, method)
    return call


class ActorShell:
    """Base of the four actor classes. `live` never returns on its own: its failing is the notice of death."""

    async def live(self) -> None:
        await asyncio.Event().wait()

    async def whereabouts(self) -> bytes:
        return pack(ActorInfo(os.getpid(), ray.get_runtime_context().get_node_id()))

    async def runs(self, pid: int) -> bool:
        """Whether another actor's process on this node is there, and not stopped."""
        if not process_runs(pid):
            await asyncio.sleep(WAKING_S)
        return process_runs(pid)

    async def end(self, pid: int) -> None:
        """SIGKILL to another actor of this node: what Ray sends, a stopped process gets only when it is continued."""
        end_process(pid)

    async def quit(self) -> None:
        """Ends the process from inside, which Ray takes for what it is; a kill it reports as a failure.

        Ray waits for the calls that are under way, `live` among them, so those are given up first; what
        else may keep the process, code of the user's or a slow machine, has a moment.
        """
        end = threading.Timer(QUIT_S, os._exit, (0,))
        end.daemon = True
        end.start()
        await asyncio.to_thread(flush)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        ray.actor.exit_actor()

    async def ping(self) -> bytes | None:
        """None from a library actor that works; a worker answers more."""
        return None


def set_up_process(setup: ProcessSetup) -> None:
    """Actors log to stderr, which Ray brings to the driver; one line an event. Traces and logs go to a collector from
    here, where there is one; what is counted goes by the supervisor.

    Ray has all its processes collect garbage every now and then, at the same moment: what is imported by now is
    none, and going through it would keep every actor from its work for a tenth of a second and more.
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
    """What the telemetry of a process of a job says of it: which part of which job, and where Ray runs it."""
    context = ray.get_runtime_context()
    named = {
        "messaging.consumer.group.name": group,
        "kafka_actors.job": job,
        "service.instance.id": f"{job or group}/{instance}",
        "ray.job.id": context.get_job_id(),
        "ray.node.id": context.get_node_id(),
    }
    return {name: value for name, value in named.items() if value}
