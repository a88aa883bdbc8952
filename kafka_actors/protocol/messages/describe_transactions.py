"""Describe transactions by their transactional ids (KIP-664)."""

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Int64, Request, Response, message


@message(ApiKey.DESCRIBE_TRANSACTIONS, "0", flexible="0+")
class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"]):
    transactional_ids: list[str] = []


class TopicData(Element):
    topic: str = ""
    partitions: list[Int32] = []


class TransactionState(Element):
    error_code: Int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = []


@message(ApiKey.DESCRIBE_TRANSACTIONS, "0", flexible="0+")
class DescribeTransactionsResponse(Response):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []
