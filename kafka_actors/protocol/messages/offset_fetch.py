"""Committed offsets of one group, from version 8 on of many (KIP-709).

Version 9 serves members of the new protocol (KIP-848); version 10, not yet stable, names topics by id.
"""

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


class OffsetFetchRequestTopic(Element):
    name: Annotated[str, V("0-7")] = ""
    partition_indexes: Annotated[list[Int32], V("0-7")] = []


class OffsetFetchRequestTopics(Element):
    name: Annotated[str, V("8-9", ignorable=True)] = ""
    topic_id: Annotated[Uuid, V("10+", ignorable=True)] = ZERO_UUID
    partition_indexes: Annotated[list[Int32], V("8+")] = []


class OffsetFetchRequestGroup(Element):
    group_id: Annotated[str, V("8+")] = ""
    member_id: Annotated[str | None, V("9+", nullable="9+", ignorable=True)] = None
    member_epoch: Annotated[Int32, V("9+", ignorable=True)] = -1
    topics: Annotated[list[OffsetFetchRequestTopics] | None, V("8+", nullable="8+")] = []


@message(ApiKey.OFFSET_FETCH, "1-10", flexible="6+", latest=9)
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    group_id: Annotated[str, V("0-7")] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, V("0-7", nullable="2-7")] = []
    groups: Annotated[list[OffsetFetchRequestGroup], V("8+")] = []
    require_stable: Annotated[bool, V("7+")] = False


class OffsetFetchResponsePartition(Element):
    partition_index: Annotated[Int32, V("0-7")] = 0
    committed_offset: Annotated[Int64, V("0-7")] = 0
    committed_leader_epoch: Annotated[Int32, V("5-7", ignorable=True)] = -1
    metadata: Annotated[str | None, V("0-7", nullable="0-7")] = ""
    error_code: Annotated[Int16, V("0-7")] = 0


class OffsetFetchResponseTopic(Element):
    name: Annotated[str, V("0-7")] = ""
    partitions: Annotated[list[OffsetFetchResponsePartition], V("0-7")] = []


class OffsetFetchResponsePartitions(Element):
    partition_index: Annotated[Int32, V("8+")] = 0
    committed_offset: Annotated[Int64, V("8+")] = 0
    committed_leader_epoch: Annotated[Int32, V("8+", ignorable=True)] = -1
    metadata: Annotated[str | None, V("8+", nullable="8+")] = ""
    error_code: Annotated[Int16, V("8+")] = 0


class OffsetFetchResponseTopics(Element):
    name: Annotated[str, V("8-9", ignorable=True)] = ""
    topic_id: Annotated[Uuid, V("10+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[list[OffsetFetchResponsePartitions], V("8+")] = []


class OffsetFetchResponseGroup(Element):
    group_id: Annotated[str, V("8+")] = ""
    topics: Annotated[list[OffsetFetchResponseTopics], V("8+")] = []
    error_code: Annotated[Int16, V("8+")] = 0


@message(ApiKey.OFFSET_FETCH, "1-10", flexible="6+", latest=9)
class OffsetFetchResponse(Response):
    throttle_time_ms: Annotated[Int32, V("3+", ignorable=True)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], V("0-7")] = []
    error_code: Annotated[Int16, V("2-7", ignorable=True)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], V("8+")] = []
