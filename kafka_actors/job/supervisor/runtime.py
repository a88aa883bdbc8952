"""What the supervisor needs of a place where actors run. `RayRuntime` is the real one."""

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
    """A call whose failure has a notice of death of its own: None then."""
    try:
        return await call
    except DisconnectedError:
        return None


async def retry_while(call: Callable[[], Awaitable[R]], lasts: Callable[[], bool]) -> R:
    """A call that is made again when it gets lost, while `lasts` says that it still matters and its actor isn't known to
    be dead. Raises `DisconnectedError` then."""
    while True:
        try:
            return await call()
        except DisconnectedError:
            if not lasts():
                raise
        await asyncio.sleep(AGAIN_S)


async def bounded(call: Awaitable[Any], timeout_s: float) -> Any:
    """A call of a job that ends, which does so without it: None if it takes longer, or fails."""
    try:
        async with asyncio.timeout(timeout_s):
            return await call
    except TimeoutError:
        logger.warning("a part of the job did not stop within %.1f s and is ended", timeout_s)
    except Exception as error:
        logger.warning("while stopping: %s: %s", type(error).__name__, error)
    return None


class Death(NamedTuple):
    """Why an actor is dead. `init_failed`: it could not be made in the first place, and the reason says why. `node_gone`: with
    its node; `node_unknown`: Ray has not said so, so its node may be gone; `uncertain`: the call may only have got lost. `how`: how
    its process ended, where Ray tells."""

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
        """What other actors are given to call it by."""
        ...

    def call(self, method: str, *args: Any) -> Awaitable[Any]:
        """Raises `DisconnectedError` once the actor is dead, else what the method raised."""
        ...

    async def died(self) -> Death:
        """Returns when the actor is dead, or may be."""
        ...


class Runtime(Protocol):
    """Creates, probes and kills actors. `here`: the supervisor's own node."""

    own_node: str

    def create(self, key: ActorKey, name: str, args: tuple[Any, ...]) -> ActorRef: ...

    def kill(self, actor: ActorRef, info: ActorInfo | None) -> None:
        """Ends the actor's process; on the supervisor's own node a stopped one, too. Never waits."""
        ...

    def is_running(self, pid: int) -> bool:
        """Whether the process exists on the supervisor's own node and is not stopped."""
        ...

    def why_not_placed(self, key: ActorKey) -> str:
        """The resource that the actor is waiting for, in words."""
        ...

    def request_resources(self, workers: int) -> None:
        """Room for so many workers is to be made; 0 takes the request back. May block for a moment."""
        ...
