"""Links of a worker to other actors over Ray: callers that turn a dead or missing actor into `DisconnectedError`.

The supervisor sends new handles whenever an actor was replaced. A call on an old handle fails with the same error, and the
caller tries again with the new one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from typing import Any, TypeVar, cast

from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError

from kafka_actors import protocol
from kafka_actors.cluster import ClusterMetadata, ClusterSnapshot
from kafka_actors.config import JobConfig
from kafka_actors.errors import DisconnectedError, KafkaActorsError
from kafka_actors.job.messages import CommitReply, CommitRequest, Orders, Report, pack, unpack

__all__ = ["CoordinatorActorLink", "MetadataActorLink", "RelayClient", "call"]

R = TypeVar("R", bound=protocol.schema.Response)

UNWIRED = "there is no such actor at the moment"


async def call(handle: ActorHandle | None, method: str, *args: Any) -> Any:
    """Calls an actor. Raises `DisconnectedError` if it is dead, and errors of this library as they were raised there."""
    if handle is None:
        raise DisconnectedError(UNWIRED)
    try:
        return await getattr(handle, method).remote(*args)
    except RayTaskError as error:
        # The original error: Ray's own wraps the traceback of the actor.
        if isinstance(error.cause, KafkaActorsError):
            raise error.cause from None
        raise error.cause from error
    except RayError as error:
        raise DisconnectedError(f"{method}: {type(error).__name__}") from None


class CoordinatorActorLink:
    """`CoordinatorLink` over Ray."""

    def __init__(self) -> None:
        self.handle: ActorHandle | None = None

    async def poll(self, report: Report) -> Orders:
        return unpack(await call(self.handle, "poll", pack(report)), Orders)

    async def commit(self, request: CommitRequest) -> CommitReply:
        return unpack(await call(self.handle, "commit", pack(request)), CommitReply)


class MetadataActorLink:
    """`MetadataLink` over Ray. A new incarnation gets the worker's snapshot, for its leader epochs."""

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
