"""Addresses where nobody listens, and which no other process gets meanwhile: a socket that is bound and doesn't listen refuses connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def refusing_port(*hosts: str) -> Iterator[int]:
    """Yields a port where nobody listens at any of these addresses, by default 127.0.0.1."""
    with ExitStack() as held:
        port = 0
        for host in hosts or ("127.0.0.1",):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sock = held.enter_context(socket.socket(family))
            sock.bind((host, port))
            port = sock.getsockname()[1]
        yield port


@contextmanager
def refusing_address() -> Iterator[str]:
    """Yields such a port of 127.0.0.1 as `host:port`."""
    with refusing_port() as port:
        yield f"127.0.0.1:{port}"
