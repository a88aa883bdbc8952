"""Connections, the client of a cluster, and what is built on them: everything that touches a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from kafka_actors.base.io_thread import IoThread
    from kafka_actors.types import EARLIEST, LATEST

    from .broker import Broker
    from .channels import OFFSETS_CHANNEL, ConnectionOpener
    from .client import KafkaClient
    from .connection import Connection
    from .fetch_socket import FetchSocket
    from .machines.api_versions import ApiVersionTable
    from .offsets import EpochEnd, ListedOffset, OffsetLookups
    from .partition_requests import (
        MemberAssignment,
        PartitionFetchRequest,
        PartitionOffsetCommitRequest,
        PartitionOffsetFetchRequest,
        PartitionOffsetRequest,
    )

# Loaded when first used: most who talk to brokers fetch nothing.
_HOMES = {
    "ApiVersionTable": "machines.api_versions",
    "Broker": "broker",
    "Connection": "connection",
    "ConnectionOpener": "channels",
    "EARLIEST": "kafka_actors.types",
    "EpochEnd": "offsets",
    "FetchSocket": "fetch_socket",
    "IoThread": "kafka_actors.base.io_thread",
    "KafkaClient": "client",
    "LATEST": "kafka_actors.types",
    "ListedOffset": "offsets",
    "MemberAssignment": "partition_requests",
    "OFFSETS_CHANNEL": "channels",
    "OffsetLookups": "offsets",
    "PartitionFetchRequest": "partition_requests",
    "PartitionOffsetCommitRequest": "partition_requests",
    "PartitionOffsetFetchRequest": "partition_requests",
    "PartitionOffsetRequest": "partition_requests",
}

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

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
