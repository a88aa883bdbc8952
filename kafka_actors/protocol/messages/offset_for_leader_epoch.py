"""End offset of an epoch on its leader: finds truncation (KIP-101, KIP-320)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Int64, Request, Response, V, message


class OffsetForLeaderPartition(Element):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, V("2+", ignorable=True)] = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Element):
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = []


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, "2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    replica_id: Annotated[Int32, V("3+", ignorable=True)] = -2
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(Element):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Annotated[Int32, V("1+", ignorable=True)] = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Element):
    topic: str = ""
    partitions: list[EpochEndOffset] = []


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, "2-4", flexible="4+")
class OffsetForLeaderEpochResponse(Response):
    throttle_time_ms: Annotated[Int32, V("2+", ignorable=True)] = 0
    topics: list[OffsetForLeaderTopicResult] = []
