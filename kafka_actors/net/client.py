"""`KafkaClient`: requests to any broker of a cluster, and metadata that is kept fresh."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kafka_actors.base.fork_guard import ForkGuard
from kafka_actors.cluster.future import Future
from kafka_actors.cluster.metadata import ClusterMetadata
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.config import ClientConfig, build, resolved
from kafka_actors.errors import (
    ConnectionFailedError,
    NoBrokersAvailable,
    NoBrokersError,
    NodeNotReadyError,
    UsageError,
)
from kafka_actors.protocol import MetadataRequest, MetadataResponse
from kafka_actors.protocol.schema import Request, Response

from .broker_channels import BrokerChannels, ConnectionOpener
from .connect import check_socket_options
from .connection import Connection
from .connection_pool import ConnectionPool
from .machines.api_versions import ApiVersionTable
from .machines.node_choice import least_loaded
from .machines.releases import lacking, limit_of
from .metadata_refresher import MetadataRefresher
from .response_watch import ResponseWatch, SettledFuture
from .security.tls import context_of

R = TypeVar("R", bound=Response)

_FOREVER_MS = float(0x7FFFFFFF)


class KafkaClient(ForkGuard):
    """A client of one cluster, for one event loop: that in which it is first used.

    Options come as a `ClientConfig` (`config`) or as keyword arguments. `cluster` is what is known of the cluster; after
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
            config = resolved(build(ClientConfig, options))
        elif options:
            raise UsageError("give KafkaClient a config or options, not both")
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
        # Options that can't be used fail before anything connects.
        limit_of(config.api_version)
        context_of(config)
        check_socket_options(config)
        self._pool = ConnectionPool(config, self.cluster.broker_metadata, self._on_trouble, clock, rand)
        self._refresher = MetadataRefresher(self.cluster, self._pool, config, self._ask_metadata, clock, rand)
        self._responses = ResponseWatch()
        self._checked: ApiVersionTable | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.cluster.add_listener(lambda _: self._pool.follow())

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

    def _on_trouble(self, node_id: int) -> None:
        if node_id >= 0 and not self._closed:
            self.cluster.request_update()  # a lost connection is often the first sign that leaders moved

    def _check_usable(self) -> None:
        self._check_process()
        if self._closed:
            raise UsageError("this KafkaClient is closed")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise UsageError("this KafkaClient belongs to another event loop: make one per loop")

    # ------------------------------------------------------------ metadata

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The cluster as it is known, as one immutable value."""
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
        if timeout_ms is None:
            auto = self.config.api_version_auto_timeout_ms if self.config.api_version is None else None
            timeout_ms = self.config.request_timeout_ms if auto is None else auto
        await self._refresher.bootstrap(timeout_ms / 1000)
        return self.snapshot

    def trouble(self, node: int | None = None) -> str:
        """The reasons why brokers can't be asked: of each bootstrap server until one has answered, then of each broker, or of one node."""
        brokers = sorted(self.snapshot.brokers) if node is None else [node]
        return self._pool.errors(brokers) if brokers else self._refresher.bootstrap_errors("no answer yet")

    def not_connected(self, seconds: float) -> NoBrokersAvailable:
        """The error for bootstrap servers that have not answered in that time, with a reason for each. For any thread."""
        return self._refresher.not_connected(seconds)

    async def update_metadata(self) -> ClusterSnapshot:
        """Asks for metadata newer than the present and returns it. Raises as the attempt did, `NoBrokersError`."""
        self._check_usable()
        self._refresher.start()
        await self.cluster.request_update()
        return self.snapshot

    def set_topics(self, topics: Iterable[str] | None) -> Future[ClusterMetadata]:
        """Tracks these topics' metadata, None for all. The future resolves when it was fetched.

        Nothing is asked before `bootstrap`; its first request then is for these. Raises `ConfigError` for what
        can't be a topic's name.
        """
        return self._refresher.track(topics)

    def add_topic(self, topic: str, *more: str) -> Future[ClusterMetadata]:
        """Tracks one more topic, or several; as `set_topics`."""
        known = self._refresher.topics
        return self._refresher.track(None if known is None else [*known, topic, *more])

    def tracks(self, topic: str) -> bool:
        """Whether the topic's metadata is kept fresh."""
        return self._refresher.tracks(topic)

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

    # ------------------------------------------------------------ connecting

    def maybe_connect(self, node_id: int, wakeup: bool = True) -> bool:
        """Connects to a node in the background, when its backoff is over. Returns whether that began now: False where it is
        connected or connecting, and for a node that isn't known, for which metadata is asked for. `wakeup` has no meaning."""
        self._check_usable()
        if self.cluster.broker_metadata(node_id) is None:
            self.cluster.request_update()
            return False
        return self._pool.begin(node_id)

    def ready(self, node_id: int, metadata_priority: bool = True) -> bool:
        """Whether a request to the node would be written at once; begins to connect to it if it isn't connected."""
        self.maybe_connect(node_id)
        return self.is_ready(node_id, metadata_priority)

    def is_ready(self, node_id: int, metadata_priority: bool = True) -> bool:
        """Whether a request to the node would be written at once; with `metadata_priority`, while no metadata refresh is due."""
        if metadata_priority and self.cluster.ttl() == 0:
            return False
        live = self._pool.live(node_id)
        window = self.config.max_in_flight_requests_per_connection
        return live is not None and live.in_flight < window and live.throttle_delay() == 0

    # ------------------------------------------------------------ reading

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
        """The number of requests to a node, or to all, that wait for their answers."""
        nodes = self._pool.node_ids() if node_id is None else [node_id]
        return sum(self._pool.state(n).in_flight for n in nodes)

    def connection_delay(self, node_id: int) -> float:
        """Milliseconds until a request to the node may be tried: its backoff, 0 while connecting or possible at
        once, and a very large number when connected, as there is nothing to wait for."""
        state = self._pool.state(node_id)
        if state.connected:
            return _FOREVER_MS
        return 0.0 if state.connecting else state.delay * 1000

    def least_loaded_node(self) -> int | None:
        """The node with the fewest requests in flight; None where none may be asked now.

        An idle connection is preferred, then a node to connect to that isn't backing off. Bootstrap servers
        count as long as no broker is known.
        """
        nodes = self.cluster.snapshot().brokers or {b.node_id: b for b in self.cluster.bootstrap_brokers()}
        return least_loaded(map(self._pool.state, nodes), self.rand)

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
        response = await connection.send(
            request,
            timeout_ms=max(end - self._clock(), 0.0) * 1000,
            min_version=min_version,
            max_version=max_version,
        )
        self._responses.received(response)
        return response

    async def _connection(self, node_id: int, end: float) -> Connection:
        self._check_usable()
        if self.cluster.broker_metadata(node_id) is None:
            self.cluster.request_update()
            raise NodeNotReadyError(f"broker {node_id} is not in the cluster's metadata")
        return await self._pool.connection(node_id, end)

    async def poll(
        self, timeout_ms: float | None = None, future: SettledFuture | None = None
    ) -> list[Response]:
        """Waits for a response to this client, and returns the responses that came meanwhile, also those to Metadata.

        It waits for `timeout_ms`, `request_timeout_ms` or until metadata is due, whichever is shortest; with
        `future`, of asyncio or of `kafka_actors.cluster`, until that is settled or `timeout_ms`, if given, is
        over. The event loop does the client's work whether someone polls or not: a response that comes while
        nobody polls is returned by `send` alone. Raises `UsageError` for a negative time.
        """
        self._check_usable()
        if timeout_ms is not None and timeout_ms < 0:
            raise UsageError(f"poll: timeout_ms is {timeout_ms}: must not be negative")
        if future is not None and future.done():
            timeout_ms, future = 0, None
        self._refresher.start()
        if future is not None:
            return await self._responses.collect(None if timeout_ms is None else timeout_ms / 1000, future)
        limits = [self.config.request_timeout_ms, self.cluster.ttl() or self.config.request_timeout_ms]
        limits += [] if timeout_ms is None else [timeout_ms]
        return await self._responses.collect(min(limits) / 1000)

    # ------------------------------------------------------------ versions

    def transaction_version(self) -> int:
        """The cluster's `transaction.version`, as the broker said it that knew most of the cluster; 0 before the first is connected to."""
        known = self._pool.newest_features
        return 0 if known is None else known.transaction_version()

    async def check_version(
        self,
        node_id: int | None = None,
        timeout: float = 2,  # noqa: ASYNC109  by the name that other clients made known
        strict: bool = False,
    ) -> tuple[int, int]:
        """The release of Kafka that a broker is at least, as (major, minor); of any broker by default.

        It connects if need be, within `timeout` seconds. `strict` wants the broker to speak all that brokers of
        that release do. Raises `NodeNotReadyError` for a node that can't be reached in time,
        `NoBrokersAvailable` where no node is given and none can, `UnrecognizedBrokerVersion` for brokers before
        2.1, `AssertionError` for what `strict` finds.
        """
        end = self._clock() + timeout
        connection = await self._any_connection(end) if node_id is None else await self._ready(node_id, end)
        self._checked = connection.versions
        release = self._checked.broker_version()
        if strict and (missing := lacking(self._checked.ranges, release)):
            release_text = ".".join(map(str, release))
            raise AssertionError(
                f"{connection.address} seems to be Kafka {release_text} and lacks {', '.join(missing)}"
            )
        return release

    async def _any_connection(self, end: float) -> Connection:
        await self.bootstrap(timeout_ms=max(end - self._clock(), 0.0) * 1000)
        try:
            async with asyncio.timeout(max(end - self._clock(), 0.0)):
                return await self._refresher.ask_any(lambda node_id: self._pool.connection(node_id, end))
        except TimeoutError:
            raise NoBrokersAvailable(
                "no broker can be asked for its version: none connects in time"
            ) from None
        except NoBrokersError as error:
            raise NoBrokersAvailable(f"no broker can be asked for its version: {error}") from error

    async def _ready(self, node_id: int, end: float) -> Connection:
        try:
            return await self._connection(node_id, end)
        except ConnectionFailedError as error:
            raise NodeNotReadyError(f"broker {node_id}: {error}") from error

    def get_api_versions(self) -> dict[int, tuple[int, int]] | None:
        """The versions of each API, {api key: (lowest, highest)}, of the broker that `check_version` asked last,
        else of that connected to last; None before there is one."""
        table = self._checked or self._pool.versions
        return None if table is None else dict(table.ranges)

    # ------------------------------------------------------------ life

    async def open_broker(self, node_id: int, host: str, port: int) -> BrokerChannels:
        """Opens two connections to a broker beside the client's own: they are the caller's to close.

        Raises as `Connection.open`.
        """
        self._check_usable()
        timeout_ms = self.config.request_timeout_ms
        broker = BrokerChannels(
            node_id, host, port, ConnectionOpener(self.config, self._clock), timeout_ms, timeout_ms
        )
        try:
            await broker.connect()
            await broker.connect_offsets_channel()
        except BaseException:
            broker.close()
            raise
        return broker

    async def close(self, node_id: int | None = None) -> None:
        """Closes the connection to one node, or all and the client with them. Closing again changes nothing."""
        if node_id is not None:
            await self._pool.close([node_id])
            return
        self._closed = True
        await self._refresher.stop()
        await self._pool.close()
        self.cluster.fail_requests(NodeNotReadyError("the client was closed"))
