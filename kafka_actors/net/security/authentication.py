"""Authentication of a connection: SASL as Kafka requests, at its start and when its session is renewed.

It is a generator as `handshake` is, so that `Connection` and `FetchSocket` share it. Its steps may block, because a token or a
ticket is fetched from other servers: an event loop runs them in a thread.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar, cast

from kafka_actors.base.addresses import format_address
from kafka_actors.config import ClientConfig
from kafka_actors.errors import (
    AuthenticationError,
    ConnectionFailedError,
    CorrelationIdError,
    DecodeError,
    IllegalSaslStateError,
    KafkaActorsError,
    SaslError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    error_for_code,
)
from kafka_actors.net.machines.api_versions import ApiVersionTable
from kafka_actors.net.machines.sasl import Steps
from kafka_actors.protocol import (
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    decode_header,
    decode_message,
    frame,
)
from kafka_actors.protocol.schema import Request, Response

from .credentials import SaslLogin

Authentication = Generator[memoryview, bytes, int]
"""Yields frames, is sent frames, returns the session's lifetime in milliseconds, 0 where it has no end.

Its frames are memoryviews, whose repr shows no content: there are passwords in them.
"""

R = TypeVar("R", bound=Response)


def authenticate(
    config: ClientConfig, host: str, port: int, versions: ApiVersionTable, *, renews: bool = False
) -> Authentication:
    """Authenticates by the `sasl_` options of a config; `renews`: the connection's session, which was authenticated before.

    Raises `AuthenticationError`s, each with the broker's address in it and none with a secret: those that the
    broker answered, `UnsupportedSaslMechanismError` with what it offers, and `SaslError`; `ConnectionFailedError` where
    another try may be accepted: a token endpoint or a KDC can't be reached, a password is being changed.
    """
    address = format_address(host, port)
    login = SaslLogin(config)
    try:
        steps = login.steps(host)
        lifetime_ms = yield from _exchange(
            config.client_id, versions, str(config.sasl_mechanism), steps, address, renews
        )
    except UnsupportedVersionError:
        raise SaslError(f"{address}: the broker does not speak SASL as Kafka does since 1.0") from None
    except DecodeError as error:
        raise SaslError(f"{address}: an answer to SASL can't be read: {error}") from error
    except KafkaActorsError as error:
        raised = login.error_of(error)
        if isinstance(raised, (SaslError, ConnectionFailedError)) and address not in str(raised):
            raise type(raised)(f"{address}: {raised}") from error.__cause__
        if raised is error:
            raise
        raise raised from error
    login.accepted()
    return lifetime_ms


def _exchange(
    client_id: str, versions: ApiVersionTable, mechanism: str, steps: Steps, address: str, renews: bool
) -> Authentication:
    handshake = SaslHandshakeRequest(mechanism)
    offered = yield from _ask(client_id, versions, 0, handshake, lowest=1)
    if offered.error_code == UnsupportedSaslMechanismError.code:
        enabled = ", ".join(offered.mechanisms) or "none"
        raise UnsupportedSaslMechanismError(
            f"{address} does not accept {mechanism}; enabled: {enabled}", request="SaslHandshake"
        )
    if offered.error_code == IllegalSaslStateError.code and renews:
        raise ConnectionFailedError(
            f"{address}: the session was renewed less than a second ago, and can't be again"
        )
    if offered.error_code == IllegalSaslStateError.code:
        raise IllegalSaslStateError(
            f"{address}: the port does not speak SASL, and security_protocol asks for it",
            request="SaslHandshake",
        )
    _raise_for(offered.error_code, None, "SaslHandshake", address)
    # The message itself is in no variable: tools that show those of a traceback would show a password.
    request, correlation_id = SaslAuthenticateRequest(next(steps)), 1
    while True:
        answer = yield from _ask(client_id, versions, correlation_id, request, lowest=0)
        _raise_for(answer.error_code, answer.error_message, "SaslAuthenticate", address)
        try:
            request = SaslAuthenticateRequest(steps.send(answer.auth_bytes))
        except StopIteration:
            return answer.session_lifetime_ms
        correlation_id += 1


def _ask(
    client_id: str, versions: ApiVersionTable, correlation_id: int, request: Request[R], lowest: int
) -> Generator[memoryview, bytes, R]:
    version = versions.pick(type(request), lowest=lowest)
    data = yield memoryview(frame(request.api_key, version, correlation_id, client_id, request))
    header, body = decode_header(request.api_key, version, "response", data)
    if header.correlation_id != correlation_id:
        raise CorrelationIdError(f"SASL {correlation_id} was answered with {header.correlation_id}")
    return cast(R, decode_message(request.response, version, body))


def _raise_for(code: int, message: str | None, request: str, address: str) -> None:
    error = error_for_code(code, f"{address}: {message}" if message else address, request=request)
    if error is None:
        return
    if isinstance(error, AuthenticationError) or error.retriable:
        raise error
    raise SaslError(f"{address}: {error}")
