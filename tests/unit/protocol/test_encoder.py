"""Encoding of messages: exact bytes, what is refused, and which field the error names."""

import struct

import pyarrow as pa
import pytest

from kafka_actors import protocol
from kafka_actors.errors import EncodeError
from kafka_actors.protocol.encoder import encoder
from kafka_actors.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    PartitionData,
)
from kafka_actors.protocol.messages.leave_group import MemberIdentity
from kafka_actors.protocol.messages.metadata import MetadataRequestTopic


def fetch_response(records: bytes | None) -> protocol.FetchResponse:
    partition = PartitionData(partition_index=3, high_watermark=9, aborted_transactions=None, records=records)
    return protocol.FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[partition])])


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


def test_any_buffer_is_encoded_as_records():
    expected = protocol.encode(fetch_response(b"abc"), 12)
    assert protocol.encode(fetch_response(memoryview(b"abc")), 12) == expected
    assert protocol.encode(fetch_response(bytearray(b"abc")), 12) == expected
    assert protocol.encode(fetch_response(pa.py_buffer(b"abc")), 12) == expected


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


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("length", "size"),
    [(0, b"\x01"), (126, b"\x7f"), (127, b"\x80\x01"), (16382, b"\xff\x7f"), (16383, b"\x80\x80\x01")],
)
def test_a_compact_length_is_one_more_as_a_varint_of_as_few_bytes_as_it_needs(length, size):
    body = protocol.encode(protocol.HeartbeatRequest("x" * length), 4)
    assert body[: len(size) + length] == size + b"x" * length
    assert protocol.decode(protocol.HeartbeatRequest, 4, "request", body).group_id == "x" * length


def test_a_string_counts_by_its_bytes_in_utf8_and_may_have_32767_of_them():
    fits = "\N{EURO SIGN}" * 10922 + "x"
    assert protocol.encode(protocol.HeartbeatRequest(fits), 0)[:2] == b"\x7f\xff"
    with pytest.raises(EncodeError, match="group_id has 32769 bytes, more than 32767"):
        protocol.encode(protocol.HeartbeatRequest("\N{EURO SIGN}" * 10923), 0)


def test_an_encoder_is_compiled_once_for_a_version():
    assert encoder(protocol.HeartbeatRequest, 4) is encoder(protocol.HeartbeatRequest, 4)
    assert encoder(protocol.HeartbeatRequest, 4) is not encoder(protocol.HeartbeatRequest, 3)
