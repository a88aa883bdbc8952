"""Add partitions to a transaction. Clients use version 3; 4 and 5 are between brokers."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Int64, Request, Response, V, message


class AddPartitionsToTxnTopic(Element):
    name: str = ""
    partitions: list[Int32] = []


class AddPartitionsToTxnTransaction(Element):
    transactional_id: Annotated[str, V("4+")] = ""
    producer_id: Annotated[Int64, V("4+")] = 0
    producer_epoch: Annotated[Int16, V("4+")] = 0
    verify_only: Annotated[bool, V("4+")] = False
    topics: Annotated[list[AddPartitionsToTxnTopic], V("4+")] = []


@message(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5", flexible="3+")
class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    transactions: Annotated[list[AddPartitionsToTxnTransaction], V("4+")] = []
    v3_and_below_transactional_id: Annotated[str, V("0-3")] = ""
    v3_and_below_producer_id: Annotated[Int64, V("0-3")] = 0
    v3_and_below_producer_epoch: Annotated[Int16, V("0-3")] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], V("0-3")] = []


class AddPartitionsToTxnPartitionResult(Element):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Element):
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnResult(Element):
    transactional_id: Annotated[str, V("4+")] = ""
    topic_results: Annotated[list[AddPartitionsToTxnTopicResult], V("4+")] = []


@message(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5", flexible="3+")
class AddPartitionsToTxnResponse(Response):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, V("4+", ignorable=True)] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], V("4+")] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], V("0-3")] = []
