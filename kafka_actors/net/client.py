"""`KafkaClient`: requests to any broker of a cluster, and metadata that is kept fresh."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kafka_actors.cluster.future import Future
from kafka_actors.cluster.metadata import ClusterMetadata
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import (
    AuthenticationError,
    ConfigError,
    KafkaActorsError,
    NoBrokersAvailable,
    NodeNotReadyError,
    UnrecognizedBrokerVersion,
    UsageError,
)
from kafka_actors.protocol import MetadataRequest, MetadataResponse
from kafka_actors.protocol.schema import Request, Response

from .broker import Broker, ConnectionOpener
from .connection import Connection
from .machines.nodes import least_loaded
from .machines.versions import OLDEST_BROKER, ApiVersionTable
from .pool import ConnectionPool
from .process_bound import ProcessBound
from .refresher import MetadataRefresher
from .security.tls import context_of

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

_FOREVER_MS = float(0x7FFFFFFF)


class KafkaClient(ProcessBound):
    """A client of one cluster, for one event loop: that in which it is first used.

    Options come as a `ClientConfig` or as keyword arguments. `cluster` is what is known of the cluster; after
    `bootstrap` it is refreshed in the background, when it is old or someone asks. `clock` counts seconds,
    monotonic; `rand` gives 0..1 for jitter. Not for use after a fork, nor pickled.

    Nodes are broker ids; the bootstrap servers have the ids -1, -2, … in their order.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        rand: Callable[[], float] = random.random,
        **options: Any,
    ) -> None:
        super().__init__()
        if config is None:
            config = build(ClientConfig, options)
        elif options:
            raise UsageError("give KafkaClient a config or options, not both")
        _check_version(config)
        context_of(config)  # files that can't be loaded fail before anything connects
        self.config = config
        self._clock = clock
        self.rand = rand
        self.cluster = ClusterMetadata(
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            metadata_max_age_ms=config.metadata_max_age_ms,
            bootstrap_servers=config.bootstrap_servers,
            clock=clock,
            rand=rand,
        )
        self.cluster.add_listener(lambda _: self._pool.follow())
        self._pool = ConnectionPool(config, self.cluster.broker_metadata, self._on_trouble, clock, rand)
        self._refresher = MetadataRefresher(self.cluster, self._ask_metadata, self._pool.state, clock, rand)
        self._refreshing: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<KafkaClient {','.join(self.config.bootstrap_servers)} {self.cluster!r}>"

    async def __aenter__(self) -> KafkaClient:
        await self.bootstrap()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def now(self) -> float:
        """The clock, in seconds."""
        return self._clock()

    # ------------------------------------------------------------ metadata

    @property
    def snapshot(self) -> ClusterSnapshot:
        """What is known of the cluster, as one immutable value."""
        return self.cluster.snapshot()

    async def bootstrap(self, timeout_ms: float | None = None) -> ClusterSnapshot:
        """Learns of the cluster from the bootstrap servers, and keeps that fresh from then on.

        Tries all servers, again and again, until one answers or `timeout_ms` (default `request_timeout_ms`) has
        passed; then raises `NoBrokersAvailable`, which says of each server why it failed. Where each of them is
        no Kafka broker that can be talked to, it raises that, or `UnrecognizedBrokerVersion`, at once; and an
        `AuthenticationError` as soon as no server answers and one of them had it.
        """
        self._check_usable()
        if self.snapshot.brokers:
            return self.snapshot
        limit = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        end = self._clock() + limit / 1000
        while not self.snapshot.brokers:
            try:
                async with asyncio.timeout(max(end - self._clock(), 0.0)):
                    await asyncio.sleep(self.cluster.ttl() / 1000)
                    await self._refresher.refresh()
            except TimeoutError:
                raise NoBrokersAvailable(self._bootstrap_failure()) from None
            except KafkaActorsError:
                self._raise_if_hopeless()
        self._start_refreshing()
        return self.snapshot

    def _raise_if_hopeless(self) -> None:
        """Where each server answered, and none as a Kafka broker that we can talk to, waiting changes nothing."""
        errors = [self._pool.error(b.node_id) for b in self.cluster.bootstrap_brokers()]
        for error in errors:
            if isinstance(error, (AuthenticationError, ConfigError)):
                raise error from error.__cause__
        if all(isinstance(e, UnrecognizedBrokerVersion) for e in errors):
            raise UnrecognizedBrokerVersion(self._bootstrap_failure()) from None
        if all(isinstance(e, KafkaActorsError) and not e.retriable for e in errors):
            raise NoBrokersAvailable(self._bootstrap_failure()) from None

    def _bootstrap_failure(self) -> str:
        reasons = []
        for broker, name in zip(self.cluster.bootstrap_brokers(), self.config.bootstrap_servers, strict=True):
            error = self._pool.error(broker.node_id)
            text = "no answer in time" if error is None else str(error)
            reasons.append(text if text.startswith(name) else f"{name}: {text}")
        return "none of the bootstrap_servers answered: " + "; ".join(reasons)

    async def update_metadata(self) -> ClusterSnapshot:
        """Asks for metadata newer than the present and returns it. Raises as the attempt did, `NoBrokersError`."""
        self._check_usable()
        self._start_refreshing()
        await self.cluster.request_update()
        return self.snapshot

    def set_topics(self, topics: Iterable[str] | None) -> Future[ClusterMetadata]:
        """Tracks these topics' metadata, None for all. The future resolves when they are known, or were asked for.

        Nothing is asked before `bootstrap`; its first request then is for these.
        """
        wanted = None if topics is None else sorted(set(topics))
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
        return response, connection.version(MetadataRequest)

    def _start_refreshing(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresher.run())

    def _on_trouble(self, node_id: int) -> None:
        """A lost connection is often the first sign that leaders moved."""
        if node_id >= 0 and not self._closed:
            self.cluster.request_update()

    # ------------------------------------------------------------ requests

    async def send(
        self,
        node_id: int,
        request: Request[R],
        wakeup: bool = True,
        *,
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> R:
        """Sends a request to a node and returns its response, over a connection that is opened if need be.

        `timeout_ms` (default `request_timeout_ms`) covers connecting as well. `wakeup` has no meaning where an
        event loop runs. Raises as `Connection.send` does, `NodeNotReadyError` for a node that isn't known, and
        `ConnectionFailedError`.
        """
        limit = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        end = self._clock() + limit / 1000
        connection = await self._connection(node_id, end)
        return await connection.send(
            request,
            timeout_ms=max(end - self._clock(), 0.0) * 1000,
            min_version=min_version,
            max_version=max_version,
        )

    async def _connection(self, node_id: int, end: float) -> Connection:
        self._check_usable()
        if self.cluster.broker_metadata(node_id) is None:
            self.cluster.request_update()
            raise NodeNotReadyError(f"broker {node_id} is not in the cluster's metadata")
        return await self._pool.connection(node_id, end)

    async def api_versions(self, node_id: int | None = None) -> ApiVersionTable:
        """The versions of each API that a node speaks, of any node by default. Connects if need be."""
        chosen = self.least_loaded_node() if node_id is None else node_id
        if chosen is None:
            raise NodeNotReadyError("no broker may be asked now")
        end = self._clock() + self.config.request_timeout_ms / 1000
        return (await self._connection(chosen, end)).versions

    async def open_broker(self, node_id: int, host: str, port: int) -> Broker:
        """A broker with two connections of its own, both open: they are the caller's to close.

        Raises as `Connection.open`.
        """
        self._check_usable()
        timeout_ms = self.config.request_timeout_ms
        broker = Broker(
            node_id, host, port, ConnectionOpener(self.config, self._clock), timeout_ms, timeout_ms
        )
        try:
            await broker.connect()
            await broker.connect_offsets_channel()
        except BaseException:
            broker.close()
            raise
        return broker

    # ------------------------------------------------------------ nodes

    def least_loaded_node(self) -> int | None:
        """The node with the fewest requests in flight; None where none may be asked now.

        An idle connection is preferred, then a node to connect to that isn't backing off. Bootstrap servers
        count as long as no broker is known.
        """
        nodes = self.snapshot.brokers or {b.node_id: b for b in self.cluster.bootstrap_brokers()}
        return least_loaded(map(self._pool.state, nodes), self.rand)

    def connected(self, node_id: int) -> bool:
        """Whether there is a connection to the node."""
        return self._pool.live(node_id) is not None

    def is_disconnected(self, node_id: int) -> bool:
        """Whether a connection to the node failed or ended, and none is there or being made."""
        state = self._pool.state(node_id)
        return self._pool.error(node_id) is not None and not state.connected and not state.connecting

    def bootstrap_connected(self) -> bool:
        """Whether there is a connection to a bootstrap server."""
        return any(self.connected(b.node_id) for b in self.cluster.bootstrap_brokers())

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        """How many requests of a node, or of all, wait for their answers."""
        nodes = self._pool.node_ids() if node_id is None else [node_id]
        return sum(self._pool.state(n).in_flight for n in nodes)

    def connection_delay(self, node_id: int) -> float:
        """Milliseconds until a request to the node may be tried: its backoff, 0 while connecting or possible at
        once, and a very large number when connected, as there is nothing to wait for."""
        state = self._pool.state(node_id)
        if state.connected:
            return _FOREVER_MS
        return 0.0 if state.connecting else state.delay * 1000

    def is_ready(self, node_id: int, metadata_priority: bool = True) -> bool:
        """Whether a request to the node would be written at once.

        With `metadata_priority` no node is ready while a metadata refresh is due.
        """
        if metadata_priority and self.cluster.ttl() == 0:
            return False
        live = self._pool.live(node_id)
        window = self.config.max_in_flight_requests_per_connection
        return live is not None and live.in_flight < window and live.throttle_delay() == 0

    # ------------------------------------------------------------ life

    def _check_usable(self) -> None:
        self._check_process()
        if self._closed:
            raise UsageError("this KafkaClient is closed")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise UsageError("this KafkaClient belongs to another event loop: make one per loop")

    async def close(self, node_id: int | None = None) -> None:
        """Closes the connection to one node, or all and the client with them. Closing again changes nothing."""
        if node_id is not None:
            await self._pool.close([node_id])
            return
        self._closed = True
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})
        await self._pool.close()
        self.cluster.fail_requests(NodeNotReadyError("the client was closed"))


def _check_version(config: ClientConfig) -> None:
    if config.api_version is not None and config.api_version[:2] < OLDEST_BROKER:
        given = ".".join(map(str, config.api_version))
        raise ConfigError(
            "api_version", f"is {given}: brokers from {OLDEST_BROKER[0]}.{OLDEST_BROKER[1]} on are supported"
        )
