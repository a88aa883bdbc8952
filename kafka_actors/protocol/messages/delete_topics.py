"""Delete topics by name, from version 6 on by name or id."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import ZERO_UUID, Element, Int16, Int32, Request, Response, Uuid, V, message


class DeleteTopicState(Element):
    name: Annotated[str | None, V("6+", nullable="6+")] = None
    topic_id: Annotated[Uuid, V("6+")] = ZERO_UUID


@message(ApiKey.DELETE_TOPICS, "1-6", flexible="4+")
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    topics: Annotated[list[DeleteTopicState], V("6+")] = []
    topic_names: Annotated[list[str], V("0-5", ignorable=True)] = []
    timeout_ms: Int32 = 0


class DeletableTopicResult(Element):
    name: Annotated[str | None, V(nullable="6+")] = ""
    topic_id: Annotated[Uuid, V("6+", ignorable=True)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, V("5+", nullable="5+", ignorable=True)] = None


@message(ApiKey.DELETE_TOPICS, "1-6", flexible="4+")
class DeleteTopicsResponse(Response):
    throttle_time_ms: Annotated[Int32, V("1+", ignorable=True)] = 0
    responses: list[DeletableTopicResult] = []
