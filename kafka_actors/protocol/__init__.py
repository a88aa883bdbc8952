"""The Kafka wire protocol: messages, and how they become bytes.

Each request and response of an API is one Struct for all versions that Kafka 4.1 knows, named as in Kafka's
definitions, fields in snake_case; the structs inside it are beside it in ``protocol.messages.<api>``. A message
is encoded in a version (:func:`encode`), and a field that the version lacks must be at its default or ignorable.
A request class knows its API and versions: ``api_key``, ``min_version``, ``max_version``, ``latest`` (the newest
stable one), ``flexible_from`` and ``response``.
"""

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.codec import (
    decode,
    decode_api_versions,
    decode_header,
    decode_message,
    decode_prefix,
    encode,
    encode_header,
    encode_into,
    frame,
    header_version,
    message_class,
    peek_request,
    response_frame,
)
from kafka_actors.protocol.consumer_protocol import decode_consumer_protocol, encode_consumer_protocol
from kafka_actors.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafka_actors.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from kafka_actors.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_actors.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kafka_actors.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafka_actors.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafka_actors.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafka_actors.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kafka_actors.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kafka_actors.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafka_actors.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kafka_actors.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafka_actors.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafka_actors.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kafka_actors.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafka_actors.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafka_actors.protocol.messages.fetch import FetchRequest, FetchResponse
from kafka_actors.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka_actors.protocol.messages.headers import RequestHeader, ResponseHeader
from kafka_actors.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_actors.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_actors.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafka_actors.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kafka_actors.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafka_actors.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka_actors.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafka_actors.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafka_actors.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kafka_actors.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafka_actors.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka_actors.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafka_actors.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafka_actors.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafka_actors.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafka_actors.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafka_actors.protocol.schema import ZERO_UUID, Message, Request, Response
from kafka_actors.protocol.types import OffsetAndMetadata, TopicPartition

__all__ = [
    "ZERO_UUID",
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "ApiKey",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "EndTxnRequest",
    "EndTxnResponse",
    "FetchRequest",
    "FetchResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "Message",
    "MetadataRequest",
    "MetadataResponse",
    "OffsetAndMetadata",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "ProduceRequest",
    "ProduceResponse",
    "Request",
    "RequestHeader",
    "Response",
    "ResponseHeader",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "TopicPartition",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitResponse",
    "decode",
    "decode_api_versions",
    "decode_consumer_protocol",
    "decode_header",
    "decode_message",
    "decode_prefix",
    "encode",
    "encode_consumer_protocol",
    "encode_header",
    "encode_into",
    "frame",
    "header_version",
    "message_class",
    "peek_request",
    "response_frame",
]
