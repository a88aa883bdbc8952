"""Merges one Metadata response into the snapshot of a cluster, so that an old answer never undoes a newer one.

Theory of operation. Brokers learn of changes at different times, so the next response may be older than the last. Two numbers
tell which is newer:

- the leader epoch of a partition (KIP-320): a partition with a lower epoch than the known one stays as it is known. Responses
  before version 9 have stale epochs while partitions are reassigned (KAFKA-8889), so theirs count as unknown;
- the topic id (KIP-516): a topic under another id was deleted and made anew, and nothing of the old one holds. An answer with an
  id that the topic had before comes from a broker that hasn't heard of that yet and is ignored, until five in a row say so.

A topic that is absent, or has an error and no partitions, is kept in `Memory` with its epochs and its id: when it comes back, the
rules above hold. The result shares every topic and partition that did not change with the snapshot before, and is that snapshot
itself where nothing changed, so that listeners see at once that there is nothing to do. Java: `Metadata.update`,
`Metadata.updateLatestMetadata`, `MetadataSnapshot.mergeWith`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from kafka_actors.cluster.snapshot import (
    NO_EPOCH,
    BrokerMetadata,
    ClusterSnapshot,
    PartitionMetadata,
    TopicMetadata,
)
from kafka_actors.protocol import MetadataResponse
from kafka_actors.protocol.messages.metadata import MetadataResponsePartition

_REMEMBERED = 10_000
"""Departed topics that are remembered, and topics with former ids."""

_FORMER_IDS = 100
"""Former ids that are remembered of each topic."""

_BELIEVED_AFTER = 5
"""Answers in a row with a former id after which it is taken for the topic's present one."""

RELIABLE_EPOCHS_FROM = 9
"""Before Metadata 9 (Kafka 2.4) brokers answer stale leader epochs during a reassignment (KAFKA-8889)."""


class Memory:
    """The past of a cluster that no snapshot has: topics that went away, and ids that topics had before."""

    def __init__(self) -> None:
        self.departed: dict[str, TopicMetadata] = {}
        self.former_ids: dict[str, dict[bytes, int]] = {}
        """Former ids by topic, each with the number of answers in a row that had it."""

    def copy(self) -> Memory:
        """Returns a copy that changes independently."""
        other = Memory()
        other.departed = dict(self.departed)
        other.former_ids = {name: dict(former) for name, former in self.former_ids.items()}
        return other

    def is_stale(self, name: str, topic_id: bytes) -> bool:
        """Whether an answer with this id comes from a broker that hasn't yet heard of the topic's recreation.

        After `_BELIEVED_AFTER` such answers in a row it was the other way round: the id taken for the new one was the old one.
        """
        former = self.former_ids.get(name)
        if former is None:
            return False
        seen = former.get(topic_id)
        for other in former:
            former[other] = 0
        if seen is None:
            return False
        former[topic_id] = seen + 1
        return seen + 1 < _BELIEVED_AFTER

    def replaced(self, name: str, old_id: bytes, new_id: bytes) -> None:
        """Notes that a topic has another id than before."""
        former = self.former_ids.setdefault(name, {})
        former.pop(new_id, None)
        former[old_id] = 0
        _bound(former, _FORMER_IDS)
        _bound(self.former_ids, _REMEMBERED)

    def depart(self, topic: TopicMetadata) -> None:
        """Keeps a topic that the response no longer has."""
        self.departed[topic.name] = topic
        _bound(self.departed, _REMEMBERED)


def _bound(memory: dict[Any, Any], size: int) -> None:
    """Forgets the oldest entries beyond `size`; dicts are in order of insertion."""
    while len(memory) > size:
        del memory[next(iter(memory))]


def merge(
    old: ClusterSnapshot,
    response: MetadataResponse,
    memory: Memory,
    *,
    version: int | None = None,
    keep: Collection[str] = (),
) -> ClusterSnapshot:
    """Returns the snapshot after `response`; `old` itself where nothing changed.

    `version` is the version the response had on the wire: before 9 its leader epochs are not to be relied on.
    The topics to `keep` stay as they are known where the response doesn't list them: it wasn't asked about them.
    """
    # A response lists every topic that was requested, so what it lacks of others is gone, or of no more interest.
    topics = {name: old.topics[name] for name in keep if name in old.topics}
    reliable = version is None or version >= RELIABLE_EPOCHS_FROM
    for wire in response.topics:
        if wire.name is None:  # requested by id, and the id is unknown
            continue
        topic_id = wire.topic_id.bytes if wire.topic_id.int else None
        present = old.topics.get(wire.name)
        known = present
        if known is None or not known.partitions:
            known = memory.departed.get(wire.name, known)
        if known is not None and topic_id is not None and memory.is_stale(wire.name, topic_id):
            topics[wire.name] = known
            continue
        fresh = TopicMetadata(wire.name, topic_id, wire.is_internal, wire.error_code)
        merged = _merge_topic(known, fresh, wire.partitions, memory, reliable)
        if present is not None and not merged.partitions and merged == present:
            merged = present  # the same error as before
        topics[wire.name] = merged
    brokers = _merge_brokers(old.brokers, response)
    _remember(old, topics, memory)
    return _snapshot(old, response, brokers, topics)


def _merge_topic(
    known: TopicMetadata | None,
    fresh: TopicMetadata,
    partitions: Iterable[MetadataResponsePartition],
    memory: Memory,
    reliable: bool,
) -> TopicMetadata:
    """The topic after a response that has `fresh`, still without partitions, and `partitions`; `known` itself where nothing
    changed. `reliable`: the response's leader epochs are to be relied on."""
    # Two ids under one name: a topic was deleted and made anew. Its epochs begin at 0 again, so none is compared.
    if known is not None and known.topic_id and fresh.topic_id and known.topic_id != fresh.topic_id:
        memory.replaced(known.name, known.topic_id, fresh.topic_id)
        known = None
    known_partitions = {} if known is None else known.partitions
    merged, changed = _merge_partitions(known_partitions, partitions, reliable)
    if known is not None and fresh.topic_id and not fresh.error_code and len(merged) < len(known_partitions):
        # The same topic never has fewer partitions than it had: the answer is older than what is known.
        merged = {**known_partitions, **merged}
        changed = changed or merged != known_partitions
    same_head = known is not None and (
        (known.topic_id, known.is_internal, known.error_code)
        == (fresh.topic_id, fresh.is_internal, fresh.error_code)
    )
    # The object itself, not an equal one: `_snapshot` compares topics by identity.
    if known is not None and same_head and not changed and len(merged) == len(known_partitions):
        return known
    return replace(fresh, partitions=merged)


def _merge_partitions(
    known: Mapping[int, PartitionMetadata], partitions: Iterable[MetadataResponsePartition], reliable: bool
) -> tuple[dict[int, PartitionMetadata], bool]:
    """The partitions of a topic, and whether any differs from the known one. One with a lower leader epoch than the known one
    is older news, and stays as it is known."""
    merged: dict[int, PartitionMetadata] = {}
    changed = False
    for wire in partitions:
        index = wire.partition_index
        old = known.get(index)
        epoch = wire.leader_epoch if reliable else NO_EPOCH
        if old is not None and NO_EPOCH < epoch < old.leader_epoch:
            merged[index] = old
            continue
        new = PartitionMetadata(
            index,
            wire.leader_id,
            epoch,
            tuple(wire.replica_nodes),
            tuple(wire.isr_nodes),
            tuple(wire.offline_replicas),
            wire.error_code,
        )
        if old is not None and old == new:
            merged[index] = old
        else:
            merged[index] = new
            changed = True
    return merged, changed


def _merge_brokers(known: dict[int, BrokerMetadata], response: MetadataResponse) -> dict[int, BrokerMetadata]:
    """The brokers of the response, which lists all of them; the known mapping itself where they are the same."""
    brokers = {b.node_id: BrokerMetadata(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
    return known if brokers == known else brokers


def _remember(old: ClusterSnapshot, topics: Mapping[str, TopicMetadata], memory: Memory) -> None:
    """Keeps the epochs and ids of topics that went away. Without an id, a recreated topic can't be told from the old one: it is
    not kept."""
    for name, topic in old.topics.items():
        now = topics.get(name)
        if topic.topic_id is not None and topic.partitions and (now is None or not now.partitions):
            memory.depart(topic)
    for name in [name for name in memory.departed if name in topics and topics[name].partitions]:
        del memory.departed[name]


def _snapshot(
    old: ClusterSnapshot,
    response: MetadataResponse,
    brokers: dict[int, BrokerMetadata],
    topics: dict[str, TopicMetadata],
) -> ClusterSnapshot:
    """The next snapshot; `old` itself where nothing changed, and of its version where only the controller did. Brokers before Kafka
    0.10.1 have no cluster id, and none is a controller during an election."""
    cluster_id = response.cluster_id if response.cluster_id is not None else old.cluster_id
    controller = response.controller_id if response.controller_id >= 0 else None
    same_topics = topics.keys() == old.topics.keys() and all(topics[n] is t for n, t in old.topics.items())
    unchanged = same_topics and brokers is old.brokers
    if unchanged and cluster_id == old.cluster_id:
        # With KRaft the controller is another broker in each answer (`getRandomAliveBrokerId`).
        return old if controller == old.controller_id else replace(old, controller_id=controller)
    return ClusterSnapshot(
        old.version + 1, cluster_id, controller, brokers, old.topics if same_topics else topics
    )
