"""A SASL token; from version 1 on with the session's lifetime (KIP-368)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Int16, Int64, Request, Response, V, message


@message(ApiKey.SASL_AUTHENTICATE, "0-2", flexible="2+")
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    auth_bytes: bytes = b""


@message(ApiKey.SASL_AUTHENTICATE, "0-2", flexible="2+")
class SaslAuthenticateResponse(Response):
    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[Int64, V("1+", ignorable=True)] = 0
