"""pykafka's `Broker`: a method for each kind of request to one broker, and the objects that its methods take, one for each partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from kafka_actors.cluster.cluster import metadata_request
from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.errors import UsageError
from kafka_actors.net.broker_channels import BrokerChannels, Opener
from kafka_actors.protocol import (
    ConsumerProtocolSubscription,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ProduceRequest,
    ProduceResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    encode_consumer_protocol,
)
from kafka_actors.protocol.messages.fetch import FetchPartition, FetchTopic
from kafka_actors.protocol.messages.join_group import JoinGroupRequestProtocol
from kafka_actors.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_actors.protocol.messages.offset_fetch import OffsetFetchRequestTopic
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment
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


def fetch_request(requests: Iterable[PartitionFetchRequest], timeout: int, min_bytes: int) -> FetchRequest:
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


def list_offsets_request(requests: Iterable[PartitionOffsetRequest]) -> ListOffsetsRequest:
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


def offset_commit_request(
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


def offset_fetch_request(group: str, requests: Iterable[PartitionOffsetFetchRequest]) -> OffsetFetchRequest:
    """An OffsetFetch of one group, with the fields of versions up to 7."""
    topics = [
        OffsetFetchRequestTopic(name=topic, partition_indexes=[r.partition for r in of_topic])
        for topic, of_topic in _by_topic(requests).items()
    ]
    return OffsetFetchRequest(group_id=group, topics=topics)


def metadata_request_for(topics: Iterable[str | bytes] | None) -> MetadataRequest:
    """A Metadata request about these topics, None for all; it creates none of them."""
    return metadata_request(None if topics is None else map(text, topics))


def text(name: Any) -> str:
    """The name as text; some clients have it as bytes."""
    return name.decode() if isinstance(name, bytes) else str(name)


_FETCH_BY_NAME = 12
_PRODUCE_BY_NAME = 12
"""The newest versions that name topics by name; later ones name them by id, which a caller need not know."""

_LEAVE_ALONE = 2
_OFFSETS_OF_ONE_GROUP = 7
_SYNC_WITHOUT_PROTOCOL = 4
"""The newest versions whose requests have the fields that these methods take, and no more."""


_NO_TOPICS = encode_consumer_protocol(ConsumerProtocolSubscription(topics=[]))


class Broker(BrokerChannels):
    """One broker, with a main channel and an offsets channel, and a method for each request.

    A broker carries out the requests of one connection one after the other, so a pending JoinGroup holds up all
    that is behind it on its socket. What must not wait goes over the offsets channel: commits and offset
    fetches always, heartbeats under the `connection_id` `OFFSETS_CHANNEL`. Requests under further
    `connection_id`s get a connection each, so that two members in one process never wait for each other's
    JoinGroup.

    `handler` opens the connections. The timeouts are those of a request on either channel, in milliseconds;
    `buffer_size` is how many bytes are read from a socket at once; `source_host` and `source_port` are the
    local address to come from. Not for use after a fork, nor pickled.

    Each method sends one request and returns its response, whose error codes are the caller's to read; all
    raise as `request`. Names may be text or UTF-8 bytes.
    """

    @classmethod
    def from_metadata(
        cls,
        metadata: BrokerMetadata,
        handler: Opener,
        socket_timeout_ms: int,
        offsets_channel_socket_timeout_ms: int,
        buffer_size: int = 65536,
        source_host: str = "",
        source_port: int = 0,
    ) -> Broker:
        """A broker as metadata describes it; the arguments are the constructor's."""
        return cls(
            metadata.node_id,
            metadata.host,
            metadata.port,
            handler,
            socket_timeout_ms,
            offsets_channel_socket_timeout_ms,
            buffer_size,
            source_host,
            source_port,
        )

    # ------------------------------------------------------------ main channel

    async def fetch_messages(
        self,
        partition_requests: Iterable[PartitionFetchRequest],
        timeout: int = 30000,  # noqa: ASYNC109  the broker's, by the name that other clients made known
        min_bytes: int = 1,
    ) -> FetchResponse:
        """Fetches records: the response has record batches as they are in the log, in bytes.

        The broker waits up to `timeout` milliseconds for `min_bytes`; the request has that long beyond the
        channel's own timeout.
        """
        request = fetch_request(partition_requests, timeout, min_bytes)
        return await self.request(
            request, timeout_ms=self._socket_timeout_ms + timeout, max_version=_FETCH_BY_NAME
        )

    async def produce_messages(self, produce_request: ProduceRequest) -> ProduceResponse:
        """Appends record batches. Raises `UsageError` for `acks=0`, to which there is no response."""
        if produce_request.acks == 0:
            raise UsageError("produce_messages: acks=0 gets no response: use 1 or -1")
        by_name = not all(topic.topic_id.int for topic in produce_request.topic_data)
        return await self.request(produce_request, max_version=_PRODUCE_BY_NAME if by_name else None)

    async def request_offset_limits(
        self, partition_requests: Iterable[PartitionOffsetRequest]
    ) -> ListOffsetsResponse:
        """Asks for offsets by time, or for the first and the next of partitions that this broker leads."""
        return await self.request(list_offsets_request(partition_requests))

    async def request_metadata(self, topics: Iterable[str | bytes] | None = None) -> MetadataResponse:
        """Asks about the cluster and these topics, None for all."""
        return await self.request(metadata_request_for(topics))

    # ------------------------------------------------------------ offsets channel

    async def commit_consumer_group_offsets(
        self,
        consumer_group: str | bytes,
        consumer_group_generation_id: int,
        consumer_id: str | bytes,
        preqs: Iterable[PartitionOffsetCommitRequest],
    ) -> OffsetCommitResponse:
        """Commits offsets of a group: as a member, or with generation -1 and an empty id without a membership."""
        group, member = text(consumer_group), text(consumer_id)
        request = offset_commit_request(group, consumer_group_generation_id, member, preqs)
        return await self.request(request, offsets_channel=True)

    async def fetch_consumer_group_offsets(
        self, consumer_group: str | bytes, preqs: Iterable[PartitionOffsetFetchRequest]
    ) -> OffsetFetchResponse:
        """Fetches the committed offsets of a group; -1 where there is none."""
        request = offset_fetch_request(text(consumer_group), preqs)
        return await self.request(request, offsets_channel=True, max_version=_OFFSETS_OF_ONE_GROUP)

    # ------------------------------------------------------------ groups

    async def join_group(
        self,
        connection_id: str,
        consumer_group: str | bytes,
        member_id: str | bytes,
        *,
        protocol_type: str = "consumer",
        protocols: Iterable[tuple[str, bytes]] | None = None,
        group_instance_id: str | None = None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
    ) -> JoinGroupResponse:
        """Joins a group. The response comes when all members have joined, so it is waited for that long.

        `protocols` are (name, metadata) in order of preference; by default `range` with no topics.
        """
        offered = [("range", _NO_TOPICS)] if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=text(consumer_group),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=text(member_id),
            group_instance_id=group_instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in offered],
        )
        timeout_ms = self._socket_timeout_ms + rebalance_timeout_ms
        return await self.request(request, connection_id=connection_id, timeout_ms=timeout_ms)

    async def sync_group(
        self,
        connection_id: str,
        consumer_group: str | bytes,
        generation_id: int,
        member_id: str | bytes,
        group_assignment: Iterable[MemberAssignment],
        *,
        group_instance_id: str | None = None,
        rebalance_timeout_ms: int = 300_000,
    ) -> SyncGroupResponse:
        """Sends the leader's assignment and returns the member's own. Members that don't lead send an empty one."""
        request = SyncGroupRequest(
            group_id=text(consumer_group),
            generation_id=generation_id,
            member_id=text(member_id),
            group_instance_id=group_instance_id,
            assignments=[SyncGroupRequestAssignment(a.member_id, a.assignment) for a in group_assignment],
        )
        timeout_ms = self._socket_timeout_ms + rebalance_timeout_ms
        return await self.request(
            request, connection_id=connection_id, timeout_ms=timeout_ms, max_version=_SYNC_WITHOUT_PROTOCOL
        )

    async def heartbeat(
        self, connection_id: str, consumer_group: str | bytes, generation_id: int, member_id: str | bytes
    ) -> HeartbeatResponse:
        """Keeps a membership alive. Under the `connection_id` of a pending join it waits for that join."""
        request = HeartbeatRequest(text(consumer_group), generation_id, text(member_id))
        return await self.request(request, connection_id=connection_id)

    async def leave_group(
        self, connection_id: str, consumer_group: str | bytes, member_id: str | bytes
    ) -> LeaveGroupResponse:
        """Ends a membership."""
        request = LeaveGroupRequest(text(consumer_group), text(member_id))
        return await self.request(request, connection_id=connection_id, max_version=_LEAVE_ALONE)
