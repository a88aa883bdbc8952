"""Server of a status page: one request a connection. Time and number of clients are bounded, so that slow or many clients
can't burden the job."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Collection

from kafka_actors.errors import ConfigError

from .machines.http import (
    END_OF_HEAD,
    MOST_HEAD,
    BadRequest,
    HttpRequest,
    HttpResponse,
    parse,
    plain,
    to_bytes,
)

__all__ = ["MOST_CLIENTS", "StatusServer", "is_loopback", "listen"]

logger = logging.getLogger(__name__)

MOST_CLIENTS = 64
"""Clients that are served at once. As many more get a 503, and further ones are disconnected without an answer."""
READ_S = 5.0
"""Seconds in which a request has to arrive."""
BUSY_READ_S = 1.0
"""Seconds in which a request has to arrive that only gets a 503."""
WRITE_S = 10.0
"""Seconds in which a client has to take its response."""


def listen(option: str, host: str, port: int) -> socket.socket:
    """Opens a listening socket; port 0 is a free one. Raises `ConfigError` with the option and the address."""
    six = ":" in host
    try:
        return socket.create_server(
            (host, port),
            family=socket.AF_INET6 if six else socket.AF_INET,
            backlog=MOST_CLIENTS,
            dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        where = f"[{host}]:{port}" if six else f"{host}:{port}"
        # From the number, because the text of the error has the address once more.
        why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror
        raise ConfigError(option, f"{where} can't be listened on: {why or error}") from None


def is_loopback(listening: socket.socket) -> bool:
    """Whether a listening socket is bound to loopback, and so reached only from this machine."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


class StatusServer:
    """Serves the responses of `answer(request)`, which must not block, except for the paths in `slow`: those run on threads."""

    def __init__(self, answer: Callable[[HttpRequest], HttpResponse], slow: Collection[str] = ()) -> None:
        self._answer = answer
        self._slow = slow
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._only_here = True

    async def start(self, listening: socket.socket) -> None:
        """Starts to serve on this socket."""
        self._only_here = is_loopback(listening)
        self._server = await asyncio.start_server(self._connected, sock=listening, limit=MOST_HEAD)

    async def close(self) -> None:
        """Stops listening, and drops the connections that are open."""
        if self._server is not None:
            self._server.close()
        for client in list(self._clients):
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes a connection. Not a coroutine, because asyncio would log one that is cancelled at the close."""
        if len(self._clients) >= 2 * MOST_CLIENTS:
            writer.transport.abort()
            return
        client = asyncio.ensure_future(self._serve(reader, writer, busy=len(self._clients) >= MOST_CLIENTS))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, busy: bool) -> None:
        try:
            head = await _head(reader, BUSY_READ_S if busy else READ_S)
            if busy:
                writer.write(to_bytes(plain(503, "too many clients at once: try again later"), "GET"))
            else:
                writer.write(await self._answer_to(head))
            async with asyncio.timeout(WRITE_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            pass  # the client is too slow, or gone
        finally:
            writer.transport.abort()

    async def _answer_to(self, head: bytes) -> bytes:
        method = "GET"
        try:
            request = parse(head, only_here=self._only_here)
            method = request.method
            if request.path in self._slow:
                response = await asyncio.to_thread(self._answer, request)
            else:
                response = self._answer(request)
        except BadRequest as error:
            response = plain(error.status, str(error))
        except Exception as error:
            logger.warning(
                "the status page could not answer a request: %s: %s",
                type(error).__name__,
                error,
                exc_info=True,
            )
            response = plain(500, "internal error: see the job's log")
        return to_bytes(response, method)


async def _head(reader: asyncio.StreamReader, within_s: float) -> bytes:
    """Head of a request; of one that is too long the beginning, which `parse` refuses."""
    async with asyncio.timeout(within_s):
        try:
            return await reader.readuntil(END_OF_HEAD)
        except asyncio.LimitOverrunError:
            return await reader.read(MOST_HEAD + 1)
