"""`BrokerLink`: a worker's record source for one broker, by the connection actor of its node.

Pulls go over the shared-memory transport, or through Ray where that can't be used.
"""

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
"""Shortest time between two small responses through Ray: a call for every single record would leave no time to process
them."""

SHM_RETRY_S = 10.0
"""Pause after the transport could not be connected; it doubles with each failure, up to the longest."""
SHM_RETRY_MAX_S = 640.0

logger = logging.getLogger(__name__)


class BrokerLink:
    """A `RecordSource` over one connection actor. Made in the event loop.

    `call_record`: descriptor of the worker's `CallRecord`, for the connection actor. Pulls are sent in the order in which
    they come, one at a time.
    """

    def __init__(
        self,
        worker: str,
        handle: ActorHandle,
        call_record: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = worker
        self._handle = handle
        self._call_record = call_record
        self._loop = asyncio.get_running_loop()
        self._send_lock = asyncio.Lock()
        self._client: SharedMemoryClient | None = None
        self._clock = clock
        self._backoff = Backoff(SHM_RETRY_S, SHM_RETRY_MAX_S)
        self._no_shared_memory = False
        self._in_loop: set[asyncio.Task[None]] = set()
        # Pulls handed to the loop, and pulls that the loop has sent: each is counted by one thread at a time.
        self._queued = self._sent = 0

    def fetch(self, pull: Pull, answered: Callable[[Outcome], None]) -> None:
        """Sends a pull, from the transport's thread or the loop. `answered` is called in one of these two."""
        client = self._client
        if client is not None and not client.closed and self._sent == self._queued:
            client.fetch(pull, answered)
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
            async with self._send_lock:
                try:
                    client = await self._connected()
                    if client is not None:
                        client.fetch(pull, answered)
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
        request = pack(msgspec.structs.replace(pull, pace_ms=RAY_PACE_MS))
        reply, records = await call(self._handle, "pull", self._worker, request)
        return unpack(reply, FetchReply), records

    async def _connected(self) -> SharedMemoryClient | None:
        """Connects the transport if need be. None where there is none, or it can't be connected now: pulls go through Ray."""
        if self._client is not None and not self._client.closed:
            return self._client
        self._client = None
        if self._no_shared_memory or self._backoff.remaining(self._clock()):
            return None
        try:
            name = await call(self._handle, "shared_memory_name")
            if name is not None:
                self._client = SharedMemoryClient.open(name, self._worker, self._call_record)
            self._no_shared_memory = name is None
            self._backoff.succeeded()
        except (DisconnectedError, OSError) as error:
            pause = self._backoff.failed(self._clock())
            logger.info(
                "no shared memory with the connection actor, pulls go through Ray for %g s: %s", pause, error
            )
        return self._client
