"""The daily life of groups and topics: `Admin`, and `AsyncAdmin` for asyncio."""

from kafka_actors.net import EARLIEST, LATEST, ListedOffset
from kafka_actors.net.offsets import MAX_TIMESTAMP

from .async_admin import AsyncAdmin
from .machines.reset import OffsetTarget
from .sync_admin import Admin
from .types import (
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

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "AsyncAdmin",
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
