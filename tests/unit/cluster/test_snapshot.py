"""Snapshots as values that travel."""

from __future__ import annotations

import re

import msgspec

from kafka_actors.cluster import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.protocol import TopicPartition

SNAPSHOT = ClusterSnapshot(
    3,
    "c",
    1,
    {1: BrokerMetadata(1, "h", 9092, "r")},
    {
        "orders": TopicMetadata(
            "orders", b"0123456789abcdef", partitions={0: PartitionMetadata(0, 1, 4, (1,), (1,))}
        ),
        "orders-dead": TopicMetadata("orders-dead", partitions={0: PartitionMetadata(0)}),
        "orders-secret": TopicMetadata("orders-secret", error_code=29),
        "__orders": TopicMetadata("__orders", is_internal=True, partitions={0: PartitionMetadata(0)}),
    },
)


def test_a_snapshot_survives_the_wire() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(SNAPSHOT), type=ClusterSnapshot) == SNAPSHOT


def test_reading() -> None:
    assert SNAPSHOT.leader(TopicPartition("orders", 0)) == 1
    assert SNAPSHOT.leader(TopicPartition("orders-dead", 0)) == -1
    assert SNAPSHOT.leader(TopicPartition("orders", 1)) is None
    assert SNAPSHOT.leader(TopicPartition("nope", 0)) is None
    assert SNAPSHOT.leader_epoch(TopicPartition("orders", 0)) == 4
    assert SNAPSHOT.leader_epoch(TopicPartition("nope", 0)) == -1
    assert SNAPSHOT.topic_id("orders") == b"0123456789abcdef"
    assert SNAPSHOT.topic_id("nope") is None


def test_a_pattern_matches_whole_names_of_readable_topics() -> None:
    assert SNAPSHOT.topics_matching("orders") == {"orders"}
    assert SNAPSHOT.topics_matching("orders.*") == {"orders", "orders-dead"}
    assert SNAPSHOT.topics_matching(re.compile(".*orders"), exclude_internal=False) == {"orders", "__orders"}
