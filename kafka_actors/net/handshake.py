"""The first exchange on a new connection: ApiVersions, by which the broker says which versions it speaks (KIP-35, KIP-511).

It is a generator that yields frames to send and is sent the frames received, so that `Connection` and `FetchSocket` share it;
`security.authentication` has more steps of the same kind.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from kafka_actors.errors import CorrelationIdError, UnsupportedVersionError, raise_for_code
from kafka_actors.protocol import (
    ApiKey,
    ApiVersionsRequest,
    ApiVersionsResponse,
    decode_api_versions,
    decode_header,
    frame,
)

from .machines.api_versions import ApiVersionTable, first_version, retry_version
from .machines.releases import Release

Handshake = Generator[bytes, bytes, ApiVersionTable]

T = TypeVar("T")

_SOFTWARE = "kafka-actors"


def advance(
    steps: Generator[bytes | memoryview, bytes, T], received: bytes | None
) -> tuple[bytes | memoryview, None] | tuple[None, T]:
    """Does one step: returns the next frame to send, or None and the result at the end. `received` is None at the start.

    Unlike a generator's own `send` it may run in a thread for an event loop, which can't pass on a StopIteration.
    """
    try:
        return (next(steps) if received is None else steps.send(received)), None
    except StopIteration as done:
        return None, done.value


def handshake(client_id: str, limit: Release | None = None) -> Handshake:
    """Yields requests, takes responses, returns the versions that the broker speaks.

    `limit` is the release whose versions are the newest to be used (`api_version`).
    Raises `UnrecognizedBrokerVersion` for what is no broker of 2.1 or newer, `ProtocolError` for other bytes.
    """
    version = first_version(ApiVersionsRequest.latest, limit)
    correlation_id = 0
    while True:
        request = ApiVersionsRequest(_SOFTWARE, _software_version())
        answer = yield frame(ApiKey.API_VERSIONS, version, correlation_id, client_id, request)
        response = _decode(answer, version, correlation_id)
        if response.error_code != UnsupportedVersionError.code or version == 0:
            raise_for_code(response.error_code, request="ApiVersions")
            return ApiVersionTable.of(response, limit)
        version = retry_version(response, version)
        correlation_id += 1


def _decode(answer: bytes, version: int, correlation_id: int) -> ApiVersionsResponse:
    header, body = decode_header(ApiKey.API_VERSIONS, version, "response", answer)
    if header.correlation_id != correlation_id:
        raise CorrelationIdError(
            f"ApiVersions {correlation_id} was answered with correlation id {header.correlation_id}: "
            "this is no Kafka broker"
        )
    return decode_api_versions(version, body)


def _software_version() -> str:
    from kafka_actors import __version__

    return __version__
