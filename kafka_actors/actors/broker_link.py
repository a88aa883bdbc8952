"""A worker's way to one broker: through the connection actor of its node, by its door or through Ray."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec
from ray.actor import ActorHandle

from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch.messages import FetchReply, Pull

from .door import Answer, Door
from .messages import pack, unpack
from .ray_links import call

__all__ = ["BrokerLink"]

LITTLE_BYTES = 64 * 1024
MUCH_BYTES = 512 * 1024
"""Of one answer: below the first the next pull goes to the door, from the second on back to Ray."""
RAY_PACE_MS = 10
DOOR_PACE_MS = 1
"""How soon an answer with little may follow upon another: a call for every single record would leave no time to work
on them, through Ray least of all."""

logger = logging.getLogger(__name__)


class BrokerLink:
    """A `RecordSource`. Pulls are sent in the order of their calls, and what is under way one way is answered before
    one goes the other."""

    def __init__(self, worker: str, handle: ActorHandle) -> None:
        self._worker = worker
        self._handle = handle
        self._turn = asyncio.Lock()
        self._door: Door | None = None
        self._has_door = True
        self._little = False
        self._last: asyncio.Future[list[Answer]] | None = None
        self._last_by_door = False
        self._pulling: set[asyncio.Task[list[Answer]]] = set()

    def fetch(self, pull: Pull, answered: Callable[[list[Answer] | Exception], None]) -> None:
        """Calls `answered` in the loop, in which this is called."""
        pulling = asyncio.ensure_future(self.pull(pull))
        self._pulling.add(pulling)
        pulling.add_done_callback(self._pulling.discard)
        pulling.add_done_callback(lambda done: answered(_outcome(done)))

    async def pull(self, pull: Pull) -> list[Answer]:
        """The answers with the bytes of their partitions. Raises `DisconnectedError`, and what the login raised."""
        async with self._turn:
            # A stream begins through Ray, which brings errors as they were raised.
            door = await self._open_door() if self._little and pull.sequence else None
            if self._last is not None and self._last_by_door is not (door is not None):
                await asyncio.wait([self._last])
            answering = self._last = asyncio.ensure_future(
                self._by_ray(pull) if door is None else self._by_door(door, pull)
            )
            self._last_by_door = door is not None
            await asyncio.sleep(0)  # it is sent before the next one
        return await answering

    async def _by_ray(self, pull: Pull) -> list[Answer]:
        told = pack(msgspec.structs.replace(pull, pace_ms=RAY_PACE_MS))
        packed = await call(self._handle, "pull", self._worker, told)
        answers = [(unpack(reply, FetchReply), records) for reply, records in packed]
        self._little = _size_of(answers) < LITTLE_BYTES
        return answers

    async def _by_door(self, door: Door, pull: Pull) -> list[Answer]:
        answers = await door.pull(msgspec.structs.replace(pull, pace_ms=DOOR_PACE_MS, fetches=1))
        self._little = _size_of(answers) < MUCH_BYTES
        return answers

    async def _open_door(self) -> Door | None:
        """None where there is none: then all goes through Ray."""
        if self._has_door and (self._door is None or self._door.closed):
            try:
                name = await call(self._handle, "door")
                self._door = None if name is None else await Door.open(name, self._worker)
            except (DisconnectedError, OSError) as error:
                logger.info("no door to the connection actor: %s", error)
                self._door = None
            self._has_door = self._door is not None
        return self._door


def _outcome(done: asyncio.Task[list[Answer]]) -> list[Answer] | Exception:
    if done.cancelled():
        return DisconnectedError("the pull was cancelled")
    error = done.exception()
    if error is None:
        return done.result()
    return error if isinstance(error, Exception) else DisconnectedError(str(error))


def _size_of(answers: list[Answer]) -> int:
    return sum(reply.size for reply, _ in answers)
