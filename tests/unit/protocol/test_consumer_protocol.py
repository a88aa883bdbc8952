"""Subscriptions and assignments: version in front, newer versions read as ours."""

import struct

import pytest

from kafka_actors.errors import DecodeError
from kafka_actors.protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_consumer_protocol,
    encode_consumer_protocol,
)
from kafka_actors.protocol.messages.consumer_protocol_assignment import TopicPartition as Assigned
from kafka_actors.protocol.messages.consumer_protocol_subscription import TopicPartition as Owned

SUBSCRIPTION = ConsumerProtocolSubscription(["orders"], b"data", [Owned("orders", [1, 4])], 7, "rack-1")
ASSIGNMENT = ConsumerProtocolAssignment([Assigned("orders", [1, 4, 7])], b"data")


def test_the_version_stands_in_front():
    assert encode_consumer_protocol(SUBSCRIPTION)[:2] == b"\x00\x03"
    assert (
        encode_consumer_protocol(ConsumerProtocolAssignment(), 0) == bytes(2) + bytes(4) + b"\xff\xff\xff\xff"
    )


@pytest.mark.parametrize("version", range(4))
def test_they_come_back(version):
    assert (
        decode_consumer_protocol(type(ASSIGNMENT), encode_consumer_protocol(ASSIGNMENT, version))
        == ASSIGNMENT
    )
    again = decode_consumer_protocol(type(SUBSCRIPTION), encode_consumer_protocol(SUBSCRIPTION, version))
    assert again.topics == ["orders"]
    assert again.owned_partitions == (SUBSCRIPTION.owned_partitions if version >= 1 else [])
    assert again.generation_id == (7 if version >= 2 else -1)
    assert again.rack_id == ("rack-1" if version >= 3 else None)


def test_newer_versions_are_read_as_ours():
    newer = struct.pack(">h", 9) + encode_consumer_protocol(SUBSCRIPTION)[2:] + b"what comes next"
    assert decode_consumer_protocol(ConsumerProtocolSubscription, newer) == SUBSCRIPTION


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x00\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x01\x7f\xff\xff\xff"]
)
def test_what_is_none_is_refused(data):
    with pytest.raises(DecodeError):
        decode_consumer_protocol(ConsumerProtocolSubscription, data)
