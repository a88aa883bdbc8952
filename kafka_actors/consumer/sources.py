"""The brokers that a consumer fetches from."""

from __future__ import annotations

import asyncio

from kafka_actors.config import ConsumerConfig
from kafka_actors.fetch import BrokerFetcher
from kafka_actors.net import FetchSocket, KafkaClient


class Sources:
    """One `BrokerFetcher` for each broker that leads something, at the address that it has now."""

    def __init__(self, client: KafkaClient, config: ConsumerConfig) -> None:
        self._client = client
        self._config = config
        self._sources: dict[int, BrokerFetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def get(self, broker: int) -> BrokerFetcher | None:
        """The broker's fetcher; None where no such broker is known."""
        source = self._sources.get(broker)
        if source is None:
            known = self._client.snapshot.brokers.get(broker)
            if known is None:
                return None
            source = BrokerFetcher(broker, known.host, known.port, self._config, connect=FetchSocket)
            self._sources[broker] = source
        return source

    def follow(self) -> None:
        """Gives up brokers that are gone or moved."""
        for broker, source in list(self._sources.items()):
            known = self._client.snapshot.brokers.get(broker)
            if known is None or (known.host, known.port) != source.address:
                del self._sources[broker]
                task = asyncio.ensure_future(source.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes all."""
        await asyncio.gather(*(source.close() for source in self._sources.values()), *self._closing)
