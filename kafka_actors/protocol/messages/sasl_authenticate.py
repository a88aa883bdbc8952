"""A SASL token; from version 1 on with the session's lifetime (KIP-368)."""

from typing import Annotated, Any

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Int16, Int64, Request, Response, V, message

REDACTED = "***"


@message(ApiKey.SASL_AUTHENTICATE, "0-2", flexible="2+")
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    """The token holds a password or a proof of one: no repr shows it."""

    auth_bytes: bytes = b""

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest(auth_bytes={REDACTED})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("auth_bytes", REDACTED)]


@message(ApiKey.SASL_AUTHENTICATE, "0-2", flexible="2+")
class SaslAuthenticateResponse(Response):
    """The token can hold what a password may be guessed with: no repr shows it."""

    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[Int64, V("1+", ignorable=True)] = 0

    def __repr__(self) -> str:
        return (
            f"SaslAuthenticateResponse(error_code={self.error_code}, error_message={self.error_message!r}, "
            f"auth_bytes={REDACTED}, session_lifetime_ms={self.session_lifetime_ms})"
        )

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        return list((shown | {"auth_bytes": REDACTED}).items())
