"""Commit offsets as a part of a transaction (KIP-98, KIP-447)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Int64, Request, Response, V, message


class TxnOffsetCommitRequestPartition(Element):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, V("2+", ignorable=True)] = -1
    committed_metadata: Annotated[str | None, V(nullable="0+")] = ""


class TxnOffsetCommitRequestTopic(Element):
    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


@message(ApiKey.TXN_OFFSET_COMMIT, "0-5", flexible="3+")
class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"]):
    transactional_id: str = ""
    group_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, V("3+")] = -1
    member_id: Annotated[str, V("3+")] = ""
    group_instance_id: Annotated[str | None, V("3+", nullable="3+")] = None
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(Element):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Element):
    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


@message(ApiKey.TXN_OFFSET_COMMIT, "0-5", flexible="3+")
class TxnOffsetCommitResponse(Response):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []
