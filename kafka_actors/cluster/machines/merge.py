"""Takes one Metadata response into what is already known, so that an old answer never undoes a newer one.

Brokers learn of changes at different times: the next answer may be older than the last. Leader epochs say which
is newer (KIP-320); topic ids tell a recreated topic from the old one (KIP-516).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from kafka_actors.cluster.snapshot import (
    NO_EPOCH,
    BrokerMetadata,
    ClusterSnapshot,
    PartitionMetadata,
    TopicMetadata,
)
from kafka_actors.protocol import MetadataResponse

_REMEMBERED = 10_000
"""How many departed topics, and topics with former ids, are remembered."""

_FORMER_IDS = 100
"""How many former ids of a topic are remembered."""

_INSISTENCE = 5
"""After so many answers in a row with a former id it is believed."""

RELIABLE_EPOCHS_FROM = 9
"""Before Metadata 9 (Kafka 2.4) brokers answer stale leader epochs during a reassignment (KAFKA-8889)."""


class WirePartition(Protocol):
    """A partition as a Metadata response has it."""

    @property
    def error_code(self) -> int: ...
    @property
    def partition_index(self) -> int: ...
    @property
    def leader_id(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def replica_nodes(self) -> list[int]: ...
    @property
    def isr_nodes(self) -> list[int]: ...
    @property
    def offline_replicas(self) -> list[int]: ...


class Memory:
    """What must be remembered beyond the present snapshot: topics that went away, and ids topics once had."""

    def __init__(self) -> None:
        self.departed: dict[str, TopicMetadata] = {}
        self.former_ids: dict[str, dict[bytes, int]] = {}
        """By topic: each former id, with how many answers in a row had it."""

    def copy(self) -> Memory:
        """Another one that remembers the same."""
        other = Memory()
        other.departed = dict(self.departed)
        other.former_ids = {name: dict(former) for name, former in self.former_ids.items()}
        return other

    def is_stale(self, name: str, topic_id: bytes) -> bool:
        """Whether an answer with this id comes from a broker that hasn't yet heard of the topic's recreation.

        If the answers insist, it was the other way round: what was taken for the recreation was the old topic.
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
        return seen + 1 < _INSISTENCE

    def replaced(self, name: str, old_id: bytes, new_id: bytes) -> None:
        """A topic has another id than it had."""
        former = self.former_ids.setdefault(name, {})
        former.pop(new_id, None)
        former[old_id] = 0
        _bound(former, _FORMER_IDS)
        _bound(self.former_ids, _REMEMBERED)

    def depart(self, topic: TopicMetadata) -> None:
        """A topic went out of sight."""
        self.departed[topic.name] = topic
        _bound(self.departed, _REMEMBERED)


def _bound(memory: dict[Any, Any], size: int) -> None:
    """Forgets the oldest; dicts are in order of insertion."""
    while len(memory) > size:
        del memory[next(iter(memory))]


def merge(
    old: ClusterSnapshot,
    response: MetadataResponse,
    memory: Memory,
    *,
    version: int | None = None,
    partial: bool = False,
) -> ClusterSnapshot:
    """The snapshot after `response`; `old` itself where nothing changed.

    `version` is the version the response had on the wire: before 9 its leader epochs are not to be relied on.
    A `partial` response says nothing about the topics that it doesn't list.
    """
    topics: dict[str, TopicMetadata] = dict(old.topics) if partial else {}
    reliable = version is None or version >= RELIABLE_EPOCHS_FROM
    for wire in response.topics:
        if wire.name is None:  # asked by id, and the id is unknown
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
    partitions: Iterable[WirePartition],
    memory: Memory,
    reliable: bool,
) -> TopicMetadata:
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
    if known is not None and same_head and not changed and len(merged) == len(known_partitions):
        return known
    return replace(fresh, partitions=merged)


def _merge_partitions(
    known: Mapping[int, PartitionMetadata], partitions: Iterable[WirePartition], reliable: bool
) -> tuple[dict[int, PartitionMetadata], bool]:
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
    brokers = {b.node_id: BrokerMetadata(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
    return known if brokers == known else brokers


def _remember(old: ClusterSnapshot, topics: Mapping[str, TopicMetadata], memory: Memory) -> None:
    """Epochs and ids outlive a topic's absence. Without an id a recreated topic can't be told: nothing is kept."""
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
    cluster_id = response.cluster_id if response.cluster_id is not None else old.cluster_id
    controller = response.controller_id if response.controller_id >= 0 else None
    same_topics = topics.keys() == old.topics.keys() and all(topics[n] is t for n, t in old.topics.items())
    unchanged = same_topics and brokers is old.brokers
    if unchanged and (cluster_id, controller) == (old.cluster_id, old.controller_id):
        return old
    return ClusterSnapshot(
        old.version + 1, cluster_id, controller, brokers, old.topics if same_topics else topics
    )
