"""List the transactions that a broker coordinates (KIP-664); from version 1 on by their age (KIP-994), from 2 on by a pattern (KIP-1152)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Int64, Request, Response, V, message


@message(ApiKey.LIST_TRANSACTIONS, "0-2", flexible="0+")
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    state_filters: list[str] = []
    producer_id_filters: list[Int64] = []
    duration_filter: Annotated[Int64, V("1+")] = -1
    transactional_id_pattern: Annotated[str | None, V("2+", nullable="2+")] = None


class TransactionState(Element):
    transactional_id: str = ""
    producer_id: Int64 = 0
    transaction_state: str = ""


@message(ApiKey.LIST_TRANSACTIONS, "0-2", flexible="0+")
class ListTransactionsResponse(Response):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[TransactionState] = []
