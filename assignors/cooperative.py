"""The step that makes an assignment safe to hand out while members keep working (KIP-429)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from assignors.types import Assignment, TopicPartition


def cooperative_adjust(
    owned: Mapping[str, Iterable[TopicPartition]], assigned: Mapping[str, Iterable[TopicPartition]]
) -> Assignment:
    """Returns `assigned` without the partitions that a member other than the assignee still owns.

    owned: what each member holds now, see `current_owned`. The withheld partitions are given out by the
    rebalance that follows when their owners have revoked them. Applied by the group's leader alone, on the
    result of a total `assign`. A partition that two members own is withheld from both.
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
