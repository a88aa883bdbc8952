"""Read record batches, within incremental fetch sessions from version 7 on (KIP-227).

Version 12 brings divergence detection (KIP-595), 13 topic ids in place of names (KIP-516), 16
leader hints (KIP-951).
"""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import (
    ZERO_UUID,
    Element,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    Request,
    Response,
    Uuid,
    V,
    message,
)


class ReplicaState(Element):
    replica_id: Annotated[Int32, V("15+")] = -1
    replica_epoch: Annotated[Int64, V("15+")] = -1


class FetchPartition(Element):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, V("9+", ignorable=True)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, V("12+")] = -1
    log_start_offset: Annotated[Int64, V("5+", ignorable=True)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, V("17+", tag=0, ignorable=True)] = ZERO_UUID
    high_watermark: Annotated[Int64, V("18+", tag=1, ignorable=True)] = 0x7FFFFFFFFFFFFFFF


class FetchTopic(Element):
    topic: Annotated[str, V("0-12", ignorable=True)] = ""
    topic_id: Annotated[Uuid, V("13+", ignorable=True)] = ZERO_UUID
    partitions: list[FetchPartition] = []


class ForgottenTopic(Element):
    topic: Annotated[str, V("7-12", ignorable=True)] = ""
    topic_id: Annotated[Uuid, V("13+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[list[Int32], V("7+")] = []


@message(ApiKey.FETCH, "4-18", flexible="12+")
class FetchRequest(Request["FetchResponse"]):
    cluster_id: Annotated[str | None, V("12+", nullable="12+", tag=0, ignorable=True)] = None
    replica_id: Annotated[Int32, V("0-14")] = -1
    replica_state: Annotated[ReplicaState, V("15+", tag=1)] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Annotated[Int32, V("3+", ignorable=True)] = 0x7FFFFFFF
    isolation_level: Annotated[Int8, V("4+", ignorable=True)] = 0
    session_id: Annotated[Int32, V("7+", ignorable=True)] = 0
    session_epoch: Annotated[Int32, V("7+", ignorable=True)] = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], V("7+")] = []
    rack_id: Annotated[str, V("11+", ignorable=True)] = ""


class EpochEndOffset(Element):
    epoch: Annotated[Int32, V("12+")] = -1
    end_offset: Annotated[Int64, V("12+")] = -1


class LeaderIdAndEpoch(Element):
    leader_id: Annotated[Int32, V("12+")] = -1
    leader_epoch: Annotated[Int32, V("12+")] = -1


class SnapshotId(Element):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Element):
    producer_id: Annotated[Int64, V("4+")] = 0
    first_offset: Annotated[Int64, V("4+")] = 0


class PartitionData(Element):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Annotated[Int64, V("4+", ignorable=True)] = -1
    log_start_offset: Annotated[Int64, V("5+", ignorable=True)] = -1
    diverging_epoch: Annotated[EpochEndOffset, V("12+", tag=0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, V("12+", tag=1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, V("12+", tag=2)] = SnapshotId()
    aborted_transactions: Annotated[
        list[AbortedTransaction] | None, V("4+", nullable="4+", ignorable=True)
    ] = []
    preferred_read_replica: Annotated[Int32, V("11+")] = -1
    records: Annotated[Records, V(nullable="0+")] = None


class FetchableTopicResponse(Element):
    topic: Annotated[str, V("0-12", ignorable=True)] = ""
    topic_id: Annotated[Uuid, V("13+", ignorable=True)] = ZERO_UUID
    partitions: list[PartitionData] = []


class NodeEndpoint(Element):
    node_id: Annotated[Int32, V("16+")] = 0
    host: Annotated[str, V("16+")] = ""
    port: Annotated[Int32, V("16+")] = 0
    rack: Annotated[str | None, V("16+", nullable="16+")] = None


@message(ApiKey.FETCH, "4-18", flexible="12+")
class FetchResponse(Response):
    throttle_time_ms: Annotated[Int32, V("1+", ignorable=True)] = 0
    error_code: Annotated[Int16, V("7+", ignorable=True)] = 0
    session_id: Annotated[Int32, V("7+")] = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: Annotated[list[NodeEndpoint], V("16+", tag=0)] = []
