"""Connections, the client of a cluster, and what is built on them: everything that touches a socket."""

from .broker import Broker, ConnectionOpener
from .client import KafkaClient
from .connection import Connection
from .fetch_socket import FetchSocket
from .machines.versions import ApiVersionTable
from .offsets import EARLIEST, LATEST, EpochEnd, ListedOffset, OffsetLookups

__all__ = [
    "EARLIEST",
    "LATEST",
    "ApiVersionTable",
    "Broker",
    "Connection",
    "ConnectionOpener",
    "EpochEnd",
    "FetchSocket",
    "KafkaClient",
    "ListedOffset",
    "OffsetLookups",
]
