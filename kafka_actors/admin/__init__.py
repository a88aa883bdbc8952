"""Administration of groups, offsets and topics: `Admin`, and `AsyncAdmin` for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from kafka_actors.net import ListedOffset
    from kafka_actors.net.offsets import MAX_TIMESTAMP
    from kafka_actors.types import EARLIEST, LATEST

    from .async_admin import AsyncAdmin
    from .machines.offsets import OffsetTarget
    from .results import (
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
    from .sync_admin import Admin

# Loaded when first used: Spark's planner uses the admin at each query, and needs no consumer for that.
_HOMES = {
    "EARLIEST": "kafka_actors.types",
    "LATEST": "kafka_actors.types",
    "MAX_TIMESTAMP": "kafka_actors.net.offsets",
    "Admin": "sync_admin",
    "AsyncAdmin": "async_admin",
    "ClusterDescription": "results",
    "GroupDescription": "results",
    "GroupListing": "results",
    "ListedOffset": "kafka_actors.net",
    "MemberDescription": "results",
    "NewTopic": "results",
    "OffsetReset": "results",
    "OffsetTarget": "machines.offsets",
    "PartitionDescription": "results",
    "PartitionLag": "results",
    "TopicDescription": "results",
    "TopicListing": "results",
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


__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
