"""The Kafka wire protocol: messages, and how they become bytes.

Each request and response of an API is one Struct for all versions that Kafka 4.1 knows, named as in Kafka's
definitions, fields in snake_case; the structs inside it are beside it in `protocol.messages.<api>`. A message
is encoded in a version (`encode`), and a field that the version lacks must be at its default or ignorable.
A request class knows its API and versions: `api_key`, `min_version`, `max_version`, `latest` (the newest
stable one), `flexible_from` and `response`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from kafka_actors.types import OffsetAndMetadata, TopicPartition

    from .api import ApiKey
    from .codec import (
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
    from .consumer_protocol import decode_consumer_protocol, encode_consumer_protocol
    from .messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
    from .messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
    from .messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
    from .messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
    from .messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from .messages.consumer_protocol_assignment import ConsumerProtocolAssignment
    from .messages.consumer_protocol_subscription import ConsumerProtocolSubscription
    from .messages.create_acls import CreateAclsRequest, CreateAclsResponse
    from .messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from .messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from .messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
    from .messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
    from .messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
    from .messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from .messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
    from .messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
    from .messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
    from .messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
    from .messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
    from .messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
    from .messages.end_txn import EndTxnRequest, EndTxnResponse
    from .messages.fetch import FetchRequest, FetchResponse
    from .messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
    from .messages.headers import RequestHeader, ResponseHeader
    from .messages.heartbeat import HeartbeatRequest, HeartbeatResponse
    from .messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from .messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
    from .messages.join_group import JoinGroupRequest, JoinGroupResponse
    from .messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from .messages.list_groups import ListGroupsRequest, ListGroupsResponse
    from .messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
    from .messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
    from .messages.metadata import MetadataRequest, MetadataResponse
    from .messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from .messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from .messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
    from .messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
    from .messages.produce import ProduceRequest, ProduceResponse
    from .messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
    from .messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
    from .messages.sync_group import SyncGroupRequest, SyncGroupResponse
    from .messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
    from .schema import ZERO_UUID, Message, Request, Response

# Loaded at the first use of a name: no process uses all messages.
_HOMES = {
    "AddOffsetsToTxnRequest": "messages.add_offsets_to_txn",
    "AddOffsetsToTxnResponse": "messages.add_offsets_to_txn",
    "AddPartitionsToTxnRequest": "messages.add_partitions_to_txn",
    "AddPartitionsToTxnResponse": "messages.add_partitions_to_txn",
    "ApiKey": "api",
    "ApiVersionsRequest": "messages.api_versions",
    "ApiVersionsResponse": "messages.api_versions",
    "ConsumerGroupDescribeRequest": "messages.consumer_group_describe",
    "ConsumerGroupDescribeResponse": "messages.consumer_group_describe",
    "ConsumerGroupHeartbeatRequest": "messages.consumer_group_heartbeat",
    "ConsumerGroupHeartbeatResponse": "messages.consumer_group_heartbeat",
    "ConsumerProtocolAssignment": "messages.consumer_protocol_assignment",
    "ConsumerProtocolSubscription": "messages.consumer_protocol_subscription",
    "CreateAclsRequest": "messages.create_acls",
    "CreateAclsResponse": "messages.create_acls",
    "CreatePartitionsRequest": "messages.create_partitions",
    "CreatePartitionsResponse": "messages.create_partitions",
    "CreateTopicsRequest": "messages.create_topics",
    "CreateTopicsResponse": "messages.create_topics",
    "DeleteAclsRequest": "messages.delete_acls",
    "DeleteAclsResponse": "messages.delete_acls",
    "DeleteGroupsRequest": "messages.delete_groups",
    "DeleteGroupsResponse": "messages.delete_groups",
    "DeleteRecordsRequest": "messages.delete_records",
    "DeleteRecordsResponse": "messages.delete_records",
    "DeleteTopicsRequest": "messages.delete_topics",
    "DeleteTopicsResponse": "messages.delete_topics",
    "DescribeAclsRequest": "messages.describe_acls",
    "DescribeAclsResponse": "messages.describe_acls",
    "DescribeClusterRequest": "messages.describe_cluster",
    "DescribeClusterResponse": "messages.describe_cluster",
    "DescribeConfigsRequest": "messages.describe_configs",
    "DescribeConfigsResponse": "messages.describe_configs",
    "DescribeGroupsRequest": "messages.describe_groups",
    "DescribeGroupsResponse": "messages.describe_groups",
    "DescribeProducersRequest": "messages.describe_producers",
    "DescribeProducersResponse": "messages.describe_producers",
    "DescribeTransactionsRequest": "messages.describe_transactions",
    "DescribeTransactionsResponse": "messages.describe_transactions",
    "EndTxnRequest": "messages.end_txn",
    "EndTxnResponse": "messages.end_txn",
    "FetchRequest": "messages.fetch",
    "FetchResponse": "messages.fetch",
    "FindCoordinatorRequest": "messages.find_coordinator",
    "FindCoordinatorResponse": "messages.find_coordinator",
    "HeartbeatRequest": "messages.heartbeat",
    "HeartbeatResponse": "messages.heartbeat",
    "IncrementalAlterConfigsRequest": "messages.incremental_alter_configs",
    "IncrementalAlterConfigsResponse": "messages.incremental_alter_configs",
    "InitProducerIdRequest": "messages.init_producer_id",
    "InitProducerIdResponse": "messages.init_producer_id",
    "JoinGroupRequest": "messages.join_group",
    "JoinGroupResponse": "messages.join_group",
    "LeaveGroupRequest": "messages.leave_group",
    "LeaveGroupResponse": "messages.leave_group",
    "ListGroupsRequest": "messages.list_groups",
    "ListGroupsResponse": "messages.list_groups",
    "ListOffsetsRequest": "messages.list_offsets",
    "ListOffsetsResponse": "messages.list_offsets",
    "ListTransactionsRequest": "messages.list_transactions",
    "ListTransactionsResponse": "messages.list_transactions",
    "Message": "schema",
    "MetadataRequest": "messages.metadata",
    "MetadataResponse": "messages.metadata",
    "OffsetAndMetadata": "kafka_actors.types",
    "OffsetCommitRequest": "messages.offset_commit",
    "OffsetCommitResponse": "messages.offset_commit",
    "OffsetDeleteRequest": "messages.offset_delete",
    "OffsetDeleteResponse": "messages.offset_delete",
    "OffsetFetchRequest": "messages.offset_fetch",
    "OffsetFetchResponse": "messages.offset_fetch",
    "OffsetForLeaderEpochRequest": "messages.offset_for_leader_epoch",
    "OffsetForLeaderEpochResponse": "messages.offset_for_leader_epoch",
    "ProduceRequest": "messages.produce",
    "ProduceResponse": "messages.produce",
    "Request": "schema",
    "RequestHeader": "messages.headers",
    "Response": "schema",
    "ResponseHeader": "messages.headers",
    "SaslAuthenticateRequest": "messages.sasl_authenticate",
    "SaslAuthenticateResponse": "messages.sasl_authenticate",
    "SaslHandshakeRequest": "messages.sasl_handshake",
    "SaslHandshakeResponse": "messages.sasl_handshake",
    "SyncGroupRequest": "messages.sync_group",
    "SyncGroupResponse": "messages.sync_group",
    "TopicPartition": "kafka_actors.types",
    "TxnOffsetCommitRequest": "messages.txn_offset_commit",
    "TxnOffsetCommitResponse": "messages.txn_offset_commit",
    "ZERO_UUID": "schema",
    "decode": "codec",
    "decode_api_versions": "codec",
    "decode_consumer_protocol": "consumer_protocol",
    "decode_header": "codec",
    "decode_message": "codec",
    "decode_prefix": "codec",
    "encode": "codec",
    "encode_consumer_protocol": "consumer_protocol",
    "encode_header": "codec",
    "encode_into": "codec",
    "frame": "codec",
    "header_version": "codec",
    "message_class": "codec",
    "peek_request": "codec",
    "response_frame": "codec",
}

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
    "CreateAclsRequest",
    "CreateAclsResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeAclsRequest",
    "DescribeAclsResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "EndTxnRequest",
    "EndTxnResponse",
    "FetchRequest",
    "FetchResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
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
    "ListTransactionsRequest",
    "ListTransactionsResponse",
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

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
