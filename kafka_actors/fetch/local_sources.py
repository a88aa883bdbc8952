"""`LocalSources`: the fetchers of a process that opens its connections itself, and what a fetcher needs of a connection. In a job connection
actors have the fetchers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.config import ConsumerConfig
from kafka_actors.protocol import FetchRequest

from .broker_fetcher import BrokerFetcher


class ApiVersions(Protocol):
    """Versions of the protocol that a broker speaks."""

    def pick(self, request: type[FetchRequest]) -> int: ...


class BlockingChannel(Protocol):
    """A blocking connection to a broker: `net.FetchSocket`."""

    @property
    def versions(self) -> ApiVersions: ...
    def open(self, *, first_address: int = 0) -> object: ...
    def send(self, frame: bytes, *, timeout_ms: float | None = None) -> None: ...
    def receive(self, *, timeout_ms: float | None = None) -> memoryview: ...
    def trim(self) -> None: ...
    def close(self) -> None: ...

    # For a `FetchLoop`:
    @property
    def is_plain(self) -> bool: ...
    @property
    def due_in_s(self) -> float: ...
    def descriptor(self, *, timeout_ms: float) -> AbstractContextManager[int]: ...
    def receive_rest(self, size: int, *, timeout_ms: float) -> memoryview: ...


Connect = Callable[[str, int, ConsumerConfig], BlockingChannel]


class LocalSources:
    """One `BrokerFetcher` for each broker that is fetched from, at the address that it has now. For one event loop.

    `locate` returns a broker with its address; after metadata changed `follow` is to be called. `connect`: as there.
    """

    def __init__(
        self, config: ConsumerConfig, *, locate: Callable[[int], BrokerMetadata | None], connect: Connect
    ) -> None:
        self._config = config
        self._locate = locate
        self._connect = connect
        self._sources: dict[int, BrokerFetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def get(self, broker: int) -> BrokerFetcher | None:
        """Returns the broker's fetcher; None where no such broker is known."""
        source = self._sources.get(broker)
        if source is None:
            if (known := self._locate(broker)) is None:
                return None
            source = BrokerFetcher(broker, known.host, known.port, self._config, connect=self._connect)
            self._sources[broker] = source
        return source

    def follow(self) -> None:
        """Closes the fetchers of brokers that are gone or have another address."""
        for broker, source in list(self._sources.items()):
            known = self._locate(broker)
            if known is None or (known.host, known.port) != source.address:
                del self._sources[broker]
                task = asyncio.ensure_future(source.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes all fetchers."""
        await asyncio.gather(*(source.close() for source in self._sources.values()), *self._closing)
