"""`Broker`: the connections of one group member to one broker, which don't wait for each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.config import ClientConfig
from kafka_actors.errors import NodeNotReadyError
from kafka_actors.protocol.schema import Request, Response

from .connection import Connection
from .process_bound import ProcessBound

R = TypeVar("R", bound=Response)


class Opener(Protocol):
    """Opens connections: what a `Broker` takes as its `handler`."""

    async def __call__(
        self, host: str, port: int, *, source: tuple[str, int] | None, buffer_size: int, timeout_ms: int
    ) -> Connection: ...


class ConnectionOpener:
    """Opens connections with the options of a config."""

    def __init__(self, config: ClientConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock

    async def __call__(
        self, host: str, port: int, *, source: tuple[str, int] | None, buffer_size: int, timeout_ms: int
    ) -> Connection:
        setup = self._config.socket_connection_setup_timeout_ms
        return await Connection.open(
            host,
            port,
            self._config,
            source=source,
            buffer_size=buffer_size,
            timeout_ms=min(setup, timeout_ms),
            clock=self._clock,
        )


class Broker(ProcessBound):
    """One broker, with a main channel and an offsets channel.

    A broker carries out the requests of one connection one after the other, so a pending JoinGroup holds up all
    that is behind it on its socket. What must not wait goes over the offsets channel: heartbeats, commits,
    offset fetches. Requests under further `connection_id`s get a connection each, so that two members in one
    process never wait for each other's JoinGroup.

    `handler` opens the connections. The timeouts are those of a request on either channel, in milliseconds;
    `buffer_size` is how many bytes are read from a socket at once; `source_host` and `source_port` are the
    local address to come from. Not for use after a fork, nor pickled.
    """

    def __init__(
        self,
        id_: int,
        host: str,
        port: int,
        handler: Opener,
        socket_timeout_ms: int,
        offsets_channel_socket_timeout_ms: int,
        buffer_size: int = 1048576,
        source_host: str = "",
        source_port: int = 0,
    ) -> None:
        super().__init__()
        self._id = id_
        self._host = host
        self._port = port
        self._opener = handler
        self._socket_timeout_ms = socket_timeout_ms
        self._offsets_timeout_ms = offsets_channel_socket_timeout_ms
        self._buffer_size = buffer_size
        self._source = (source_host, source_port) if source_host or source_port else None
        self._main: Connection | None = None
        self._offsets: Connection | None = None
        self._main_id: str | None = None
        self._unique: dict[str, Connection] = {}

    @classmethod
    def from_metadata(
        cls,
        metadata: BrokerMetadata,
        handler: Opener,
        socket_timeout_ms: int,
        offsets_channel_socket_timeout_ms: int,
        buffer_size: int = 65536,
        source_host: str = "",
        source_port: int = 0,
    ) -> Broker:
        """A broker as metadata describes it; the arguments are the constructor's."""
        return cls(
            metadata.node_id,
            metadata.host,
            metadata.port,
            handler,
            socket_timeout_ms,
            offsets_channel_socket_timeout_ms,
            buffer_size,
            source_host,
            source_port,
        )

    def __repr__(self) -> str:
        return f"<Broker {self._id} {self._host}:{self._port}>"

    @property
    def id(self) -> int:
        """The broker's id within the cluster."""
        return self._id

    @property
    def host(self) -> str:
        """The host to which it connects."""
        return self._host

    @property
    def port(self) -> int:
        """The port to which it connects."""
        return self._port

    @property
    def connected(self) -> bool:
        """Whether the main channel is open."""
        return _live(self._main) is not None

    @property
    def offsets_channel_connected(self) -> bool:
        """Whether the offsets channel is open."""
        return _live(self._offsets) is not None

    @property
    def handler(self) -> Connection | None:
        """The main channel's connection."""
        return self._main

    @property
    def offsets_channel_handler(self) -> Connection | None:
        """The offsets channel's connection."""
        return self._offsets

    async def connect(self) -> None:
        """Opens the main channel, unless it is open. Raises as `Connection.open`."""
        if not self.connected:
            self._main = await self._open(self._socket_timeout_ms)

    async def connect_offsets_channel(self) -> None:
        """Opens the offsets channel, unless it is open. Raises as `Connection.open`."""
        if not self.offsets_channel_connected:
            self._offsets = await self._open(self._offsets_timeout_ms)

    async def request(
        self,
        message: Request[R],
        *,
        connection_id: str | None = None,
        offsets_channel: bool = False,
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> R:
        """Sends a request over one of the channels and returns its response. Raises as `Connection.send`.

        A channel that was never opened is opened; one that was lost is not: its loss is the caller's to see
        (`NodeNotReadyError`), and `connect` or `connect_offsets_channel` opens it anew.
        """
        self._check_process()
        if offsets_channel:
            if self._offsets is None:
                await self.connect_offsets_channel()
            connection, default = self._offsets, self._offsets_timeout_ms
        else:
            connection, default = await self._unique_connection(connection_id), self._socket_timeout_ms
        if connection is None:
            raise NodeNotReadyError(f"{self!r}: closed while connecting")
        return await connection.send(
            message,
            timeout_ms=default if timeout_ms is None else timeout_ms,
            min_version=min_version,
            max_version=max_version,
        )

    async def _unique_connection(self, connection_id: str | None) -> Connection | None:
        """The first connection id has the main channel, each further one a connection of its own."""
        if self._main_id is None:
            self._main_id = connection_id
        if connection_id is None or connection_id == self._main_id:
            if self._main is None:
                await self.connect()
            return self._main
        if connection_id not in self._unique:
            self._unique[connection_id] = await self._open(self._socket_timeout_ms)
        return self._unique[connection_id]

    async def _open(self, timeout_ms: int) -> Connection:
        self._check_process()
        return await self._opener(
            self._host, self._port, source=self._source, buffer_size=self._buffer_size, timeout_ms=timeout_ms
        )

    def close(self) -> None:
        """Closes all its connections; what waits on them fails."""
        for connection in (self._main, self._offsets, *self._unique.values()):
            if connection is not None:
                connection.close()
        self._unique.clear()


def _live(connection: Connection | None) -> Connection | None:
    return connection if connection is not None and not connection.closed else None
