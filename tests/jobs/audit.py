"""`__consumer_offsets` as the audit log of a group's commits: every one that the broker acknowledged, in order; and logs as a client reads
them that is none of ours."""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from waiting import slow_s

from kafka_actors.group.commit_metadata import unpack
from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.types import TopicPartition

_TOPIC = "__consumer_offsets"


def commits(servers: str, group: str) -> dict[TopicPartition, list[int]]:
    """The offsets that the group committed, partition by partition, from the first to the last."""
    found: dict[TopicPartition, list[int]] = defaultdict(list)
    for _, of, partition, offset, _ in all_commits(servers):
        if of == group:
            found[partition].append(offset)
    return found


def all_commits(servers: str) -> Iterator[tuple[float, str, TopicPartition, int, str]]:
    """Yields the commits of all groups: time since 1970 in seconds, group, partition, offset, metadata; those of one group in their order."""
    for message in all_records(servers, _TOPIC):
        if message.value() is not None and (at := _key(message.key())) is not None:
            yield message.timestamp()[1] / 1000, *at, *commit_of(message.value())


def first_committed(servers: str, group: str) -> dict[int, npt.NDArray[np.float64]]:
    """When each record was first committed as done, below the offset or in the metadata, by the clock of `time.monotonic`: by partition of the
    group's only topic, for each offset; infinity for never."""
    found: dict[int, npt.NDArray[np.float64]] = {}
    ahead = time.time() - time.monotonic()
    for at, of, (_, partition), offset, metadata in all_commits(servers):
        if of != group:
            continue
        done = unpack(metadata).done
        ranges = [(0, offset), *(DoneOffsets.of_text(done, offset).ranges.tolist() if done else [])]
        when = found.get(partition, np.zeros(0))
        if (more := ranges[-1][1] - len(when)) > 0:
            when = found[partition] = np.append(when, np.full(more, np.inf))
        for first, behind in ranges:
            np.minimum(when[first:behind], at - ahead, out=when[first:behind])
    return found


def all_records(servers: str, topic: str) -> Iterator[Any]:
    """Yields the messages of a topic from its beginning to its present end, by confluent-kafka."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError
    from confluent_kafka import TopicPartition as Theirs

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "audit", "enable.partition.eof": True, "log_level": 0}
    )
    partitions = consumer.list_topics(topic, timeout=slow_s(10)).topics[topic].partitions
    consumer.assign([Theirs(topic, p, OFFSET_BEGINNING) for p in partitions])  # 0 may be deleted
    left = set(partitions)
    while left:
        # It waits for all 1,000 as long as it may, at the end of the log in vain: so it may not wait for long.
        for message in consumer.consume(1000, timeout=0.2):
            if message.error() is None:
                yield message
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    consumer.close()


def lowered(servers: str, group: str) -> dict[TopicPartition, list[int]]:
    """The partitions one of whose commits is lower than the one before it."""
    return {p: offsets for p, offsets in commits(servers, group).items() if offsets != sorted(offsets)}


def _key(key: bytes) -> tuple[str, TopicPartition] | None:
    """An offset's key: version 0 or 1, group, topic, partition; other keys of the topic are of other versions."""
    (version,) = struct.unpack_from(">h", key)
    if version > 1:
        return None
    group, at = _string(key, 2)
    topic, at = _string(key, at)
    (partition,) = struct.unpack_from(">i", key, at)
    return group, TopicPartition(topic, partition)


def commit_of(data: bytes) -> tuple[int, str]:
    """A commit's value: version, offset, from version 3 on the leader epoch, and the metadata, from version 4 on a compact string."""
    version, offset = struct.unpack_from(">hq", data)
    if version <= 3:
        return offset, _string(data, 14 if version == 3 else 10)[0]
    if version == 4:
        return offset, _compact_string(data, 14)
    raise ValueError(f"commits of version {version} are not known here")


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length


def _compact_string(data: bytes, at: int) -> str:
    """A string whose length, plus one, stands before it as an unsigned varint."""
    length, shift = data[at] & 0x7F, 7
    while data[at] & 0x80:
        at += 1
        length, shift = length | (data[at] & 0x7F) << shift, shift + 7
    return data[at + 1 : at + length].decode()
