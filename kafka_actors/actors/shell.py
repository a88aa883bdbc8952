"""What all actors have in common: they answer pings, and one call stays pending for as long as they live."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading

import ray

from .messages import ActorInfo, pack

__all__ = ["ActorShell", "set_up_process"]

QUIT_S = 3.0


class ActorShell:
    """Base of the four actor classes. `live` never returns on its own: its failing is the notice of death."""

    async def live(self) -> None:
        await asyncio.Event().wait()

    async def whereabouts(self) -> bytes:
        return pack(ActorInfo(os.getpid(), ray.get_runtime_context().get_node_id()))

    async def quit(self) -> None:
        """Ends the process from inside, which Ray takes for what it is; a kill it reports as a failure.

        Ray waits for the calls that are under way, `live` among them, so those are given up first; what
        else may keep the process, code of the user's or a slow machine, has a moment.
        """
        end = threading.Timer(QUIT_S, os._exit, (0,))
        end.daemon = True
        end.start()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        ray.actor.exit_actor()

    async def ping(self) -> bytes | None:
        """None from a library actor that works; a worker answers more."""
        return None


def set_up_process(level: int) -> None:
    """Actors log to stderr, which Ray brings to the driver; one line an event.

    Ray has all its processes collect garbage every now and then, at the same moment: what is imported by now is
    none, and going through it would keep every actor from its work for a tenth of a second and more.
    """
    gc.freeze()
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
