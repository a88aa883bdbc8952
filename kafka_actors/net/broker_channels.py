"""`BrokerChannels`: the connections of one client to one broker, which don't wait for each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from kafka_actors.base.addresses import format_address
from kafka_actors.base.fork_guard import ForkGuard
from kafka_actors.config import ClientConfig
from kafka_actors.errors import NodeNotReadyError
from kafka_actors.protocol.schema import Request, Response

from .connection import Connection

R = TypeVar("R", bound=Response)

OFFSETS_CHANNEL = "offsets-channel"
"""The `connection_id` of a broker's offsets channel."""


class Opener(Protocol):
    """Opens connections: the `handler` of `BrokerChannels`."""

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


class BrokerChannel:
    """One connection and the time that its requests have. `connection` is the last one, None before the first."""

    def __init__(self, name: str, timeout_ms: int, open_one: Callable[[int], Awaitable[Connection]]) -> None:
        self.connection: Connection | None = None
        self.timeout_ms = timeout_ms
        self._name = name
        self._open = open_one
        self._opening = asyncio.Lock()
        self._closes = 0

    @property
    def live(self) -> bool:
        """Whether it is open."""
        return self.connection is not None and not self.connection.closed

    @property
    def lost(self) -> bool:
        """Whether it was open and is no more."""
        return self.connection is not None and self.connection.closed

    async def connect(self) -> None:
        """Opens it, unless it is open. Callers share an attempt. Raises as `Connection.open`."""
        async with self._opening:
            if self.live:
                return
            closes = self._closes
            opened = await self._open(self.timeout_ms)
            if closes != self._closes:
                opened.close()
                raise NodeNotReadyError(f"{self._name}: closed while connecting")
            self.connection = opened

    async def ensure(self) -> Connection:
        """Returns the connection, opened if there never was one. One that was lost is not replaced."""
        if self.connection is None:
            await self.connect()
        assert self.connection is not None  # connect() sets it, or raises
        return self.connection

    def close(self) -> None:
        """Closes the connection; requests that wait on it fail."""
        self._closes += 1
        if self.connection is not None:
            self.connection.close()


class BrokerChannels(ForkGuard):
    """A main channel, an offsets channel, and a channel for each further `connection_id`.

    A broker carries out the requests of one connection one after the other, so a pending JoinGroup holds up all
    that is behind it on its socket. What must not wait goes over another channel. The first `connection_id` that is used has
    the main channel; `OFFSETS_CHANNEL` is the offsets channel's. `handler` opens the connections; the timeouts are those of a
    request on either channel, in milliseconds; `buffer_size` is how many bytes are read from a socket at once; `source_host`
    and `source_port` are the local address to come from. Not for use after a fork, nor pickled.
    """

    _called = "Broker"

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
        self._buffer_size = buffer_size
        self._source = (source_host, source_port) if source_host or source_port else None
        self._main = BrokerChannel(repr(self), socket_timeout_ms, self._open)
        self._offsets = BrokerChannel(repr(self), offsets_channel_socket_timeout_ms, self._open)
        self._main_id: str | None = None
        self._unique: dict[str, BrokerChannel] = {OFFSETS_CHANNEL: self._offsets}

    def __repr__(self) -> str:
        return f"<Broker {self._id} {format_address(self._host, self._port)}>"

    async def _open(self, timeout_ms: int) -> Connection:
        self._check_process()
        return await self._opener(
            self._host, self._port, source=self._source, buffer_size=self._buffer_size, timeout_ms=timeout_ms
        )

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
        return self._main.live

    @property
    def offsets_channel_connected(self) -> bool:
        """Whether the offsets channel is open."""
        return self._offsets.live

    @property
    def handler(self) -> Connection | None:
        """The main channel's connection, for all requests but those about committed offsets. None before it is opened."""
        return self._main.connection

    @property
    def offsets_channel_handler(self) -> Connection | None:
        """The offsets channel's connection, for committed offsets and for requests that must not wait for a join. None before it is
        opened."""
        return self._offsets.connection

    async def connect(self) -> None:
        """Opens the main channel, unless it is open. Raises as `Connection.open`."""
        await self._main.connect()

    async def connect_offsets_channel(self) -> None:
        """Opens the offsets channel, unless it is open. Raises as `Connection.open`."""
        await self._offsets.connect()

    async def open_channel(self, connection_id: str) -> None:
        """Opens a channel for a `connection_id` alone, unless it is open; that id never gets the main channel then.

        Raises as `Connection.open`.
        """
        self._check_process()
        await self._further(connection_id).connect()

    def close_channel(self, connection_id: str) -> None:
        """Closes the channel that `open_channel` opened, if it did; requests that wait on it fail."""
        channel = self._unique.pop(connection_id, None)
        if channel is not None:
            channel.close()

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

        `offsets_channel` is short for the `connection_id` `OFFSETS_CHANNEL`. A channel that was never opened is
        opened; main and offsets channel, once lost, are not: their loss is the caller's to see
        (`NodeNotReadyError`), and `connect` or `connect_offsets_channel` opens them anew.
        """
        self._check_process()
        channel = self._channel(OFFSETS_CHANNEL if offsets_channel else connection_id)
        connection = await channel.ensure()
        return await connection.send(
            message,
            timeout_ms=channel.timeout_ms if timeout_ms is None else timeout_ms,
            min_version=min_version,
            max_version=max_version,
        )

    async def _get_unique_req_handler(self, connection_id: str) -> Connection:
        """The connection of a `connection_id`, opened if it never was."""
        return await self._channel(connection_id).ensure()

    def _channel(self, connection_id: str | None) -> BrokerChannel:
        if connection_id is None or connection_id == self._main_id:
            return self._main
        if connection_id not in self._unique and self._main_id is None:
            self._main_id = connection_id
            return self._main
        return self._further(connection_id)

    def _further(self, connection_id: str) -> BrokerChannel:
        channel = self._unique.get(connection_id)
        # Opened anew where it was lost: the callers that waited on the lost connection have got their errors.
        if channel is None or (channel.lost and channel is not self._offsets):
            channel = self._unique[connection_id] = BrokerChannel(
                repr(self), self._socket_timeout_ms, self._open
            )
        return channel

    def close(self) -> None:
        """Closes all its connections; requests that wait on them fail."""
        for channel in (self._main, *self._unique.values()):
            channel.close()
        self._unique = {OFFSETS_CHANNEL: self._offsets}
