"""Commit offsets of a group. Version 10, not yet stable, names topics by id."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import (
    ZERO_UUID,
    Element,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    Uuid,
    V,
    message,
)


class OffsetCommitRequestPartition(Element):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, V("6+", ignorable=True)] = -1
    committed_metadata: Annotated[str | None, V(nullable="0+")] = ""


class OffsetCommitRequestTopic(Element):
    name: Annotated[str, V("0-9", ignorable=True)] = ""
    topic_id: Annotated[Uuid, V("10+", ignorable=True)] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition] = []


@message(ApiKey.OFFSET_COMMIT, "2-10", flexible="8+", latest=9)
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    group_id: str = ""
    generation_id_or_member_epoch: Annotated[Int32, V("1+", ignorable=True)] = -1
    member_id: Annotated[str, V("1+", ignorable=True)] = ""
    group_instance_id: Annotated[str | None, V("7+", nullable="7+")] = None
    retention_time_ms: Annotated[Int64, V("2-4", ignorable=True)] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Element):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Element):
    name: Annotated[str, V("0-9", ignorable=True)] = ""
    topic_id: Annotated[Uuid, V("10+", ignorable=True)] = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition] = []


@message(ApiKey.OFFSET_COMMIT, "2-10", flexible="8+", latest=9)
class OffsetCommitResponse(Response):
    throttle_time_ms: Annotated[Int32, V("3+", ignorable=True)] = 0
    topics: list[OffsetCommitResponseTopic] = []
