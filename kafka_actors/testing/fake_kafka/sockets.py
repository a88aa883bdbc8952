"""The fake cluster on sockets: an event loop in a thread of its own, which feeds the machine and sends what it wants sent."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from kafka_actors.base.io_thread import IoThread

from .machines.fake_cluster import CloseLink, FakeCluster, SendBytes

T = TypeVar("T")


class _ClientSocket(asyncio.Protocol):
    """One accepted connection."""

    def __init__(self, shell: ClusterSockets, node_id: int) -> None:
        self._shell = shell
        self._node_id = node_id
        self._link = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._link = self._shell.connected(self._node_id, transport)

    def data_received(self, data: bytes) -> None:
        self._shell.received(self._link, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._shell.disconnected(self._link)


class ClusterSockets:
    """Listens for the brokers of a cluster, and drives its machine. All that touches the machine runs in the thread: see `call`."""

    def __init__(self, cluster: FakeCluster, host: str) -> None:
        self._cluster = cluster
        self._host = host
        self._io = IoThread("fake-kafka")
        self._servers: dict[int, asyncio.Server] = {}
        self._kept: dict[int, socket.socket] = {}
        """Bound to the ports of brokers that were killed: nobody else gets one until the broker listens there again, or the end. A bound socket
        that doesn't listen refuses connections."""
        self._transports: dict[int, asyncio.Transport] = {}
        self._began = time.monotonic()
        self._wake: asyncio.TimerHandle | None = None

    def call(self, function: Callable[[], T]) -> T:
        """Runs a function in the thread, lets the machine go on, and returns the function's result."""
        if self._io.inside:
            return self._run(function)

        async def run() -> T:
            return self._run(function)

        return self._io.run(run())

    def _run(self, function: Callable[[], T]) -> T:
        self._cluster.advance(self._now())
        try:
            return function()
        finally:
            self._turn()

    def listen(self, node_id: int, port: int = 0) -> int:
        """Listens for a broker; returns its port."""

        async def start() -> int:
            loop = asyncio.get_running_loop()
            if (kept := self._kept.pop(port, None)) is not None:
                kept.close()
            server = await loop.create_server(lambda: _ClientSocket(self, node_id), self._host, port)
            self._servers[node_id] = server
            found: int = server.sockets[0].getsockname()[1]
            return found

        return self._io.run(start())

    def stop_listening(self, node_id: int) -> None:
        """Refuses connections to a broker."""
        if (server := self._servers.pop(node_id, None)) is not None:
            family, address = server.sockets[0].family, server.sockets[0].getsockname()
            server.close()
            self._kept[address[1]] = kept = socket.socket(family)
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections to it may be there still
            with suppress(OSError):  # another process has just got it
                kept.bind(address)

    def stop(self) -> None:
        """Closes all sockets and ends the thread."""
        if not self._io.alive:
            return

        async def close() -> None:
            for node_id in list(self._servers):
                self.stop_listening(node_id)
            for kept in self._kept.values():
                kept.close()
            for transport in self._transports.values():
                transport.abort()
            await asyncio.sleep(0)

        self._io.run(close())
        self._io.stop()

    # ---------------------------------------------------------------- in the thread

    def connected(self, node_id: int, transport: asyncio.Transport) -> int:
        """Takes in a connection; returns its number."""
        host = transport.get_extra_info("peername")[0]
        link = self._cluster.connected(node_id, f"/{host}", self._now())
        self._transports[link] = transport
        return link

    def received(self, link: int, data: bytes) -> None:
        """Hands on what a client sent."""
        self._cluster.received(link, data, self._now())
        self._turn()

    def disconnected(self, link: int) -> None:
        """Notes that a connection is gone."""
        self._transports.pop(link, None)
        self._cluster.disconnected(link, self._now())

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _turn(self) -> None:
        ready = self._cluster.poll(self._now())
        for action in ready.actions:
            transport = self._transports.get(action.link)
            if transport is not None:
                self._carry_out(action, transport)
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if ready.next_wake is not None:
            wait = max(0.0, ready.next_wake - self._now())
            self._wake = asyncio.get_running_loop().call_later(wait, self._turn)

    def _carry_out(self, action: SendBytes | CloseLink, transport: asyncio.Transport) -> None:
        if isinstance(action, SendBytes):
            transport.write(action.data)
        else:
            transport.close()
