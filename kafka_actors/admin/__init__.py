"""The daily life of groups and topics: `Admin`, and `AsyncAdmin` for asyncio."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_actors.net import ListedOffset
    from kafka_actors.net.offsets import MAX_TIMESTAMP
    from kafka_actors.protocol.types import EARLIEST, LATEST

    from .async_admin import AsyncAdmin
    from .machines.reset import OffsetTarget
    from .sync_admin import Admin
    from .types import (
        ClusterDescription,
        GroupDescription,
        GroupListing,
        MemberDescription,
        NewTopic,
        OffsetReset,
        PartitionDescription,
        PartitionLag,
        TopicDescription,
        TopicListing,
    )

# Loaded when first used: who only asks brokers, as Spark's planner does at each query, imports no consumer.
_HOMES = {
    "EARLIEST": "kafka_actors.protocol.types",
    "LATEST": "kafka_actors.protocol.types",
    "MAX_TIMESTAMP": "kafka_actors.net.offsets",
    "Admin": ".sync_admin",
    "AsyncAdmin": ".async_admin",
    "ClusterDescription": ".types",
    "GroupDescription": ".types",
    "GroupListing": ".types",
    "ListedOffset": "kafka_actors.net",
    "MemberDescription": ".types",
    "NewTopic": ".types",
    "OffsetReset": ".types",
    "OffsetTarget": ".machines.reset",
    "PartitionDescription": ".types",
    "PartitionLag": ".types",
    "TopicDescription": ".types",
    "TopicListing": ".types",
}

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "AsyncAdmin",
    "ClusterDescription",
    "GroupDescription",
    "GroupListing",
    "ListedOffset",
    "MemberDescription",
    "NewTopic",
    "OffsetReset",
    "OffsetTarget",
    "PartitionDescription",
    "PartitionLag",
    "TopicDescription",
    "TopicListing",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home, __name__), name)


def __dir__() -> list[str]:
    return __all__
