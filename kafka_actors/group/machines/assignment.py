"""The leader's part: subscriptions of all members in, assignments out, both in the consumer protocol's bytes. Slow for big groups.

Theory of operation. The coordinator of a classic group doesn't read what members say to each other. With JoinGroup each member sends
its metadata for each assignor that it offers (`encode_subscription`): its topics, what it owns, since which generation, and its rack.
The coordinator chooses an assignor that all of them offer, and hands all metadata to one member, the leader. The leader reads them,
has the assignor assign (`perform_assignment`), and sends the result with SyncGroup; each member gets its part (`decode_assignment`).

- What a member owns counts for stickiness. `sticky` reads it from user data of its own, where a member that has revoked
  everything still tells its last assignment; the other assignors from the subscription (KIP-429). `cooperative-sticky` reads
  the generation from user data where a subscription is too old to have one (KIP-792).
- With a cooperative assignor a partition that is to move is given to nobody first: its owner gives it up, and the rebalance after
  that hands it out.
- Racks are passed on only if some member names one (KIP-881); without them assignors need not look at replicas.
- A member whose metadata can't be read gets nothing, and is reported.

All of it is functions of their arguments: `Ownership` has the state. Source: `ConsumerCoordinator.java`, `ConsumerProtocol.java`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import assignors
from assignors import userdata
from kafka_actors.errors import DecodeError, InconsistentGroupProtocolError
from kafka_actors.protocol import consumer_protocol
from kafka_actors.protocol.messages import consumer_protocol_assignment as assignment_types
from kafka_actors.protocol.messages import consumer_protocol_subscription as subscription_types
from kafka_actors.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafka_actors.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment
from kafka_actors.types import TopicPartition

from .member_events import Partitions

STICKY = "sticky"
COOPERATIVE_STICKY = "cooperative-sticky"


@dataclass(frozen=True, slots=True)
class TopicsView:
    """Partition ids of a group's topics, and the racks of their replicas. A topic that is absent is unknown, or gone."""

    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    racks: Mapping[tuple[str, int], tuple[str | None, ...]] = field(default_factory=dict)

    def only(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Returns the partition ids of those `topics` that exist."""
        return {topic: self.partitions[topic] for topic in topics if topic in self.partitions}


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The leader's result, and the partitions it was computed from. `unreadable`: members whose metadata can't be read."""

    assignments: tuple[SyncGroupRequestAssignment, ...]
    watched: Mapping[str, tuple[int, ...]]
    unreadable: tuple[str, ...] = ()


def encode_subscription(
    assignor: assignors.Assignor,
    topics: Sequence[str],
    owned: Partitions,
    generation: int,
    last_assigned: Partitions,
    rack: str | None,
) -> bytes:
    """Returns a member's metadata for one assignor.

    `generation`: the one in which `owned` was given, -1 if none. `last_assigned`: the last assignment even where
    it has been revoked since, which `sticky` tells in its user data. An assignor may have a method
    `subscription_user_data(topics) -> bytes | None` of its own.
    """
    made = getattr(assignor, "subscription_user_data", None)
    user_data: bytes | None = None
    if assignor.name == STICKY:
        user_data = userdata.encode_sticky(last_assigned, generation) if last_assigned else None
    elif assignor.name == COOPERATIVE_STICKY:
        user_data = userdata.encode_cooperative_sticky(generation)
    elif made is not None:
        user_data = made(topics)
    subscription = ConsumerProtocolSubscription(
        topics=list(topics),
        user_data=user_data,
        owned_partitions=_grouped(subscription_types.TopicPartition, owned),
        generation_id=generation,
        rack_id=rack,
    )
    return consumer_protocol.encode_consumer_protocol(subscription)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Reads a member's metadata. Raises `DecodeError` for bytes that are no subscription."""
    return consumer_protocol.decode_consumer_protocol(ConsumerProtocolSubscription, data)


def decode_assignment(data: bytes) -> Partitions:
    """Returns a member's partitions, none for no bytes at all. Raises `DecodeError` for bytes that are no assignment."""
    if not data:
        return frozenset()
    decoded = consumer_protocol.decode_consumer_protocol(ConsumerProtocolAssignment, data)
    return frozenset(TopicPartition(t.topic, p) for t in decoded.assigned_partitions for p in t.partitions)


def encode_assignment(partitions: Iterable[tuple[str, int]]) -> bytes:
    """Returns a member's assignment in version 0, which every client reads; later versions add nothing."""
    assigned = _grouped(assignment_types.TopicPartition, partitions)
    return consumer_protocol.encode_consumer_protocol(
        ConsumerProtocolAssignment(assigned_partitions=assigned), 0
    )


def _grouped(kind: Any, partitions: Iterable[tuple[str, int]]) -> list[Any]:
    """Returns one entry of this kind for each topic, in order, so that equal partitions give equal bytes."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [kind(topic=topic, partitions=ids) for topic, ids in topics.items()]


def group_topics(members: Iterable[JoinGroupResponseMember]) -> frozenset[str]:
    """Returns all topics that any member subscribes to."""
    read = (_read_member(member, "") for member in members)
    return frozenset(topic for member in read if member is not None for topic in member.topics)


def perform_assignment(
    assignor: assignors.Assignor, members: Sequence[JoinGroupResponseMember], view: TopicsView
) -> GroupAssignment:
    """Has `assignor` assign, in two steps where it is cooperative: a partition is given only once its owner has given it up.

    A member whose metadata can't be read gets nothing, rather than ending the whole group.
    """
    read = {member.member_id: _read_member(member, assignor.name) for member in members}
    known = {member_id: member for member_id, member in read.items() if member is not None}
    topics = {topic for member in known.values() for topic in member.topics}
    watched = view.only(topics)
    racks = view.racks if any(member.rack is not None for member in known.values()) else None
    assigned = assignor.assign(watched, known, racks=racks)
    if assignor.protocol == "cooperative":
        assigned = assignors.cooperative_adjust(assignors.current_owned(known), assigned)
    handed = tuple(
        SyncGroupRequestAssignment(
            member_id=member_id, assignment=encode_assignment(assigned.get(member_id, ()))
        )
        for member_id in read
    )
    unreadable = tuple(member_id for member_id, member in read.items() if member is None)
    return GroupAssignment(handed, watched, unreadable)


def choose(assignors_in_use: Iterable[assignors.Assignor], name: str, group_id: str) -> assignors.Assignor:
    """Returns the assignor that the group chose. Raises `InconsistentGroupProtocolError` where this member did not offer it."""
    for assignor in assignors_in_use:
        if assignor.name == name:
            return assignor
    raise InconsistentGroupProtocolError(
        f"the group {group_id!r} chose {name!r}, which this member did not offer", request="JoinGroup"
    )


def _read_member(member: JoinGroupResponseMember, strategy: str) -> assignors.Member | None:
    """Returns a member as assignors know it; None where its metadata can't be read. `strategy`: the assignor that the group chose."""
    try:
        subscription = decode_subscription(member.metadata)
    except DecodeError:
        return None
    owned: list[tuple[str, int]] = [(t.topic, p) for t in subscription.owned_partitions for p in t.partitions]
    generation = subscription.generation_id
    if strategy == STICKY:
        owned, generation = userdata.decode_sticky(subscription.user_data)
    elif strategy == COOPERATIVE_STICKY and generation < 0:
        generation = userdata.decode_cooperative_sticky(subscription.user_data)
    return assignors.Member(
        topics=tuple(subscription.topics),
        group_instance_id=member.group_instance_id,
        owned=owned,
        generation=generation,
        rack=subscription.rack_id,
    )
