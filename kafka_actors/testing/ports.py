"""Free TCP ports for servers whose port is chosen before they start and stays the same over restarts."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 15_000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Returns `count` different ports that nothing listens on now, below the system's ephemeral range.

    A port of the ephemeral range can't be used for a broker that is killed and restarted: meanwhile an outgoing connection
    may get it, and a client that reconnects may even connect to itself.
    """
    highest = _lowest_ephemeral() - 1
    found: set[int] = set()
    for _ in range(10_000):
        if len(found) == count:
            return sorted(found)
        port = random.randint(_LOWEST, highest)
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            found.add(port)
    raise OSError(f"no {count} free ports between {_LOWEST} and {highest}")


def _lowest_ephemeral() -> int:
    try:
        lowest = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except OSError:
        lowest = 32_768
    return max(lowest, _LOWEST + 1_000)
