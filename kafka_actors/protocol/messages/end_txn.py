"""Commit or abort a transaction. From version 5 on the epoch is bumped by each (KIP-890)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Int16, Int32, Int64, Request, Response, V, message


@message(ApiKey.END_TXN, "0-5", flexible="3+")
class EndTxnRequest(Request["EndTxnResponse"]):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: bool = False


@message(ApiKey.END_TXN, "0-5", flexible="3+")
class EndTxnResponse(Response):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, V("5+", ignorable=True)] = -1
    producer_epoch: Annotated[Int16, V("5+", ignorable=True)] = -1
