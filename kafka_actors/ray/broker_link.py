"""A worker's way to one broker, by the connection actor of its node: through its door, or else through Ray."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec
from ray.actor import ActorHandle

from kafka_actors.base.backoff import Backoff
from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch.messages import Answer, FetchReply, Outcome, Pull
from kafka_actors.job.messages import pack, unpack
from kafka_actors.job.transport.shm_client import SharedMemoryClient

from .links import call

__all__ = ["BrokerLink"]

RAY_PACE_MS = 10
"""How soon an answer with little may follow upon another: a call for every single record would leave no time to work on
them."""

DOOR_AGAIN_S = 10.0
"""How soon a door that could not be opened is tried again; each time twice as long, up to the longest."""
DOOR_AGAIN_MAX_S = 640.0

logger = logging.getLogger(__name__)


class BrokerLink:
    """A `RecordSource`. Made in the loop; pulls are sent in the order of their calls, which come one at a time."""

    def __init__(
        self,
        worker: str,
        handle: ActorHandle,
        note: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = worker
        self._handle = handle
        self._note = note
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._door: SharedMemoryClient | None = None
        self._clock = clock
        self._opening = Backoff(DOOR_AGAIN_S, DOOR_AGAIN_MAX_S)
        self._no_door = False
        self._in_loop: set[asyncio.Task[None]] = set()
        # Pulls that went into the loop, and those that went on from there: each is counted by one thread at a time.
        self._queued = self._sent = 0

    def fetch(self, pull: Pull, answered: Callable[[Outcome], None]) -> None:
        """Calls `answered` in the door's thread, or in the loop. It is called there, or in the loop."""
        door = self._door
        if door is not None and not door.closed and self._sent == self._queued:
            door.fetch(pull, answered)
            return
        self._queued += 1
        self._loop.call_soon_threadsafe(self._begin, pull, answered)

    def _begin(self, pull: Pull, answered: Callable[[Outcome], None]) -> None:
        task = asyncio.ensure_future(self._fetch(pull, answered))
        self._in_loop.add(task)
        task.add_done_callback(self._in_loop.discard)

    async def _fetch(self, pull: Pull, answered: Callable[[Outcome], None]) -> None:
        outcome: Outcome
        try:
            async with self._turn:
                try:
                    door = await self._open_door()
                    if door is not None:
                        door.fetch(pull, answered)
                        return
                    answering = asyncio.ensure_future(self._by_ray(pull))
                    await asyncio.sleep(0)  # it is sent before the next one
                finally:
                    self._sent += 1
            outcome = await answering
        except asyncio.CancelledError:
            outcome = DisconnectedError("the pull was cancelled")
        except Exception as error:
            outcome = error
        answered(outcome)

    async def _by_ray(self, pull: Pull) -> Answer:
        told = pack(msgspec.structs.replace(pull, pace_ms=RAY_PACE_MS))
        reply, records = await call(self._handle, "pull", self._worker, told)
        return unpack(reply, FetchReply), records

    async def _open_door(self) -> SharedMemoryClient | None:
        """None where there is none, or it can't be opened now: then all goes through Ray."""
        if self._door is not None and not self._door.closed:
            return self._door
        self._door = None
        if self._no_door or self._opening.remaining(self._clock()):
            return None
        try:
            name = await call(self._handle, "door")
            if name is not None:
                self._door = SharedMemoryClient.open(name, self._worker, self._note)
            self._no_door = name is None
            self._opening.succeeded()
        except (DisconnectedError, OSError) as error:
            pause = self._opening.failed(self._clock())
            logger.info("no door to the connection actor, pulls go through Ray for %g s: %s", pause, error)
        return self._door
