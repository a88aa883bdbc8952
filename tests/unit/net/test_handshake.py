"""What is said on a new connection."""

from __future__ import annotations

import pytest

from kafka_actors.errors import CorrelationIdError, DecodeError, UnknownServerError, UnrecognizedBrokerVersion
from kafka_actors.net.handshake import handshake
from kafka_actors.net.machines.api_versions import ApiVersionTable
from kafka_actors.protocol import (
    ApiKey,
    ApiVersionsResponse,
    decode,
    decode_header,
    encode,
    peek_request,
    response_frame,
)
from kafka_actors.protocol.messages.api_versions import ApiVersion

KNOWN = ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.FETCH, 4, 12)])


def answer(frame: bytes, response: ApiVersionsResponse, version: int | None = None, shift: int = 0) -> bytes:
    _, asked, correlation_id = peek_request(frame[4:])
    if version is None:
        return response_frame(ApiKey.API_VERSIONS, asked, correlation_id + shift, response)[4:]
    return (correlation_id + shift).to_bytes(4, "big") + encode(response, version)


def finish(steps, data: bytes) -> ApiVersionTable:
    with pytest.raises(StopIteration) as done:
        steps.send(data)
    return done.value.value


def test_a_broker_that_knows_our_version_is_asked_once() -> None:
    steps = handshake("me")
    first = next(steps)
    header, body = decode_header(ApiKey.API_VERSIONS, 4, "request", first[4:])
    assert header.client_id == "me"
    assert decode(ApiKey.API_VERSIONS, 4, "request", body).client_software_name == "kafka-actors"
    assert finish(steps, answer(first, KNOWN)).ranges == {1: (4, 12)}


@pytest.mark.parametrize(("named", "then"), [((0, 3), 3), ((0, 2), 2), (None, 0)])
def test_an_older_broker_answers_in_version_0_and_is_asked_again(named, then: int) -> None:
    steps = handshake("me")
    first = next(steps)
    keys = [] if named is None else [ApiVersion(ApiKey.API_VERSIONS, *named)]
    second = steps.send(answer(first, ApiVersionsResponse(error_code=35, api_keys=keys), version=0))
    assert peek_request(second[4:])[1] == then
    assert finish(steps, answer(second, KNOWN)).ranges == {1: (4, 12)}


def test_a_broker_that_refuses_version_0_too_is_not_asked_for_ever() -> None:
    steps = handshake("me")
    refused = ApiVersionsResponse(error_code=35)
    second = steps.send(answer(next(steps), refused, version=0))
    with pytest.raises(Exception, match="UNSUPPORTED_VERSION"):
        steps.send(answer(second, refused, version=0))


def test_another_error_is_raised() -> None:
    steps = handshake("me")
    with pytest.raises(UnknownServerError):
        steps.send(answer(next(steps), ApiVersionsResponse(error_code=-1)))


def test_a_wrong_correlation_id_is_no_broker() -> None:
    steps = handshake("me")
    with pytest.raises(CorrelationIdError, match="no Kafka broker"):
        steps.send(answer(next(steps), KNOWN, shift=1))


def test_garbage_is_a_named_error() -> None:
    steps = handshake("me")
    next(steps)
    with pytest.raises(DecodeError):
        steps.send(b"\x00\x00\x00\x00garbage")


def test_a_broker_that_is_too_old() -> None:
    steps = handshake("me")
    old = ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.FETCH, 0, 8)])
    with pytest.raises(UnrecognizedBrokerVersion):
        steps.send(answer(next(steps), old))
