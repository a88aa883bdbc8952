"""Delete committed offsets of a group (KIP-496)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Request, Response, V, message


class OffsetDeleteRequestPartition(Element):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Element):
    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = []


@message(ApiKey.OFFSET_DELETE, "0", flexible="none")
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponsePartition(Element):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Element):
    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = []


@message(ApiKey.OFFSET_DELETE, "0", flexible="none")
class OffsetDeleteResponse(Response):
    error_code: Int16 = 0
    throttle_time_ms: Annotated[Int32, V(ignorable=True)] = 0
    topics: list[OffsetDeleteResponseTopic] = []
