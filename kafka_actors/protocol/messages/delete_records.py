"""Delete records before an offset (KIP-107)."""

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Int64, Request, Response, message


class DeleteRecordsPartition(Element):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Element):
    name: str = ""
    partitions: list[DeleteRecordsPartition] = []


@message(ApiKey.DELETE_RECORDS, "0-2", flexible="2+")
class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Element):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Element):
    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = []


@message(ApiKey.DELETE_RECORDS, "0-2", flexible="2+")
class DeleteRecordsResponse(Response):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []
