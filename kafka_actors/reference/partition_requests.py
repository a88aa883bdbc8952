"""The arguments of a `Broker`'s methods, one object for each partition, and the protocol's requests that they make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from kafka_actors.cluster.cluster import metadata_request
from kafka_actors.protocol import (
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kafka_actors.protocol.messages.fetch import FetchPartition, FetchTopic
from kafka_actors.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_actors.protocol.messages.offset_fetch import OffsetFetchRequestTopic
from kafka_actors.types import LATEST


class PartitionFetchRequest(Struct, frozen=True):
    """Records of one partition from `offset` on, up to `max_bytes` (the first batch comes whole)."""

    topic: str
    partition: int
    offset: int
    max_bytes: int = 1 << 20


class PartitionOffsetRequest(Struct, frozen=True):
    """The first offset whose record's timestamp is `timestamp` (milliseconds) or later; `LATEST`, `EARLIEST`."""

    topic: str
    partition: int
    timestamp: int = LATEST


class PartitionOffsetCommitRequest(Struct, frozen=True):
    """The offset to go on from in one partition, with a text that is kept beside it."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class PartitionOffsetFetchRequest(Struct, frozen=True):
    """The committed offset of one partition."""

    topic: str
    partition: int


class MemberAssignment(Struct, frozen=True):
    """The assignment of one member by the leader of its group, in the bytes of the group's protocol."""

    member_id: str
    assignment: bytes


class _OfPartition(Protocol):
    @property
    def topic(self) -> str: ...


P = TypeVar("P", bound=_OfPartition)


def _by_topic(requests: Iterable[P]) -> dict[str, list[P]]:
    found: dict[str, list[P]] = {}
    for request in requests:
        found.setdefault(request.topic, []).append(request)
    return found


def fetch(requests: Iterable[PartitionFetchRequest], timeout: int, min_bytes: int) -> FetchRequest:
    """A Fetch without a session: all partitions, each time."""
    return FetchRequest(
        max_wait_ms=timeout,
        min_bytes=min_bytes,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(r.partition, fetch_offset=r.offset, partition_max_bytes=r.max_bytes)
                    for r in of_topic
                ],
            )
            for topic, of_topic in _by_topic(requests).items()
        ],
    )


def list_offsets(requests: Iterable[PartitionOffsetRequest]) -> ListOffsetsRequest:
    """A ListOffsets of a client, which is no replica."""
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                topic, [ListOffsetsPartition(r.partition, timestamp=r.timestamp) for r in of_topic]
            )
            for topic, of_topic in _by_topic(requests).items()
        ],
    )


def offset_commit(
    group: str, generation_id: int, member_id: str, requests: Iterable[PartitionOffsetCommitRequest]
) -> OffsetCommitRequest:
    """An OffsetCommit of a member; generation -1 and an empty member id commit without a membership."""
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(r.partition, r.offset, r.leader_epoch, r.metadata)
                    for r in of_topic
                ],
            )
            for topic, of_topic in _by_topic(requests).items()
        ],
    )


def offset_fetch(group: str, requests: Iterable[PartitionOffsetFetchRequest]) -> OffsetFetchRequest:
    """An OffsetFetch of one group, with the fields of versions up to 7."""
    topics = [
        OffsetFetchRequestTopic(name=topic, partition_indexes=[r.partition for r in of_topic])
        for topic, of_topic in _by_topic(requests).items()
    ]
    return OffsetFetchRequest(group_id=group, topics=topics)


def metadata(topics: Iterable[str | bytes] | None) -> MetadataRequest:
    """A Metadata request about these topics, None for all; it creates none of them."""
    return metadata_request(None if topics is None else map(text, topics))


def text(name: Any) -> str:
    """The name as text; some clients have it as bytes."""
    return name.decode() if isinstance(name, bytes) else str(name)
