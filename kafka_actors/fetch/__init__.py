"""Fetching records: the worker side (`Fetcher`) and the connection side (`BrokerFetcher`), and what they say to
each other (`messages`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from .ahead import Ahead
    from .broker_fetcher import BrokerFetcher
    from .fetcher import Fetcher
    from .local_sources import LocalSources
    from .machines.buffer import FetchedBytes
    from .machines.partition import Standing, Start
    from .messages import Fetched, FetchReply, Pull, Want
    from .offsets import OffsetLookup
    from .pump import RecordSource

# Loaded when first used: who fetches for others decodes nothing.
_HOMES = {
    "Ahead": "ahead",
    "BrokerFetcher": "broker_fetcher",
    "FetchReply": "messages",
    "Fetched": "messages",
    "FetchedBytes": "machines.buffer",
    "Fetcher": "fetcher",
    "LocalSources": "local_sources",
    "OffsetLookup": "offsets",
    "Pull": "messages",
    "RecordSource": "pump",
    "Standing": "machines.partition",
    "Start": "machines.partition",
    "Want": "messages",
}

__all__ = [
    "Ahead",
    "BrokerFetcher",
    "FetchReply",
    "Fetched",
    "FetchedBytes",
    "Fetcher",
    "LocalSources",
    "OffsetLookup",
    "Pull",
    "RecordSource",
    "Standing",
    "Start",
    "Want",
]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
