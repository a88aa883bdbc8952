"""Links of a worker to other actors over Ray: callers that turn a dead or missing actor into `DisconnectedError`.

The supervisor sends new handles whenever an actor was replaced. A call on an old handle fails with the same error, and the
caller tries again with the new one. `BrokerLink` is a worker's record source for one broker, by the connection actor of its node:
pulls go over the shared-memory transport, or through Ray where that can't be used.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import msgspec
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from kafka_actors import protocol
from kafka_actors.base.backoff import RetryTimer
from kafka_actors.cluster import ClusterMetadata, ClusterSnapshot
from kafka_actors.config import JobConfig
from kafka_actors.errors import DisconnectedError, KafkaActorsError
from kafka_actors.fetch.messages import Answer, FetchReply, Outcome, Pull
from kafka_actors.job.messages import CommitReply, CommitRequest, Orders, Report, pack, unpack
from kafka_actors.job.transport.shm_client import SharedMemoryClient
from kafka_actors.schemas.registry import Schema, SchemaRequest

__all__ = ["BrokerLink", "CoordinatorActorLink", "MetadataActorLink", "RelayClient", "call"]

logger = logging.getLogger(__name__)


R = TypeVar("R", bound=protocol.schema.Response)

UNWIRED = "there is no such actor at the moment"


async def call(handle: ActorHandle | None, method: str, *args: Any) -> Any:
    """Calls an actor. Raises `DisconnectedError` if it is dead, or ends meanwhile, and errors of this library as they were raised there."""
    if handle is None:
        raise DisconnectedError(UNWIRED)
    try:
        return await getattr(handle, method).remote(*args)
    except RayTaskError as error:
        # The original error: Ray's own wraps the traceback of the actor.
        if isinstance(error.cause, KafkaActorsError):
            raise error.cause from None
        if isinstance(error.cause, TaskCancelledError):  # the actor ends itself
            raise DisconnectedError(f"{method}: {type(error.cause).__name__}") from None
        raise error.cause from noted_once(error)
    except RayError as error:
        raise DisconnectedError(f"{method}: {type(error).__name__}") from None


def noted_once(error: RayTaskError) -> RayTaskError:
    """Returns Ray's error, of which a traceback shows no notes: its text has those of its cause, which it would show again as its own."""
    error.__notes__ = []
    return error


class CoordinatorActorLink:
    """`CoordinatorLink` over Ray."""

    def __init__(self) -> None:
        self.handle: ActorHandle | None = None

    async def poll(self, report: Report) -> Orders:
        return unpack(await call(self.handle, "poll", pack(report)), Orders)

    async def commit(self, request: CommitRequest) -> CommitReply:
        return unpack(await call(self.handle, "commit", pack(request)), CommitReply)


class MetadataActorLink:
    """`MetadataLink` and `SchemaLink` over Ray. A new incarnation gets the worker's snapshot, for its leader epochs."""

    def __init__(self) -> None:
        self.handle: ActorHandle | None = None
        self.incarnation = 0
        self._seen_incarnation = 0

    async def watch(self, known: ClusterSnapshot | None) -> ClusterSnapshot:
        incarnation = self.incarnation
        newcomer = known is not None and incarnation != self._seen_incarnation
        snapshot = pack(known) if known is not None and newcomer else None
        version = known.version if known is not None and not newcomer else -1
        answer = await call(self.handle, "watch", version, snapshot)
        self._seen_incarnation = incarnation
        if answer is None:
            assert known is not None  # only a call with a version is answered with None
            return known
        return unpack(answer, ClusterSnapshot)

    async def schema(self, request: SchemaRequest) -> Schema:
        """The schema of a registry, for which that actor asks. Raises as the registry."""
        return unpack(await call(self.handle, "schema", pack(request)), Schema)

    async def refresh(self) -> None:
        """Requests newer metadata; the answer comes through `watch`."""
        await call(self.handle, "refresh")


class RelayClient:
    """Client for a worker's `OffsetLookups`: requests go through the connection actors of its node, metadata comes from the
    worker's watch."""

    def __init__(self, config: JobConfig, metadata: MetadataActorLink) -> None:
        self.config = config
        self.cluster = ClusterMetadata()
        self.cluster.add_request_listener(self._refresh)
        self.rand = random.random
        self.connections: dict[int, tuple[int, ActorHandle]] = {}
        self._metadata = metadata
        self._refreshing: set[asyncio.Task[None]] = set()

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self.cluster.snapshot()

    def now(self) -> float:
        return time.monotonic()

    def tracks(self, topic: str) -> bool:
        return True

    async def fetch_metadata(self, topics: Iterable[str]) -> ClusterSnapshot:
        return self.snapshot

    def learn(self, snapshot: ClusterSnapshot) -> None:
        """Takes new metadata."""
        self.cluster.restore(snapshot)

    def request_metadata(self) -> None:
        """Requests newer metadata; it comes by `learn`."""
        self.cluster.request_update()

    def _refresh(self) -> None:
        if not self._refreshing:
            task = asyncio.ensure_future(self._ask())
            self._refreshing.add(task)
            task.add_done_callback(self._refreshing.discard)

    async def _ask(self) -> None:
        try:
            await self._metadata.refresh()
        except DisconnectedError:
            pass  # a new metadata actor fetches metadata first of all
        # Nobody waits for them. While nothing changes `learn` isn't called, and they would be kept.
        self.cluster.fail_requests(DisconnectedError("newer metadata comes by the worker's watch"))

    async def send(
        self,
        node_id: int,
        request: protocol.Request[R],
        *,
        timeout_ms: float | None = None,
        min_version: int | None = None,
    ) -> R:
        _, handle = self.connections.get(node_id, (0, None))
        kind = type(request)
        body = protocol.encode(request, kind.latest)
        answer = await call(handle, "relay", kind.api_key, body, timeout_ms, min_version)
        return cast(R, protocol.decode_message(kind.response, kind.latest, answer))


RAY_PACE_MS = 10
"""Shortest time between two small responses through Ray: a call for every single record would leave no time to process
them."""

SHM_RETRY_S = 10.0
"""Pause after the transport could not be connected; it doubles with each failure, up to the longest."""
SHM_RETRY_MAX_S = 640.0


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
        self._backoff = RetryTimer(SHM_RETRY_S, SHM_RETRY_MAX_S)
        self._no_shared_memory = False
        self._in_loop: set[asyncio.Task[None]] = set()
        # Pulls handed to the loop, and pulls that the loop has sent: each is counted by one thread at a time.
        self._queued = self._sent = 0

    def fetch(self, pull: Pull, answered: Callable[[Outcome], None], queued: object = None) -> None:
        """Sends a pull, from the transport's thread or the loop. `answered` is called in one of these two, once: see `steady_fetch`."""
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
