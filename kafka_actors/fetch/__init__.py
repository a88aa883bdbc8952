"""Fetching records: the worker side (`Fetcher`), the connection side (`BrokerFetcher`), and the messages between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from .broker_fetcher import BrokerFetcher
    from .decoding import DecodeAhead
    from .fetch_driver import RecordSource
    from .fetcher import Fetcher
    from .local_sources import LocalSources
    from .lookups import LookupClient
    from .machines.buffer import FetchedBytes
    from .machines.partition_state import FetchProgress, PartitionStart
    from .messages import FetchedPartition, FetchReply, PartitionFetch, Pull

# Loaded when first used: a connection actor, which fetches for workers, decodes nothing.
_HOMES = {
    "DecodeAhead": "decoding",
    "BrokerFetcher": "broker_fetcher",
    "FetchReply": "messages",
    "FetchedPartition": "messages",
    "FetchedBytes": "machines.buffer",
    "Fetcher": "fetcher",
    "LocalSources": "local_sources",
    "LookupClient": "lookups",
    "Pull": "messages",
    "RecordSource": "fetch_driver",
    "FetchProgress": "machines.partition_state",
    "PartitionStart": "machines.partition_state",
    "PartitionFetch": "messages",
}

__all__ = [
    "BrokerFetcher",
    "DecodeAhead",
    "FetchProgress",
    "FetchReply",
    "FetchedBytes",
    "FetchedPartition",
    "Fetcher",
    "LocalSources",
    "LookupClient",
    "PartitionFetch",
    "PartitionStart",
    "Pull",
    "RecordSource",
]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
