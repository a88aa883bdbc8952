"""Opens TCP connections to brokers: names, addresses, socket options. TLS comes after it.

All addresses of a name are tried in the resolver's order, from another one on after a failure, because one may accept
connections and never answer. The name is resolved anew each time, because brokers move. The time allowed is shared among the
addresses not yet tried, so that one that accepts no connection leaves time for the next.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from kafka_actors.base.addresses import format_address
from kafka_actors.config import ClientConfig
from kafka_actors.errors import ConfigError, ConnectionFailedError, UnknownHostError
from kafka_actors.options import TCP_NODELAY

_KEEPALIVE = (
    # A NAT or load balancer that forgets a quiet connection sends no reset: probe after a minute of silence.
    ("TCP_KEEPIDLE", 60),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
)


class SocketOptions(Struct, frozen=True):
    """The options that are set on a socket before it connects. Sizes are bytes; `source` is the local (host, port) to bind;
    `options` are (level, option, value) each, and are set last."""

    options: tuple[tuple[int, int, int | bytes], ...] = TCP_NODELAY
    receive_buffer_bytes: int | None = None
    send_buffer_bytes: int | None = None
    source: tuple[str, int] | None = None

    @classmethod
    def of(cls, config: ClientConfig, source: tuple[str, int] | None = None) -> SocketOptions:
        """The options of a config."""
        return cls(config.socket_options, config.receive_buffer_bytes, config.send_buffer_bytes, source)

    def make(self, family: socket.AddressFamily) -> socket.socket:
        """Makes a TCP socket with these options.

        Raises `ConfigError` for an option that the system refuses, `OSError` for a source that can't be bound.
        """
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._apply(sock)
        except BaseException:
            sock.close()
            raise
        return sock

    def _apply(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        # Before connecting: the window scale is agreed upon in the handshake.
        if self.receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)
        if self.send_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        for option in self.options:
            try:
                sock.setsockopt(*option)
            except (OSError, OverflowError, TypeError) as error:
                raise ConfigError("socket_options", f"has {option}: {_text(error)}") from None
        if self.source is not None:
            sock.bind(self.source)


def check_socket_options(config: ClientConfig) -> None:
    """Raises `ConfigError` for socket options that the system refuses."""
    try:
        SocketOptions.of(config).make(socket.AF_INET).close()
    except OSError:  # no IPv4 on this machine: connecting will tell
        pass


async def connect(
    host: str, port: int, options: SocketOptions, within: float, *, first: int = 0
) -> socket.socket:
    """Returns a connected, non-blocking socket. `within` is seconds, for the name and all addresses together; `first` is the number of
    the address to begin with, as often around as it takes.

    Raises `ConnectionFailedError`, which says of each address why it failed.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    failures: list[str] = []
    try:
        async with asyncio.timeout(within):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError, RuntimeError) as error:  # RuntimeError: no thread to ask in
        raise _unresolved(host, port, error) from error
    for sock, address, left in _sockets(found, options, failures, first):
        try:
            sock.setblocking(False)
            async with asyncio.timeout(max(end - loop.time(), 0) / left):
                await loop.sock_connect(sock, address)
            return sock
        except (OSError, TimeoutError) as error:
            sock.close()
            failures.append(_why(address, error))
        except BaseException:
            sock.close()
            raise
    raise _failed(host, port, failures)


def connect_blocking(
    host: str,
    port: int,
    options: SocketOptions,
    within: float,
    clock: Callable[[], float] = time.monotonic,
    *,
    first: int = 0,
) -> socket.socket:
    """Returns a connected, blocking socket; otherwise as `connect`."""
    end = clock() + within
    failures: list[str] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _unresolved(host, port, error) from error
    for sock, address, left in _sockets(found, options, failures, first):
        try:
            sock.settimeout(max((end - clock()) / left, 0.001))
            sock.connect(address)
            sock.settimeout(None)
            return sock
        except OSError as error:
            sock.close()
            failures.append(_why(address, error))
    raise _failed(host, port, failures)


def _sockets(
    found: list[Any], options: SocketOptions, failures: list[str], first: int
) -> Iterator[tuple[socket.socket, tuple[Any, ...], int]]:
    """Yields for each address a socket that is not connected yet, the address, and how many addresses are left, this one too.
    Where no socket can be made, the reason is appended to `failures`."""
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    first %= max(len(addresses), 1)
    addresses = addresses[first:] + addresses[:first]
    for tried, (family, address) in enumerate(addresses):
        try:
            sock = options.make(family)
        except OSError as error:
            failures.append(_why(address, error))
        else:
            yield sock, address, len(addresses) - tried


def _why(address: tuple[Any, ...], error: BaseException) -> str:
    reason = "no answer in time" if isinstance(error, TimeoutError) else _text(error)
    return f"{format_address(str(address[0]), int(address[1]))} {reason}"


def _text(error: BaseException) -> str:
    """The system's own text of an error, without the address that asyncio puts before it."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


_NO_SUCH_NAME = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)
)


def _unresolved(host: str, port: int, error: BaseException) -> ConnectionFailedError:
    unknown = isinstance(error, UnicodeError) or getattr(error, "errno", None) in _NO_SUCH_NAME
    kind = UnknownHostError if unknown else ConnectionFailedError
    return kind(f"{format_address(host, port)}: the name can't be resolved: {_why_unresolved(error)}")


def _why_unresolved(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, UnicodeError):  # Python's own words are about its codec
        return "it is not a valid host name"
    return str(getattr(error, "strerror", None) or error)


def _failed(host: str, port: int, failures: list[str]) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"{format_address(host, port)}: can't connect: {'; '.join(failures) or 'the name has no address'}"
    )
