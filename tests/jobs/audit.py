"""`__consumer_offsets` as the audit log of a group's commits: every one that the broker acknowledged, in order."""

from __future__ import annotations

import struct
from collections import defaultdict

from waiting import slow_s

from kafka_actors.types import TopicPartition

_TOPIC = "__consumer_offsets"


def commits(servers: str, group: str) -> dict[TopicPartition, list[int]]:
    """The offsets that the group committed, partition by partition, from the first to the last."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Theirs

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "audit", "enable.partition.eof": True, "log_level": 0}
    )
    partitions = consumer.list_topics(_TOPIC, timeout=slow_s(10)).topics[_TOPIC].partitions
    consumer.assign([Theirs(_TOPIC, p, 0) for p in partitions])
    found: dict[TopicPartition, list[int]] = defaultdict(list)
    left = set(partitions)
    while left:
        # It waits for all 1,000 as long as it may, at the end of the log in vain: so it may not wait for long.
        for message in consumer.consume(1000, timeout=0.2):
            if message.error() is not None:
                left.discard(message.partition())
            elif message.value() is not None and (at := _partition_of(message.key(), group)) is not None:
                found[at].append(struct.unpack_from(">q", message.value(), 2)[0])
    consumer.close()
    return found


def lowered(servers: str, group: str) -> dict[TopicPartition, list[int]]:
    """The partitions one of whose commits is lower than the one before it."""
    return {p: offsets for p, offsets in commits(servers, group).items() if offsets != sorted(offsets)}


def _partition_of(key: bytes, group: str) -> TopicPartition | None:
    """An offset's key: version 0 or 1, group, topic, partition; other keys of the topic are of other versions."""
    (version,) = struct.unpack_from(">h", key)
    if version > 1:
        return None
    of, at = _string(key, 2)
    topic, at = _string(key, at)
    (partition,) = struct.unpack_from(">i", key, at)
    return TopicPartition(topic, partition) if of == group else None


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length
