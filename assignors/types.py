"""What every assignor is given and gives back, and the order in which members are served."""

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
    """One member of a group, as its leader knows it from the member's subscription.

    topics: names it subscribes to. group_instance_id: of a static member (KIP-345).
    owned: (topic, partition) pairs it claims to hold. generation: the group generation of that claim,
    -1 if unknown (KIP-792). rack: its `client.rack` (KIP-881). capacity: its weight for the sticky assignors,
    any finite number from 0 on; it never travels on the wire.

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
    """Gives every partition of the subscribed topics to exactly one of its subscribers.

    `name` is what members agree on in JoinGroup; `protocol` says whether members keep their partitions
    while the group rebalances ("cooperative", KIP-429) or give all up first ("eager").
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
        """Returns a list for each member, empty ones included.

        partitions: ids of each topic, in any order, with holes if need be; topics that are missing here or
        that nobody subscribes to are left out. racks: the racks of each partition's replicas.
        """
        ...


class Topic(NamedTuple):
    """A topic that somebody subscribes to: its partition ids, ascending, and positions in the member order."""

    name: str
    ids: list[int]
    subscribers: tuple[int, ...]


def java_order(text: str) -> bytes:
    """A sort key with the order of Java's String.compareTo: by UTF-16 code units, not by code points."""
    return text.encode("utf-16-be", "surrogatepass")


def member_order(members: Mapping[str, Member]) -> list[str]:
    """Member ids as Kafka's MemberInfo sorts them: static members by instance id, then the rest by member id."""

    def key(member_id: str) -> tuple[bool, bytes, bytes]:
        instance = members[member_id].group_instance_id
        own = java_order(member_id)
        return (True, own, own) if instance is None else (False, java_order(instance), own)

    return sorted(members, key=key)


def subscribed_topics(
    partitions: Mapping[str, Iterable[int]], members: Mapping[str, Member], order: list[str]
) -> list[Topic]:
    """The topics that have both partitions and subscribers, by name."""
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
