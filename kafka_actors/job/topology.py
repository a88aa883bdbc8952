"""Messages about connection actors, between the metadata actor, which says which there should be, and the supervisor, which starts
them. Frozen, tagged Structs, as in `messages`.

Both sides only compare whole states, so that a lost or repeated message changes nothing.

Each node of the Ray cluster that has workers has a connection actor for each broker: `Topology` has all that are wanted now, and
`ConnectionReport` tells where one runs.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["ConnectionReport", "ConnectionWanted", "Topology"]


class ConnectionWanted(Struct, frozen=True, tag=True):
    """Wish for a connection actor: to this broker, on this node of the Ray cluster."""

    node: str
    broker: int
    host: str
    port: int


class ConnectionReport(Struct, frozen=True, tag=True):
    """Connection actor that runs, as the supervisor started it."""

    node: str
    broker: int
    host: str
    port: int
    incarnation: int


class Topology(Struct, frozen=True, tag=True):
    """Answer of the metadata actor to the supervisor: all connection actors that there should be."""

    version: int
    wanted: list[ConnectionWanted]
