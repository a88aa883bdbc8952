"""Connections, the client of a cluster, and what is built on them: everything that touches a socket."""

from .broker import Broker
from .channels import OFFSETS_CHANNEL, ConnectionOpener
from .client import KafkaClient
from .connection import Connection
from .fetch_socket import FetchSocket
from .io_thread import IoThread
from .machines.versions import ApiVersionTable
from .offsets import EARLIEST, LATEST, EpochEnd, ListedOffset, OffsetLookups
from .partition_requests import (
    MemberAssignment,
    PartitionFetchRequest,
    PartitionOffsetCommitRequest,
    PartitionOffsetFetchRequest,
    PartitionOffsetRequest,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "OFFSETS_CHANNEL",
    "ApiVersionTable",
    "Broker",
    "Connection",
    "ConnectionOpener",
    "EpochEnd",
    "FetchSocket",
    "IoThread",
    "KafkaClient",
    "ListedOffset",
    "MemberAssignment",
    "OffsetLookups",
    "PartitionFetchRequest",
    "PartitionOffsetCommitRequest",
    "PartitionOffsetFetchRequest",
    "PartitionOffsetRequest",
]
