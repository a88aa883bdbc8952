"""`ReadSession`: client and fetcher of Spark's tasks, one after the other, on an event loop in a thread of its own.

The task's own thread decodes and hands batches to Spark; meanwhile the next Fetch is in flight here.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Coroutine, Iterable
from typing import Any

from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch import BrokerFetcher, FetchedBytes, Fetcher
from kafka_actors.net import FetchSocket, KafkaClient, OffsetLookups
from kafka_actors.protocol.types import TopicPartition

logger = logging.getLogger(__name__)


class ReadSession:
    """Connects when it is made, and raises what `KafkaClient.bootstrap` raises; `close` ends it.

    `client` and `fetcher` are there in between; what each allows from another thread is in its docstring.
    """

    client: KafkaClient
    fetcher: Fetcher

    def __init__(self, config: ConsumerConfig, topics: Iterable[str]) -> None:
        self._config = config
        self._topics = sorted(set(topics))
        self._sources: dict[int, BrokerFetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._arrived = threading.Event()
        self._started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="kafka-read", daemon=True)
        self._thread.start()
        self._loop = self._started.result()

    def __repr__(self) -> str:
        return f"<ReadSession {','.join(self._topics)}>"

    @property
    def works(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive() and self._failure is None

    def close(self) -> None:
        """Closes the connections and waits for the thread to end. Closing again changes nothing."""
        try:
            self._loop.call_soon_threadsafe(self._stop.set)
        except RuntimeError:
            logger.debug("the loop had ended already")
        self._thread.join()

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """For the next task: knows these partitions, if they are there. What is known from earlier tasks may be older
        than a partition. Raises `NoBrokersError` where no broker tells of them."""
        tps = list(partitions)
        topics = sorted({tp.topic for tp in tps})
        if topics != self._topics:
            self._topics = topics
            self._run(self._track(topics))
        elif any(self.client.snapshot.partition(tp) is None for tp in tps):
            self.refresh()

    def refresh(self) -> None:
        """Asks about the topics again. Raises as `begin`."""
        self._run(self._refresh())

    def end(self) -> None:
        """After a task: reads none of its partitions any more."""
        self.fetcher.revoke(self.fetcher.partitions)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _track(self, topics: list[str]) -> None:
        await self.client.set_topics(topics)

    async def _refresh(self) -> None:
        await self.client.update_metadata()

    def take(self, timeout_s: float) -> FetchedBytes | None:
        """The next records, waiting for some up to `timeout_s`; None if there are none. Raises as `Fetcher.take`."""
        self._arrived.clear()
        item = self._taken()
        if item is None and self._arrived.wait(timeout_s):
            item = self._taken()
        return item

    def _taken(self) -> FetchedBytes | None:
        if self._failure is not None:
            raise DisconnectedError(f"the fetching thread ended: {self._failure}") from self._failure
        return self.fetcher.take()

    # ------------------------------------------------------------ in the thread

    def _work(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if self._started.done():
                self._failure = error
                self._arrived.set()
            else:
                self._started.set_exception(error)

    async def _main(self) -> None:
        self.client = client = KafkaClient(self._config)
        try:
            client.set_topics(self._topics)
            await client.bootstrap()
            self.fetcher = fetcher = Fetcher(
                self._config,
                sources=self._source,
                lookups=OffsetLookups(client),
                request_metadata=lambda: _ask(client),
                on_ready=self._arrived.set,
            )
            client.cluster.add_listener(lambda _: fetcher.update_metadata(client.snapshot))
            fetcher.update_metadata(client.snapshot)
            await fetcher.start()
            try:
                self._started.set_result(asyncio.get_running_loop())
                await self._stop.wait()
            finally:
                await fetcher.close()
                await asyncio.gather(*(source.close() for source in self._sources.values()), *self._closing)
        finally:
            await client.close()

    def _source(self, broker: int) -> BrokerFetcher | None:
        """The connection to a broker, made anew where its address changed."""
        node = self.client.snapshot.brokers.get(broker)
        if node is None:
            return None
        source = self._sources.get(broker)
        if source is not None and source.address == (node.host, node.port):
            return source
        if source is not None:
            task = asyncio.ensure_future(source.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        source = BrokerFetcher(broker, node.host, node.port, self._config, connect=FetchSocket)
        self._sources[broker] = source
        return source


def _ask(client: KafkaClient) -> None:
    client.cluster.request_update()
