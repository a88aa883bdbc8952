"""Who owns what before the rebalance, out of claims that may be stale or contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from assignors.types import Assignment, Member, TopicPartition


def owners(members: Mapping[str, Member], order: Iterable[str]) -> dict[TopicPartition, str]:
    """The one member whose claim to a partition has the highest generation (KIP-792).

    Only subscribers of its topic count. Where several claim it in that same generation nobody owns it: at most one
    of them is right, and which one cannot be told from here.
    """
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id in order:
        generation = members[member_id].generation
        for partition in _wanted(members[member_id]):
            known = claims.get(partition)
            if known is None or known[0] < generation:
                claims[partition] = (generation, member_id)
            elif known[0] == generation:
                claims[partition] = (generation, None)
    return {partition: member_id for partition, (_, member_id) in claims.items() if member_id is not None}


def current_owned(members: Mapping[str, Member]) -> Assignment:
    """What each member still owns as far as the group can tell: its claims without those of older generations.

    A claim is dropped only where another member claims the same partition in a later generation, or, as a subscriber
    of its topic, in the same one as a member that does not subscribe. This is what the leader passes to
    `cooperative_adjust`, so that a stale claim does not hold up the right owner; other claims of equal generation
    stay with all who make them, so that the partition rests until they let go.
    """
    wanted = {member_id: _wanted(member) for member_id, member in members.items()}
    newest: dict[TopicPartition, tuple[int, bool]] = {}
    for member_id, member in members.items():
        for partition in member.owned:
            claim = (member.generation, partition in wanted[member_id])
            newest[partition] = max(newest.get(partition, claim), claim)
    return {
        member_id: sorted(
            {p for p in member.owned if newest[p] == (member.generation, p in wanted[member_id])}
        )
        for member_id, member in members.items()
    }


def _wanted(member: Member) -> set[TopicPartition]:
    """Returns the partitions that a member claims of the topics that it subscribes to."""
    topics = set(member.topics)
    return {partition for partition in member.owned if partition[0] in topics}
