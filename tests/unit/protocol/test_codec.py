"""Bodies, headers and frames: exact bytes, what is refused, and what the errors say."""

import struct
import uuid

import pyarrow as pa
import pytest

from kafka_actors import protocol
from kafka_actors.errors import DecodeError, EncodeError, UnsupportedVersionError
from kafka_actors.protocol.messages.api_versions import ApiVersion
from kafka_actors.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
)
from kafka_actors.protocol.messages.leave_group import MemberIdentity
from kafka_actors.protocol.messages.metadata import MetadataRequestTopic


def fetch_response(records: bytes | None) -> protocol.FetchResponse:
    partition = PartitionData(partition_index=3, high_watermark=9, aborted_transactions=None, records=records)
    return protocol.FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[partition])])


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


def test_tagged_fields_are_written_in_order_and_only_when_set():
    plain = protocol.encode(protocol.ApiVersionsResponse(), 3)
    assert plain == b"\x00\x00" + b"\x01" + b"\x00\x00\x00\x00" + b"\x00"
    tagged = protocol.encode(
        protocol.ApiVersionsResponse(zk_migration_ready=True, finalized_features_epoch=2), 3
    )
    assert tagged == plain[:-1] + b"\x02" + b"\x01\x08" + struct.pack(">q", 2) + b"\x03\x01\x01"


def test_null_and_empty_are_different():
    assert protocol.encode(protocol.MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    assert protocol.encode(protocol.MetadataRequest(topics=[]), 1) == b"\x00\x00\x00\x00"
    assert protocol.encode(protocol.MetadataRequest(topics=None), 9)[:1] == b"\x00"
    assert protocol.encode(protocol.MetadataRequest(topics=[]), 9)[:1] == b"\x01"


# ---------------------------------------------------------------- records


@pytest.mark.parametrize("version", [4, 11, 12])
def test_records_are_views_of_the_input(version):
    body = protocol.encode(fetch_response(b"batches" * 100), version)
    decoded = protocol.decode(protocol.FetchRequest, version, "response", body)
    records = decoded.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is body
    assert records == b"batches" * 100


def test_an_arrow_buffer_is_decoded_like_bytes():
    response = fetch_response(b"\xff\xfe" * 200)
    buffer = pa.py_buffer(protocol.encode(response, 12))
    assert protocol.decode_message(protocol.FetchResponse, 12, memoryview(buffer)) == response
    assert protocol.decode_message(protocol.FetchResponse, 12, buffer) == response


def test_any_buffer_is_encoded_as_records():
    expected = protocol.encode(fetch_response(b"abc"), 12)
    assert protocol.encode(fetch_response(memoryview(b"abc")), 12) == expected
    assert protocol.encode(fetch_response(bytearray(b"abc")), 12) == expected
    assert protocol.encode(fetch_response(pa.py_buffer(b"abc")), 12) == expected


# ---------------------------------------------------------------- versions


def test_fields_that_a_version_lacks_are_at_their_defaults():
    topic_id = uuid.UUID(int=7)
    request = protocol.FetchRequest(
        topics=[FetchTopic(topic="orders", topic_id=topic_id, partitions=[FetchPartition(partition=3)])]
    )
    by_name = protocol.decode(protocol.FetchRequest, 12, "request", protocol.encode(request, 12))
    by_id = protocol.decode(protocol.FetchRequest, 13, "request", protocol.encode(request, 13))
    assert (by_name.topics[0].topic, by_name.topics[0].topic_id) == ("orders", protocol.ZERO_UUID)
    assert (by_id.topics[0].topic, by_id.topics[0].topic_id) == ("", topic_id)


def test_a_set_field_that_the_version_lacks_is_refused_unless_ignorable():
    with pytest.raises(
        EncodeError, match=r"HeartbeatRequest.group_instance_id is set, but version 2 lacks it"
    ):
        protocol.encode(protocol.HeartbeatRequest("g", 5, "m", "static"), 2)
    reason = protocol.JoinGroupRequest(group_id="g", reason="because")
    assert protocol.encode(reason, 0) == protocol.encode(protocol.JoinGroupRequest(group_id="g"), 0)
    with pytest.raises(EncodeError, match="members"):
        protocol.encode(protocol.LeaveGroupRequest("g", members=[MemberIdentity("m")]), 2)


def test_tagged_fields_are_refused_where_the_version_is_not_flexible():
    response = protocol.FetchResponse(
        responses=[FetchableTopicResponse(partitions=[PartitionData(diverging_epoch=EpochEndOffset(3, 5))])]
    )
    with pytest.raises(EncodeError, match="diverging_epoch"):
        protocol.encode(response, 11)
    assert protocol.decode_message(protocol.FetchResponse, 12, protocol.encode(response, 12)) == response


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


# ---------------------------------------------------------------- what is refused when encoding


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            protocol.FetchRequest(max_wait_ms=1 << 40),
            "FetchRequest.max_wait_ms is 1099511627776, not an int32",
        ),
        (protocol.FetchRequest(topics=None), "FetchRequest.topics is None, which it can't be in version 12"),
        (protocol.FetchRequest(topics=7), "FetchRequest.topics is an int, not a list"),
        (
            protocol.FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(0), FetchPartition("1")])]),
            r"FetchRequest.topics\[0\].partitions\[1\].partition is '1', not an int32",
        ),
        (
            protocol.FetchRequest(topics=[FetchPartition()]),
            r"topics\[0\] is a FetchPartition, not a FetchTopic",
        ),
        (protocol.FetchRequest(rack_id=b"a"), "FetchRequest.rack_id is a bytes, not a str"),
        (protocol.FetchRequest(rack_id="x" * 32768), "rack_id has 32768 bytes, more than 32767"),
        (protocol.FetchRequest(rack_id="\ud800"), "rack_id holds a lone surrogate"),
    ],
)
def test_a_value_that_does_not_fit_names_its_field(message, says):
    with pytest.raises(EncodeError, match=says):
        protocol.encode(message, 12)


def test_bytes_must_be_bytes():
    with pytest.raises(EncodeError, match="auth_bytes is a str, not bytes"):
        protocol.encode(protocol.SaslAuthenticateRequest("token"), 0)
    with pytest.raises(EncodeError, match="auth_bytes is a list, not bytes"):
        protocol.encode(protocol.SaslAuthenticateRequest([1, 2]), 0)
    with pytest.raises(EncodeError, match="topic_id is a str, not a UUID"):
        protocol.encode(protocol.MetadataRequest(topics=[MetadataRequestTopic(topic_id="7")]), 12)


def test_a_frame_takes_only_the_request_of_its_api():
    with pytest.raises(EncodeError, match="HeartbeatRequest is no request of API 1"):
        protocol.frame(1, 12, 7, None, protocol.HeartbeatRequest())


# ---------------------------------------------------------------- what is refused when decoding


def test_bytes_left_over_are_an_error():
    body = protocol.encode(protocol.HeartbeatResponse(), 4)
    with pytest.raises(DecodeError, match="HeartbeatResponse version 4: 1 bytes left over"):
        protocol.decode(protocol.HeartbeatRequest, 4, "response", body + b"\x00")


def test_null_where_it_may_not_be_is_an_error():
    with pytest.raises(DecodeError, match=r"version 0: ApiVersionsResponse.api_keys: null"):
        protocol.decode(18, 0, "response", b"\x00\x00\xff\xff\xff\xff")
    with pytest.raises(DecodeError, match=r"version 0: ApiVersionsResponse.api_keys: a length of -2"):
        protocol.decode(18, 0, "response", b"\x00\x00\xff\xff\xff\xfe")
    with pytest.raises(DecodeError, match="topics: a length of -2"):
        protocol.decode(3, 1, "request", b"\xff\xff\xff\xfe")


def test_a_string_that_is_not_utf8_is_an_error():
    with pytest.raises(DecodeError, match="not UTF-8"):
        protocol.decode(12, 0, "request", b"\x00\x01\xff" + bytes(6))


def test_varints_have_at_most_32_bits():
    for length in (b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x1f"):
        with pytest.raises(DecodeError, match="a varint of more than"):
            protocol.decode(12, 4, "request", length)


def test_tagged_fields_that_are_not_known_are_skipped():
    body = protocol.encode(protocol.HeartbeatResponse(error_code=27), 4)
    assert body[-1:] == b"\x00"
    newer = body[:-1] + b"\x02" + b"\x05\x03abc" + b"\x90\x4e\x00"
    assert protocol.decode_message(protocol.HeartbeatResponse, 4, newer).error_code == 27


def test_a_tagged_field_must_fill_its_size():
    start = b"\x00\x00" + b"\x01" + b"\x00\x00\x00\x00"
    for size in (7, 9):
        tagged = b"\x01" + b"\x01" + bytes([size]) + bytes(size)
        with pytest.raises(DecodeError, match="finalized_features_epoch"):
            protocol.decode_api_versions(3, start + tagged + b"\x00\x00")
    with pytest.raises(DecodeError, match="tagged field 9: a length or count of 100 with 3 bytes left"):
        protocol.decode_api_versions(3, start + b"\x01\x09\x64abc")


def test_nullable_structs():
    assert protocol.encode(protocol.ConsumerGroupHeartbeatResponse(), 0)[-2:] == b"\xff\x00"
    body = protocol.encode(protocol.FetchResponse(node_endpoints=[NodeEndpoint(1, "h", 2, None)]), 16)
    assert protocol.decode_message(protocol.FetchResponse, 16, body).node_endpoints[0].rack is None


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
