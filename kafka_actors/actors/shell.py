"""What all actors have in common: they answer pings, and one call stays pending for as long as they live."""

from __future__ import annotations

import asyncio
import logging
import os

import ray

from .messages import ActorInfo, pack

__all__ = ["ActorShell", "set_up_logging"]


class ActorShell:
    """Base of the four actor classes. `live` never returns on its own: its failing is the notice of death."""

    async def live(self) -> None:
        await asyncio.Event().wait()

    async def whereabouts(self) -> bytes:
        return pack(ActorInfo(os.getpid(), ray.get_runtime_context().get_node_id()))

    async def quit(self) -> None:
        """Ends the process from inside, which Ray takes for what it is; a kill it reports as a failure."""
        ray.actor.exit_actor()

    async def ping(self) -> bytes | None:
        """None from a library actor that works; a worker answers more."""
        return None


def set_up_logging(level: int) -> None:
    """Actors log to stderr, which Ray brings to the driver; one line an event."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
