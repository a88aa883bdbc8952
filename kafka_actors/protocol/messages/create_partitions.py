"""Add partitions to topics."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Request, Response, V, message


class CreatePartitionsAssignment(Element):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Element):
    name: str = ""
    count: Int32 = 0
    assignments: Annotated[list[CreatePartitionsAssignment] | None, V(nullable="0+")] = []


@message(ApiKey.CREATE_PARTITIONS, "0-3", flexible="2+")
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: bool = False


class CreatePartitionsTopicResult(Element):
    name: str = ""
    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = None


@message(ApiKey.CREATE_PARTITIONS, "0-3", flexible="2+")
class CreatePartitionsResponse(Response):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []
