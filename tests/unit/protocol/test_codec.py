"""Headers, frames and versions: exact bytes, and what the errors say."""

import struct

import pytest

from kafka_actors import protocol
from kafka_actors.errors import DecodeError, EncodeError, UnsupportedVersionError
from kafka_actors.protocol.messages.api_versions import ApiVersion

# ---------------------------------------------------------------- exact bytes


def test_a_classic_request_frame():
    sent = protocol.frame(12, 0, 7, "me", protocol.HeartbeatRequest("g", 5, "m"))
    header = b"\x00\x0c\x00\x00" + b"\x00\x00\x00\x07" + b"\x00\x02me"
    body = b"\x00\x01g" + b"\x00\x00\x00\x05" + b"\x00\x01m"
    assert sent == struct.pack(">i", len(header + body)) + header + body


def test_a_flexible_request_frame_keeps_the_client_id_classic():
    sent = protocol.frame(12, 4, 7, None, protocol.HeartbeatRequest("g", 5, "m", None))
    header = b"\x00\x0c\x00\x04" + b"\x00\x00\x00\x07" + b"\xff\xff" + b"\x00"
    body = b"\x02g" + b"\x00\x00\x00\x05" + b"\x02m" + b"\x00" + b"\x00"
    assert sent == struct.pack(">i", len(header + body)) + header + body


# ---------------------------------------------------------------- versions


@pytest.mark.parametrize("version", [3, 19, -1])
def test_versions_that_do_not_exist_are_refused(version):
    with pytest.raises(UnsupportedVersionError, match=f"FetchRequest has versions 4 to 18, not {version}"):
        protocol.encode(protocol.FetchRequest(), version)
    with pytest.raises(UnsupportedVersionError):
        protocol.decode(1, version, "response", b"")


def test_an_api_that_does_not_exist_is_refused():
    with pytest.raises(UnsupportedVersionError, match="no API 12345"):
        protocol.decode(12345, 0, "request", b"")


def test_latest_is_the_newest_stable_version():
    assert (protocol.OffsetCommitRequest.latest, protocol.OffsetCommitRequest.max_version) == (9, 10)
    assert (protocol.FetchRequest.latest, protocol.FetchRequest.max_version) == (18, 18)


def test_a_frame_takes_only_the_request_of_its_api():
    with pytest.raises(EncodeError, match="HeartbeatRequest is no request of API 1"):
        protocol.frame(1, 12, 7, None, protocol.HeartbeatRequest())


# ---------------------------------------------------------------- headers


@pytest.mark.parametrize(
    ("api_key", "version", "request_header", "response_header"),
    [(1, 11, 1, 0), (1, 12, 2, 1), (17, 1, 1, 0), (18, 2, 1, 0), (18, 3, 2, 0), (18, 4, 2, 0), (60, 0, 2, 1)],
)
def test_header_versions(api_key, version, request_header, response_header):
    assert protocol.header_version(api_key, version, "request") == request_header
    assert protocol.header_version(api_key, version, "response") == response_header


@pytest.mark.parametrize("version", [0, 4])
def test_headers_come_back(version):
    sent = protocol.frame(12, version, 7, "me", protocol.HeartbeatRequest("g"))[4:]
    assert protocol.peek_request(sent) == (12, version, 7)
    header, body = protocol.decode_header(12, version, "request", sent)
    assert header == protocol.RequestHeader(12, version, 7, "me")
    assert protocol.decode(12, version, "request", body) == protocol.HeartbeatRequest("g")
    assert protocol.encode_header(12, version, "request", 7, "me") == sent[: len(sent) - len(body)]

    answer = protocol.response_frame(12, version, 7, protocol.HeartbeatResponse(error_code=27))
    assert struct.unpack(">i", answer[:4]) == (len(answer) - 4,)
    response_header, body = protocol.decode_header(12, version, "response", answer[4:])
    assert response_header.correlation_id == 7
    assert protocol.decode_message(protocol.HeartbeatResponse, version, body).error_code == 27


def test_a_truncated_request_start_is_an_error():
    with pytest.raises(DecodeError):
        protocol.peek_request(b"\x00\x01\x00")


def test_an_old_broker_refuses_api_versions_in_version_0():
    refused = protocol.ApiVersionsResponse(35, [ApiVersion(18, 0, 2)])
    assert protocol.decode_api_versions(4, protocol.encode(refused, 0)) == refused
    accepted = protocol.ApiVersionsResponse(0, [ApiVersion(18, 0, 4)], 0, [], 5)
    assert protocol.decode_api_versions(4, protocol.encode(accepted, 4)) == accepted


def test_a_refused_api_versions_whose_rest_is_of_no_version_is_still_a_refusal():
    """As librdkafka's mock brokers answer a version that they don't know."""
    garbled = bytes.fromhex("0023 01 0012 0000 0002 00 00000000")
    assert protocol.decode_api_versions(4, garbled) == protocol.ApiVersionsResponse(error_code=35)
