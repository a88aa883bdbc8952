"""The offsets of a timestamp, or of the start (-2) or the end (-1) of partitions."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int8, Int16, Int32, Int64, Request, Response, V, message


class ListOffsetsPartition(Element):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, V("4+", ignorable=True)] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Element):
    name: str = ""
    partitions: list[ListOffsetsPartition] = []


@message(ApiKey.LIST_OFFSETS, "1-10", flexible="6+")
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, V("2+")] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, V("10+", ignorable=True)] = 0


class ListOffsetsPartitionResponse(Element):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Annotated[Int64, V("1+")] = -1
    offset: Annotated[Int64, V("1+")] = -1
    leader_epoch: Annotated[Int32, V("4+")] = -1


class ListOffsetsTopicResponse(Element):
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


@message(ApiKey.LIST_OFFSETS, "1-10", flexible="6+")
class ListOffsetsResponse(Response):
    throttle_time_ms: Annotated[Int32, V("2+", ignorable=True)] = 0
    topics: list[ListOffsetsTopicResponse] = []
