"""Connections to brokers, the client of a cluster, and look-ups of offsets: all code that touches a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from kafka_actors.base.io_thread import IoThread
    from kafka_actors.reference.broker import (
        Broker,
        MemberAssignment,
        PartitionFetchRequest,
        PartitionOffsetCommitRequest,
        PartitionOffsetFetchRequest,
        PartitionOffsetRequest,
    )
    from kafka_actors.types import EARLIEST, LATEST

    from .broker_channels import OFFSETS_CHANNEL, BrokerChannels, ConnectionOpener
    from .client import KafkaClient
    from .connection import Connection
    from .fetch_socket import FetchSocket
    from .machines.api_versions import ApiVersionTable
    from .offsets import EpochEnd, ListedOffset, OffsetLookups

# Loaded at the first use of a name: most processes that talk to brokers fetch nothing.
_HOMES = {
    "ApiVersionTable": "machines.api_versions",
    "Broker": "kafka_actors.reference.broker",
    "BrokerChannels": "broker_channels",
    "Connection": "connection",
    "ConnectionOpener": "broker_channels",
    "EARLIEST": "kafka_actors.types",
    "EpochEnd": "offsets",
    "FetchSocket": "fetch_socket",
    "IoThread": "kafka_actors.base.io_thread",
    "KafkaClient": "client",
    "LATEST": "kafka_actors.types",
    "ListedOffset": "offsets",
    "MemberAssignment": "kafka_actors.reference.broker",
    "OFFSETS_CHANNEL": "broker_channels",
    "OffsetLookups": "offsets",
    "PartitionFetchRequest": "kafka_actors.reference.broker",
    "PartitionOffsetCommitRequest": "kafka_actors.reference.broker",
    "PartitionOffsetFetchRequest": "kafka_actors.reference.broker",
    "PartitionOffsetRequest": "kafka_actors.reference.broker",
}

__all__ = [
    "EARLIEST",
    "LATEST",
    "OFFSETS_CHANNEL",
    "ApiVersionTable",
    "Broker",
    "BrokerChannels",
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
