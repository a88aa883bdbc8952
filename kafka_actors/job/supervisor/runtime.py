"""`Runtime`, the Protocol of a place where actors run, and calls of actors that may get lost.

`RayRuntime` is the real one; tests have a fake without processes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from kafka_actors.errors import DisconnectedError
from kafka_actors.job.messages import ActorInfo

from .machines.supervision import ActorKey

__all__ = ["ActorRef", "Death", "Runtime", "bounded", "none_if_disconnected", "retry_while"]

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


async def bounded(call: Awaitable[Any], timeout_s: float) -> Any:
    """Awaits a call at the end of a job; logs and returns None if it takes longer or fails, because the end must come."""
    try:
        async with asyncio.timeout(timeout_s):
            return await call
    except TimeoutError:
        logger.warning("a part of the job did not stop within %.1f s and is ended", timeout_s)
    except Exception as error:
        logger.warning("while stopping: %s: %s", type(error).__name__, error)
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
    """Creates, probes and kills actors. `own_node`: the id of the supervisor's node."""

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
