"""What the group's machines need to know of the cluster, out of a snapshot of it."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_actors.cluster import ClusterSnapshot

from .machines.assignment import TopicsView


def topics_view(snapshot: ClusterSnapshot, topics: Iterable[str], *, racks: bool = False) -> TopicsView:
    """Partition ids of those of `topics` that exist, with the racks of their replicas if asked for."""
    partitions: dict[str, tuple[int, ...]] = {}
    replica_racks: dict[tuple[str, int], tuple[str | None, ...]] = {}
    for name in topics:
        topic = snapshot.topics.get(name)
        if topic is None or not topic.partitions:
            continue
        partitions[name] = tuple(sorted(topic.partitions))
        if racks:
            for partition in topic.partitions.values():
                replica_racks[name, partition.partition] = tuple(
                    snapshot.brokers[node].rack if node in snapshot.brokers else None
                    for node in partition.replicas
                )
    return TopicsView(partitions, replica_racks)
