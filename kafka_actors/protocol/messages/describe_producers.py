"""Describe the producers that partitions remember, with their open transactions (KIP-664)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Int64, Request, Response, V, message


class TopicRequest(Element):
    name: str = ""
    partition_indexes: list[Int32] = []


@message(ApiKey.DESCRIBE_PRODUCERS, "0", flexible="0+")
class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    topics: list[TopicRequest] = []


class ProducerState(Element):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Element):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = None
    active_producers: list[ProducerState] = []


class TopicResponse(Element):
    name: str = ""
    partitions: list[PartitionResponse] = []


@message(ApiKey.DESCRIBE_PRODUCERS, "0", flexible="0+")
class DescribeProducersResponse(Response):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []
