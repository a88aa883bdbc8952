"""pykafka's `Broker`: a method for each kind of request to one broker."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.errors import UsageError
from kafka_actors.net.broker_channels import BrokerChannels, Opener
from kafka_actors.protocol import (
    ConsumerProtocolSubscription,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListOffsetsResponse,
    MetadataResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
    ProduceRequest,
    ProduceResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    encode_consumer_protocol,
)
from kafka_actors.protocol.messages.join_group import JoinGroupRequestProtocol
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment

from . import partition_requests as make

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
        partition_requests: Iterable[make.PartitionFetchRequest],
        timeout: int = 30000,  # noqa: ASYNC109  the broker's, by the name that other clients made known
        min_bytes: int = 1,
    ) -> FetchResponse:
        """Fetches records: the response has record batches as they are in the log, in bytes.

        The broker waits up to `timeout` milliseconds for `min_bytes`; the request has that long beyond the
        channel's own timeout.
        """
        request = make.fetch(partition_requests, timeout, min_bytes)
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
        self, partition_requests: Iterable[make.PartitionOffsetRequest]
    ) -> ListOffsetsResponse:
        """Asks for offsets by time, or for the first and the next of partitions that this broker leads."""
        return await self.request(make.list_offsets(partition_requests))

    async def request_metadata(self, topics: Iterable[str | bytes] | None = None) -> MetadataResponse:
        """Asks about the cluster and these topics, None for all."""
        return await self.request(make.metadata(topics))

    # ------------------------------------------------------------ offsets channel

    async def commit_consumer_group_offsets(
        self,
        consumer_group: str | bytes,
        consumer_group_generation_id: int,
        consumer_id: str | bytes,
        preqs: Iterable[make.PartitionOffsetCommitRequest],
    ) -> OffsetCommitResponse:
        """Commits offsets of a group: as a member, or with generation -1 and an empty id without a membership."""
        group, member = make.text(consumer_group), make.text(consumer_id)
        request = make.offset_commit(group, consumer_group_generation_id, member, preqs)
        return await self.request(request, offsets_channel=True)

    async def fetch_consumer_group_offsets(
        self, consumer_group: str | bytes, preqs: Iterable[make.PartitionOffsetFetchRequest]
    ) -> OffsetFetchResponse:
        """Fetches the committed offsets of a group; -1 where there is none."""
        request = make.offset_fetch(make.text(consumer_group), preqs)
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
            group_id=make.text(consumer_group),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=make.text(member_id),
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
        group_assignment: Iterable[make.MemberAssignment],
        *,
        group_instance_id: str | None = None,
        rebalance_timeout_ms: int = 300_000,
    ) -> SyncGroupResponse:
        """Sends the leader's assignment and returns the member's own. Members that don't lead send an empty one."""
        request = SyncGroupRequest(
            group_id=make.text(consumer_group),
            generation_id=generation_id,
            member_id=make.text(member_id),
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
        request = HeartbeatRequest(make.text(consumer_group), generation_id, make.text(member_id))
        return await self.request(request, connection_id=connection_id)

    async def leave_group(
        self, connection_id: str, consumer_group: str | bytes, member_id: str | bytes
    ) -> LeaveGroupResponse:
        """Ends a membership."""
        request = LeaveGroupRequest(make.text(consumer_group), make.text(member_id))
        return await self.request(request, connection_id=connection_id, max_version=_LEAVE_ALONE)
