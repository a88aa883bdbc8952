"""Append record batches to partitions. Version 13 names topics by id (KIP-516)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import (
    ZERO_UUID,
    Element,
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


class PartitionProduceData(Element):
    index: Int32 = 0
    records: Annotated[Records, V(nullable="0+")] = None


class TopicProduceData(Element):
    name: Annotated[str, V("0-12", ignorable=True)] = ""
    topic_id: Annotated[Uuid, V("13+", ignorable=True)] = ZERO_UUID
    partition_data: list[PartitionProduceData] = []


@message(ApiKey.PRODUCE, "3-13", flexible="9+")
class ProduceRequest(Request["ProduceResponse"]):
    transactional_id: Annotated[str | None, V("3+", nullable="3+")] = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Element):
    batch_index: Annotated[Int32, V("8+")] = 0
    batch_index_error_message: Annotated[str | None, V("8+", nullable="8+")] = None


class LeaderIdAndEpoch(Element):
    leader_id: Annotated[Int32, V("10+")] = -1
    leader_epoch: Annotated[Int32, V("10+")] = -1


class PartitionProduceResponse(Element):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Annotated[Int64, V("2+", ignorable=True)] = -1
    log_start_offset: Annotated[Int64, V("5+", ignorable=True)] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], V("8+", ignorable=True)] = []
    error_message: Annotated[str | None, V("8+", nullable="8+", ignorable=True)] = None
    current_leader: Annotated[LeaderIdAndEpoch, V("10+", tag=0)] = LeaderIdAndEpoch()


class TopicProduceResponse(Element):
    name: Annotated[str, V("0-12", ignorable=True)] = ""
    topic_id: Annotated[Uuid, V("13+", ignorable=True)] = ZERO_UUID
    partition_responses: list[PartitionProduceResponse] = []


class NodeEndpoint(Element):
    node_id: Annotated[Int32, V("10+")] = 0
    host: Annotated[str, V("10+")] = ""
    port: Annotated[Int32, V("10+")] = 0
    rack: Annotated[str | None, V("10+", nullable="10+")] = None


@message(ApiKey.PRODUCE, "3-13", flexible="9+")
class ProduceResponse(Response):
    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Annotated[Int32, V("1+", ignorable=True)] = 0
    node_endpoints: Annotated[list[NodeEndpoint], V("10+", tag=0)] = []
