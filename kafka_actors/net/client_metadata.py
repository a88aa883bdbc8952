"""Which topics a client follows, and how it gets to know them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

from kafka_actors.base.topics import check_topics
from kafka_actors.cluster.future import Future
from kafka_actors.cluster.metadata import ClusterMetadata
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.config import ClientConfig
from kafka_actors.errors import (
    AuthenticationError,
    ConfigError,
    KafkaActorsError,
    NoBrokersAvailable,
    UnknownHostError,
    UnrecognizedBrokerVersion,
)
from kafka_actors.protocol import MetadataRequest, MetadataResponse

from .client_nodes import ClientNodes
from .metadata_refresher import MetadataRefresher
from .response_watch import ResponseWatch


class ClientMetadata(ClientNodes):
    """A client's metadata: learned from the bootstrap servers, and kept fresh in the background from then on."""

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        rand: Callable[[], float] = random.random,
        **options: Any,
    ) -> None:
        super().__init__(config, clock=clock, rand=rand, **options)
        self._responses = ResponseWatch()
        self._refresher = MetadataRefresher(self.cluster, self._ask_metadata, self._pool.state, clock, rand)
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def snapshot(self) -> ClusterSnapshot:
        """What is known of the cluster, as one immutable value."""
        return self.cluster.snapshot()

    async def bootstrap(self, *, timeout_ms: float | None = None) -> ClusterSnapshot:
        """Learns of the cluster from the bootstrap servers, and keeps that fresh from then on.

        Tries all servers, again and again, until one answers or `timeout_ms` has passed; then raises
        `NoBrokersAvailable`, which says of each server why it failed. The default is
        `api_version_auto_timeout_ms` where that is given and `api_version` isn't, else `request_timeout_ms`.
        Where each server is an unknown host or no Kafka broker that can be talked to, it raises that, or
        `UnrecognizedBrokerVersion`, at once; and an `AuthenticationError` as soon as no server answers and one
        of them had it.
        """
        self._check_usable()
        if self.snapshot.brokers:
            return self.snapshot
        limit = (self._bootstrap_limit_ms() if timeout_ms is None else timeout_ms) / 1000
        end = self._clock() + limit
        while not self.snapshot.brokers:
            try:
                async with asyncio.timeout(max(end - self._clock(), 0.0)):
                    await asyncio.sleep(self.cluster.ttl() / 1000)
                    await self._refresher.refresh()
            except TimeoutError:
                raise self.not_connected(limit) from None
            except KafkaActorsError:
                self._raise_if_hopeless()
        self._start_refreshing()
        return self.snapshot

    def _bootstrap_limit_ms(self) -> float:
        auto = self.config.api_version_auto_timeout_ms
        return self.config.request_timeout_ms if auto is None or self.config.api_version is not None else auto

    def _raise_if_hopeless(self) -> None:
        """Where each server answered, and none as a Kafka broker that we can talk to, waiting changes nothing."""
        errors = [self._pool.error(b.node_id) for b in self.cluster.bootstrap_brokers()]
        for error in errors:
            if isinstance(error, (AuthenticationError, ConfigError)):
                raise error from error.__cause__
        if all(isinstance(e, UnrecognizedBrokerVersion) for e in errors):
            raise UnrecognizedBrokerVersion(self._bootstrap_failure()) from None
        if all(
            isinstance(e, UnknownHostError) or (isinstance(e, KafkaActorsError) and not e.retriable)
            for e in errors
        ):
            raise NoBrokersAvailable(self._bootstrap_failure()) from None

    def trouble(self) -> str:
        """Why none of the bootstrap servers has answered yet; empty once one has."""
        return "" if self.snapshot.brokers else self._bootstrap_errors("no answer yet")

    def not_connected(self, seconds: float) -> NoBrokersAvailable:
        """Why no bootstrap server has answered in that time, with a reason for each. For any thread."""
        return NoBrokersAvailable(self._bootstrap_failure(f" within {seconds:.3g} s"))

    def _bootstrap_failure(self, within: str = "") -> str:
        return (
            f"none of the bootstrap_servers answered{within}: {self._bootstrap_errors('no answer in time')}"
        )

    def _bootstrap_errors(self, silence: str) -> str:
        """Of each server its last error; `silence` for one that had none."""
        reasons = []
        for broker, name in zip(self.cluster.bootstrap_brokers(), self.config.bootstrap_servers, strict=True):
            error = self._pool.error(broker.node_id)
            text = silence if error is None else str(error)
            reasons.append(text if text.startswith(name) else f"{name}: {text}")
        return "; ".join(reasons)

    async def update_metadata(self) -> ClusterSnapshot:
        """Asks for metadata newer than the present and returns it. Raises as the attempt did, `NoBrokersError`."""
        self._check_usable()
        self._start_refreshing()
        await self.cluster.request_update()
        return self.snapshot

    def set_topics(self, topics: Iterable[str] | None) -> Future[ClusterMetadata]:
        """Tracks these topics' metadata, None for all. The future resolves when they are known, or were asked for.

        Nothing is asked before `bootstrap`; its first request then is for these. Raises `ConfigError` for what
        can't be a topic's name.
        """
        wanted = None if topics is None else sorted(check_topics(topics))
        if wanted == self._refresher.topics:
            settled: Future[ClusterMetadata] = Future()
            settled.success(self.cluster)
            return settled
        self._refresher.topics = wanted
        return self.cluster.request_update()

    def add_topic(self, topic: str) -> Future[ClusterMetadata]:
        """Tracks one more topic; as `set_topics`."""
        known = self._refresher.topics
        return self.set_topics(None if known is None else [*known, topic])

    def tracks(self, topic: str) -> bool:
        """Whether the topic's metadata is kept fresh."""
        return self._refresher.topics is None or topic in self._refresher.topics

    async def fetch_metadata(self, topics: Iterable[str]) -> ClusterSnapshot:
        """Asks about topics, tracked or not. Those that aren't are kept fresh for a minute."""
        self._check_usable()
        await self._refresher.fetch(list(topics))
        return self.snapshot

    async def _ask_metadata(self, node_id: int, request: MetadataRequest) -> tuple[MetadataResponse, int]:
        end = self._clock() + self.config.request_timeout_ms / 1000
        connection = await self._pool.connection(node_id, end)
        response = await connection.send(request)
        self._responses.received(response)
        return response, connection.version(MetadataRequest)

    def _start_refreshing(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresher.run())
