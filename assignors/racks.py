"""Which racks count when partitions are placed near their replicas (KIP-881)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from assignors.types import Member, Racks, TopicPartition

NO_RACKS: frozenset[str] = frozenset()


def member_racks(members: Mapping[str, Member], order: Iterable[str]) -> list[str | None]:
    """The rack of each member in order; an empty name is no rack, as in Java."""
    return [members[member_id].rack or None for member_id in order]


def replica_racks(racks: Racks, partition: TopicPartition) -> frozenset[str]:
    """The known racks of a partition's replicas."""
    return frozenset(rack for rack in racks.get(partition, ()) if rack is not None)


def worth_matching(wanted: set[str], replicas: Iterable[frozenset[str]]) -> bool:
    """Whether looking at racks can change anything: some are shared, and not all partitions have the same."""
    sets = set(replicas)
    union = NO_RACKS.union(*sets)
    return not wanted.isdisjoint(union) and sets != {union}
