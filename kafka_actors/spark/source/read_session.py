"""`ReadSession`: client and fetcher for Spark's tasks, one task at a time, on an event loop in a thread of its own.

The task's own thread decodes and passes batches to Spark; meanwhile the next fetch request is in flight here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from kafka_actors.base.io_thread import IoThread
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch import FetchedBytes, Fetcher, LocalSources
from kafka_actors.net import FetchSocket, KafkaClient, OffsetLookups
from kafka_actors.types import TopicPartition


class ReadSession:
    """Client and fetcher of one worker process. The constructor connects and raises as `KafkaClient.bootstrap`; `close`
    ends the thread.

    The docstrings of `client` and `fetcher` say what other threads may call.
    """

    client: KafkaClient
    fetcher: Fetcher

    def __init__(self, config: ConsumerConfig, topics: Iterable[str]) -> None:
        self._config = config
        self._topics = sorted(set(topics))
        self._arrived = threading.Event()
        self._io = IoThread("kafka-read")
        try:
            self._io.run(self._open())
        except BaseException:
            self._io.stop()
            raise

    def __repr__(self) -> str:
        return f"<ReadSession {','.join(self._topics)}>"

    @property
    def works(self) -> bool:
        """Whether its thread runs."""
        return self._io.alive

    def close(self) -> None:
        """Closes the connections and waits for the thread to end. A second call changes nothing."""
        if self._io.alive:
            try:
                self._io.run(self._close())
            finally:
                self._io.stop()

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Prepares for the next task: requests metadata of its partitions, unless an earlier task did. Raises
        `NoBrokersError` where no broker answers."""
        tps = list(partitions)
        topics = sorted({tp.topic for tp in tps})
        if topics != self._topics:
            self._topics = topics
            self._io.run(self._track(topics))
        elif any(self.client.snapshot.partition(tp) is None for tp in tps):
            self.refresh()

    def refresh(self) -> None:
        """Requests metadata of the topics again. Raises as `begin`."""
        self._io.run(self._refresh())

    def end(self) -> None:
        """Stops fetching a task's partitions."""
        self.fetcher.revoke(self.fetcher.partitions)

    async def _track(self, topics: list[str]) -> None:
        await self.client.set_topics(topics)

    async def _refresh(self) -> None:
        await self.client.update_metadata()

    def take(self, timeout_s: float) -> FetchedBytes | None:
        """Takes the next fetched records, waiting up to `timeout_s`; None if there are none. Raises as `Fetcher.take`."""
        self._arrived.clear()
        item = self._taken()
        if item is None and self._arrived.wait(timeout_s):
            item = self._taken()
        return item

    def _taken(self) -> FetchedBytes | None:
        if not self._io.alive:
            raise DisconnectedError("the fetching thread ended")
        return self.fetcher.take()

    # ------------------------------------------------------------ in the thread

    async def _open(self) -> None:
        self.client = client = KafkaClient(self._config)
        try:
            client.set_topics(self._topics)
            await client.bootstrap()
            self._sources = LocalSources(
                self._config, locate=lambda broker: client.snapshot.brokers.get(broker), connect=FetchSocket
            )
            self.fetcher = fetcher = Fetcher(
                self._config,
                sources=self._sources.get,
                lookups=OffsetLookups(client),
                request_metadata=lambda: _request_metadata(client),
                on_ready=self._arrived.set,
            )
            client.cluster.add_listener(lambda _: self._on_metadata())
            fetcher.update_metadata(client.snapshot)
            await fetcher.start()
        except BaseException:
            await client.close()
            raise

    def _on_metadata(self) -> None:
        self.fetcher.update_metadata(self.client.snapshot)
        self._sources.follow()

    async def _close(self) -> None:
        try:
            await self.fetcher.close()
            await self._sources.close()
        finally:
            await self.client.close()


def _request_metadata(client: KafkaClient) -> None:
    client.cluster.request_update()
