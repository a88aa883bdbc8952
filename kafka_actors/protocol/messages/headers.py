"""Headers in front of the body of each request and response."""

from typing import Annotated

from kafka_actors.protocol.schema import Int16, Int32, Message, V, data


@data("1-2", flexible="2+")
class RequestHeader(Message):
    request_api_key: Int16 = 0
    request_api_version: Int16 = 0
    correlation_id: Int32 = 0
    client_id: Annotated[str | None, V("1+", nullable="1+", flexible=False)] = ""


@data("0-1", flexible="1+")
class ResponseHeader(Message):
    correlation_id: Int32 = 0
