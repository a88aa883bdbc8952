"""A Kafka cluster at one moment, as immutable values that also travel between processes.

Snapshots of successive moments share the topics (and within a topic, the partitions) that did not change, so a
new one of 100,000 partitions costs a comparison, not a copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from kafka_actors.types import TopicPartition

NO_LEADER = -1
NO_EPOCH = -1


class BrokerMetadata(Struct, frozen=True, array_like=True, gc=False):
    """A broker: `node_id`, the `host` and `port` of its listener, and its `rack` (None where it has none)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(Struct, frozen=True, array_like=True, gc=False):
    """One partition: `leader` is a node id, -1 while there is none; `leader_epoch` is -1 where it isn't known."""

    partition: int
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0


class TopicMetadata(Struct, frozen=True, array_like=True):
    """One topic. `topic_id` (KIP-516) is None for brokers older than 2.8; `error_code` is Kafka's, 0 for none."""

    name: str
    topic_id: bytes | None = None
    is_internal: bool = False
    error_code: int = 0
    partitions: dict[int, PartitionMetadata] = {}


class ClusterSnapshot(Struct, frozen=True, array_like=True):
    """The cluster as a client knows it. `version` grows by one whenever anything in it changes but the controller, which with KRaft
    is any broker, another one in each answer."""

    version: int = 0
    cluster_id: str | None = None
    controller_id: int | None = None
    brokers: dict[int, BrokerMetadata] = {}
    topics: dict[str, TopicMetadata] = {}

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        """The metadata of a partition, None where it is unknown."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def leader(self, tp: TopicPartition) -> int | None:
        """The leader's node id, -1 while there is none, None where the partition is unknown."""
        partition = self.partition(tp)
        return None if partition is None else partition.leader

    def leader_epoch(self, tp: TopicPartition) -> int:
        """The leader epoch (KIP-320), -1 where it is unknown."""
        partition = self.partition(tp)
        return NO_EPOCH if partition is None else partition.leader_epoch

    def topic_id(self, topic: str) -> bytes | None:
        """The topic's id, 16 bytes, None where it is unknown."""
        known = self.topics.get(topic)
        return None if known is None else known.topic_id

    def topic_error(self, topic: str) -> int:
        """The error code of the topic as a whole (29: not authorized, 17: invalid name, 3: unknown); else 0."""
        known = self.topics.get(topic)
        return 0 if known is None else known.error_code

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """All partition ids of a topic, available or not; None where the topic is unknown."""
        known = self.topics.get(topic)
        if known is None or (known.error_code and not known.partitions):
            return None
        return set(known.partitions)

    def topics_matching(self, pattern: str | re.Pattern[str], exclude_internal: bool = True) -> set[str]:
        """The readable topics whose whole name matches `pattern`, as in Java's `subscribe(Pattern)`."""
        compiled = re.compile(pattern)
        return {
            name
            for name, topic in self.topics.items()
            if topic.partitions
            and not (exclude_internal and topic.is_internal)
            and compiled.fullmatch(name) is not None
        }


def by_leader(snapshot: ClusterSnapshot) -> dict[int, set[TopicPartition]]:
    """The partitions that each broker leads."""
    led: dict[int, set[TopicPartition]] = {}
    for name, topic in snapshot.topics.items():
        for index, partition in topic.partitions.items():
            if partition.leader >= 0:
                led.setdefault(partition.leader, set()).add(TopicPartition(name, index))
    return led


def with_leader(known: PartitionMetadata, leader: int, epoch: int) -> PartitionMetadata:
    """The partition under another leader."""
    return PartitionMetadata(
        known.partition, leader, epoch, known.replicas, known.isr, known.offline_replicas
    )


def with_partitions(
    snapshot: ClusterSnapshot,
    partitions: Iterable[tuple[str, PartitionMetadata]],
    brokers: dict[int, BrokerMetadata],
) -> ClusterSnapshot:
    """The next snapshot, which knows these partitions, (topic, partition) each, and these brokers."""
    added: dict[str, dict[int, PartitionMetadata]] = {}
    for name, partition in partitions:
        added.setdefault(name, {})[partition.partition] = partition
    topics = dict(snapshot.topics)
    for name, new in added.items():
        old = topics.get(name) or TopicMetadata(name)
        topics[name] = TopicMetadata(
            name, old.topic_id, old.is_internal, old.error_code, {**old.partitions, **new}
        )
    return ClusterSnapshot(snapshot.version + 1, snapshot.cluster_id, snapshot.controller_id, brokers, topics)
