"""Decoding of messages: what is a view, what is refused, and how much of hostile bytes is believed."""

import struct
import uuid

import pyarrow as pa
import pytest

from kafka_actors import protocol
from kafka_actors.errors import DecodeError
from kafka_actors.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
)
from kafka_actors.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic


def fetch_response(records: bytes | None) -> protocol.FetchResponse:
    partition = PartitionData(partition_index=3, high_watermark=9, aborted_transactions=None, records=records)
    return protocol.FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[partition])])


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


def test_fields_that_a_version_lacks_are_at_their_defaults():
    topic_id = uuid.UUID(int=7)
    request = protocol.FetchRequest(
        topics=[FetchTopic(topic="orders", topic_id=topic_id, partitions=[FetchPartition(partition=3)])]
    )
    by_name = protocol.decode(protocol.FetchRequest, 12, "request", protocol.encode(request, 12))
    by_id = protocol.decode(protocol.FetchRequest, 13, "request", protocol.encode(request, 13))
    assert (by_name.topics[0].topic, by_name.topics[0].topic_id) == ("orders", protocol.ZERO_UUID)
    assert (by_id.topics[0].topic, by_id.topics[0].topic_id) == ("", topic_id)


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


# ---------------------------------------------------------------- hostile bytes

MANY = 0x7FFFFFFF


@pytest.mark.parametrize(
    ("version", "body"),
    [(1, struct.pack(">i", MANY) + b"\x00\x01a"), (9, b"\x80\x80\x80\x80\x08" + b"\x02a\x00")],
    ids=["classic", "compact"],
)
def test_a_count_is_compared_with_the_bytes_that_are_left_before_anything_is_made(version, body):
    with pytest.raises(
        DecodeError, match=r"MetadataRequest.topics: a length or count of 2147483647 with \d bytes left"
    ):
        protocol.decode(protocol.MetadataRequest, version, "request", body)


def test_a_count_of_structs_needs_the_least_bytes_of_each():
    """Two topics of a classic MetadataRequest need four bytes: a string's length each."""
    body = struct.pack(">i", 2) + b"\x00\x01a"
    with pytest.raises(DecodeError, match="topics: a length or count of 2 with 3 bytes left"):
        protocol.decode(protocol.MetadataRequest, 1, "request", body)
    whole = body + b"\x00\x00"
    assert [
        topic.name for topic in protocol.decode(protocol.MetadataRequest, 1, "request", whole).topics
    ] == ["a", ""]


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_a_response_that_ends_early_is_an_error_wherever_it_ends(version):
    body = protocol.encode(fetch_response(b"records"), version)
    for size in range(len(body)):
        with pytest.raises(DecodeError, match="FetchResponse") as caught:
            protocol.decode(protocol.FetchRequest, version, "response", body[:size])
        assert f"version {version}: " in str(caught.value)


def test_numbers_of_an_array_come_as_they_were_whatever_their_number():
    for count in (0, 1, 64, 65, 300):
        partition = MetadataResponsePartition(replica_nodes=list(range(-1, count - 1)))
        sent = protocol.MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[partition])])
        back = protocol.decode_message(protocol.MetadataResponse, 12, protocol.encode(sent, 12))
        assert back.topics[0].partitions[0].replica_nodes == list(range(-1, count - 1))


def test_the_topic_id_of_no_topic_is_one_object_and_others_are_kept():
    some = uuid.uuid4()
    request = protocol.FetchRequest(topics=[FetchTopic(topic_id=some), FetchTopic()])
    body = protocol.encode(request, 13)
    first, second = (protocol.decode(protocol.FetchRequest, 13, "request", body).topics for _ in range(2))
    assert first[0].topic_id == some
    assert first[0].topic_id is second[0].topic_id
    assert first[1].topic_id is protocol.ZERO_UUID
