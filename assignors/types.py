"""Arguments and results of assignors, the order of members, and the racks of members and replicas."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

TopicPartition: TypeAlias = tuple[str, int]
Assignment: TypeAlias = dict[str, list[TopicPartition]]
Racks: TypeAlias = Mapping[TopicPartition, Iterable[str | None]]


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group, as the leader knows it from the member's subscription.

    topics: names of the topics that it subscribes to. group_instance_id: id of a static member (KIP-345). owned: (topic,
    partition) pairs that it claims to hold. generation: group generation of that claim, -1 if unknown (KIP-792). rack: its
    `client.rack` (KIP-881). capacity: its weight for the sticky assignors, a finite number from 0 on, which is never sent
    to brokers.

    The iterables are copied into tuples. Raises TypeError for a bare string as `topics`, ValueError for a
    capacity that is negative, infinite or not a number.
    """

    topics: Iterable[str]
    group_instance_id: str | None = None
    owned: Iterable[TopicPartition] = ()
    generation: int = -1
    rack: str | None = None
    capacity: float = 1

    def __post_init__(self) -> None:
        if isinstance(self.topics, str):
            raise TypeError(f"topics must be an iterable of names, not the string {self.topics!r}")
        if not (math.isfinite(self.capacity) and self.capacity >= 0):
            raise ValueError(f"capacity must be a finite number from 0 on, not {self.capacity!r}")
        object.__setattr__(self, "topics", tuple(self.topics))
        object.__setattr__(self, "owned", tuple((topic, partition) for topic, partition in self.owned))


@runtime_checkable
class Assignor(Protocol):
    """Assigns every partition of the subscribed topics to exactly one subscriber.

    `name` is the protocol name in JoinGroup, on which the members agree. `protocol` says whether members keep their
    partitions while the group rebalances ("cooperative", KIP-429) or revoke all of them first ("eager").
    """

    @property
    def name(self) -> str: ...

    @property
    def protocol(self) -> Literal["eager", "cooperative"]: ...

    def assign(
        self,
        partitions: Mapping[str, Iterable[int]],
        members: Mapping[str, Member],
        *,
        racks: Racks | None = None,
    ) -> Assignment:
        """Returns a list of partitions for each member, which may be empty.

        partitions: partition ids of each topic, in any order and not necessarily consecutive. Topics that are missing
        here, or that have no subscriber, are left out. racks: racks of each partition's replicas.
        """
        ...


class Topic(NamedTuple):
    """A topic with subscribers: partition ids, ascending, and the subscribers' positions in the order of members."""

    name: str
    ids: list[int]
    subscribers: tuple[int, ...]


def java_order(text: str) -> bytes:
    """Sort key with the order of Java's String.compareTo: by UTF-16 code units, not by code points."""
    return text.encode("utf-16-be", "surrogatepass")


def member_order(members: Mapping[str, Member]) -> list[str]:
    """Sorts member ids as Kafka's MemberInfo does: static members by instance id, then the others by member id."""

    def key(member_id: str) -> tuple[bool, bytes, bytes]:
        instance = members[member_id].group_instance_id
        own = java_order(member_id)
        return (True, own, own) if instance is None else (False, java_order(instance), own)

    return sorted(members, key=key)


def subscribed_topics(
    partitions: Mapping[str, Iterable[int]], members: Mapping[str, Member], order: list[str]
) -> list[Topic]:
    """Returns the topics that have both partitions and subscribers, sorted by name."""
    subscribers: dict[str, list[int]] = {}
    for position, member_id in enumerate(order):
        for name in set(members[member_id].topics):
            subscribers.setdefault(name, []).append(position)
    topics = (
        Topic(name, sorted(set(partitions[name])), tuple(subscribers[name]))
        for name in sorted(subscribers, key=java_order)
        if name in partitions
    )
    return [topic for topic in topics if topic.ids]


# ---------------------------------------------------------------- racks (KIP-881)

NO_RACKS: frozenset[str] = frozenset()


def member_racks(members: Mapping[str, Member], order: Iterable[str]) -> list[str | None]:
    """Racks of the members in `order`; an empty name counts as no rack, as in Java."""
    return [members[member_id].rack or None for member_id in order]


def replica_racks(racks: Racks, partition: TopicPartition) -> frozenset[str]:
    """Known racks of a partition's replicas."""
    return frozenset(rack for rack in racks.get(partition, ()) if rack is not None)


def worth_matching(wanted: set[str], replicas: Iterable[frozenset[str]]) -> bool:
    """Whether racks can change an assignment: some rack has both members and replicas, and partitions differ in their racks."""
    sets = set(replicas)
    union = NO_RACKS.union(*sets)
    return not wanted.isdisjoint(union) and sets != {union}
