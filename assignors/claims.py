"""Ownership before a rebalance, derived from the members' claims, which may be stale or contradict each other; and the
adjustment of an assignment by it in a cooperative rebalance (KIP-429)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from assignors.types import Assignment, Member, TopicPartition


def owners(members: Mapping[str, Member], order: Iterable[str]) -> dict[TopicPartition, str]:
    """Returns the owner of each partition: the member whose claim has the highest generation (KIP-792).

    Only subscribers of the topic count. If several members claim a partition in the same generation, nobody owns it: at
    most one claim is right, and it isn't known which.
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
    """Returns each member's claims without those that are known to be stale; the leader passes them to `cooperative_adjust`.

    A claim is dropped if another member claims the same partition in a later generation, or in the same generation as a
    subscriber of the topic while this member doesn't subscribe. So a stale claim doesn't hold up the right owner. Other
    claims of equal generation are kept, so that nobody gets the partition until all of them have revoked it.
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


def cooperative_adjust(
    owned: Mapping[str, Iterable[TopicPartition]], assigned: Mapping[str, Iterable[TopicPartition]]
) -> Assignment:
    """Returns `assigned` without the partitions that a member other than the assignee still owns (KIP-429).

    Only the group's leader calls it, on the result of `Assignor.assign`. owned: the partitions that each member holds
    now, see `current_owned`. Withheld partitions are assigned by the next rebalance, after their owners have revoked
    them. A partition that two members own is withheld from both.
    """
    holders: dict[TopicPartition, str | None] = {}
    for member_id, partitions in owned.items():
        for topic, partition in partitions:
            if holders.setdefault((topic, partition), member_id) != member_id:
                holders[topic, partition] = None
    return {
        member_id: [tp for tp in partitions if holders.get((tp[0], tp[1]), member_id) == member_id]
        for member_id, partitions in assigned.items()
    }


def _wanted(member: Member) -> set[TopicPartition]:
    """Returns the partitions that a member claims of the topics that it subscribes to."""
    topics = set(member.topics)
    return {partition for partition in member.owned if partition[0] in topics}
