"""Agree on a SASL mechanism. After version 1 the tokens travel in SaslAuthenticate requests (KIP-152)."""

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Int16, Request, Response, message


@message(ApiKey.SASL_HANDSHAKE, "0-1", flexible="none")
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    mechanism: str = ""


@message(ApiKey.SASL_HANDSHAKE, "0-1", flexible="none")
class SaslHandshakeResponse(Response):
    error_code: Int16 = 0
    mechanisms: list[str] = []
