"""`KafkaClient`: requests to any broker of a cluster, and metadata that is kept fresh."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from kafka_actors.errors import (
    ConnectionFailedError,
    NoBrokersAvailable,
    NoBrokersError,
    NodeNotReadyError,
    UsageError,
)
from kafka_actors.protocol.schema import Request, Response

from .broker import Broker
from .channels import ConnectionOpener
from .client_metadata import ClientMetadata
from .connection import Connection
from .machines.api_versions import ApiVersionTable
from .machines.releases import lacking
from .response_watch import SettledFuture

R = TypeVar("R", bound=Response)


class KafkaClient(ClientMetadata):
    """A client of one cluster, for one event loop: that in which it is first used.

    Options come as a `ClientConfig` or as keyword arguments. `cluster` is what is known of the cluster; after
    `bootstrap` it is refreshed in the background, when it is old or someone asks. `clock` counts seconds,
    monotonic; `rand` gives 0..1 for jitter. Not for use after a fork, nor pickled.

    Nodes are broker ids; the bootstrap servers have the ids -1, -2, … in their order.
    """

    _checked: ApiVersionTable | None = None

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
        """Waits for a response to this client, and returns those that came meanwhile, metadata's among them.

        It waits for `timeout_ms`, `request_timeout_ms` or until metadata is due, whichever is shortest; with
        `future`, of asyncio or of `kafka_actors.cluster`, until that is settled or `timeout_ms`, if given, is
        over. The event loop does the client's work whether someone polls or not: a response that comes while
        nobody does is its sender's alone. Raises `UsageError` for a negative time.
        """
        self._check_usable()
        if timeout_ms is not None and timeout_ms < 0:
            raise UsageError(f"poll: timeout_ms is {timeout_ms}: must not be negative")
        if future is not None and future.done():
            timeout_ms, future = 0, None
        self._start_refreshing()
        if future is not None:
            return await self._responses.collect(None if timeout_ms is None else timeout_ms / 1000, future)
        limits = [self.config.request_timeout_ms, self.cluster.ttl() or self.config.request_timeout_ms]
        limits += [] if timeout_ms is None else [timeout_ms]
        return await self._responses.collect(min(limits) / 1000)

    # ------------------------------------------------------------ versions

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
