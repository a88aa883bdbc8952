"""Administration of groups, offsets, topics, settings and ACLs: `Admin`, and `AsyncAdmin` for asyncio."""

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
        AclBinding,
        AclBindingFilter,
        AlterConfigOp,
        ClusterDescription,
        ConfigEntry,
        ConfigResource,
        ConfigSynonym,
        GroupDescription,
        GroupListing,
        MemberDescription,
        NewPartitions,
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
    "AclBinding": "results",
    "AclBindingFilter": "results",
    "Admin": "sync_admin",
    "AlterConfigOp": "results",
    "AsyncAdmin": "async_admin",
    "ClusterDescription": "results",
    "ConfigEntry": "results",
    "ConfigResource": "results",
    "ConfigSynonym": "results",
    "EARLIEST": "kafka_actors.types",
    "GroupDescription": "results",
    "GroupListing": "results",
    "LATEST": "kafka_actors.types",
    "ListedOffset": "kafka_actors.net",
    "MAX_TIMESTAMP": "kafka_actors.net.offsets",
    "MemberDescription": "results",
    "NewPartitions": "results",
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
    "AclBinding",
    "AclBindingFilter",
    "Admin",
    "AlterConfigOp",
    "AsyncAdmin",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSynonym",
    "GroupDescription",
    "GroupListing",
    "ListedOffset",
    "MemberDescription",
    "NewPartitions",
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
