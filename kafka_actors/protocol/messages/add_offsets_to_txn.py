"""Add a group's offsets to a transaction."""

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Int16, Int32, Int64, Request, Response, message


@message(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: str = ""


@message(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", flexible="3+")
class AddOffsetsToTxnResponse(Response):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
