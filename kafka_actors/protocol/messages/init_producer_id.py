"""A producer id and epoch for idempotent and transactional producers (KIP-98, KIP-360).

Version 6, not yet stable, is for two-phase commit (KIP-939).
"""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Int16, Int32, Int64, Request, Response, V, message


@message(ApiKey.INIT_PRODUCER_ID, "0-6", flexible="2+", latest=5)
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    transactional_id: Annotated[str | None, V(nullable="0+")] = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, V("3+")] = -1
    producer_epoch: Annotated[Int16, V("3+")] = -1
    enable2_pc: Annotated[bool, V("6+")] = False
    keep_prepared_txn: Annotated[bool, V("6+")] = False


@message(ApiKey.INIT_PRODUCER_ID, "0-6", flexible="2+", latest=5)
class InitProducerIdResponse(Response):
    throttle_time_ms: Annotated[Int32, V(ignorable=True)] = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, V("6+")] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, V("6+")] = -1
