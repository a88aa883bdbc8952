"""The brokers that a process fetches from over connections of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.config import ConsumerConfig

from .broker_fetcher import BrokerFetcher, Connect


class LocalSources:
    """One `BrokerFetcher` for each broker that is fetched from, at the address that it has now.

    `locate` knows brokers and their addresses; after it learned something, `follow` is called. `connect` makes the
    connections: `net.FetchSocket`. Bound to one event loop.
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
        """The broker's fetcher; None where no such broker is known."""
        source = self._sources.get(broker)
        if source is None:
            known = self._locate(broker)
            if known is None:
                return None
            source = BrokerFetcher(broker, known.host, known.port, self._config, connect=self._connect)
            self._sources[broker] = source
        return source

    def follow(self) -> None:
        """Gives up brokers that are gone or moved."""
        for broker, source in list(self._sources.items()):
            known = self._locate(broker)
            if known is None or (known.host, known.port) != source.address:
                del self._sources[broker]
                task = asyncio.ensure_future(source.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes all."""
        await asyncio.gather(*(source.close() for source in self._sources.values()), *self._closing)
