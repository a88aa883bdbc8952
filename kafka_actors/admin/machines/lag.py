"""How far a group is behind, by partition and member, as `ConsumerGroupCommand` shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_actors.admin.results import GroupDescription, MemberDescription, PartitionLag
from kafka_actors.types import OffsetAndMetadata, TopicPartition

__all__ = ["lag_rows"]


def lag_rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int],
) -> list[PartitionLag]:
    """A row for each partition that is committed or assigned, by topic and partition; then idle members.

    `ends` lacks the partitions whose end isn't known.
    """
    owners = {tp: member for member in group.members for tp in member.assignment}
    rows = [
        _row(group.group_id, tp, committed.get(tp), ends.get(tp), owners.get(tp))
        for tp in sorted({*committed, *owners})
    ]
    idle = (member for member in group.members if not member.assignment)
    return rows + [_idle(group.group_id, member) for member in _by_id(idle)]


def _row(
    group_id: str,
    tp: TopicPartition,
    committed: OffsetAndMetadata | None,
    end: int | None,
    owner: MemberDescription | None,
) -> PartitionLag:
    current = None if committed is None else committed.offset
    return PartitionLag(
        group_id=group_id,
        topic=tp.topic,
        partition=tp.partition,
        leader_epoch=None if committed is None or committed.leader_epoch < 0 else committed.leader_epoch,
        current_offset=current,
        log_end_offset=end,
        lag=None if current is None or end is None else end - current,
        member_id=owner.member_id if owner else None,
        host=owner.host if owner else None,
        client_id=owner.client_id if owner else None,
    )


def _idle(group_id: str, member: MemberDescription) -> PartitionLag:
    nothing = (None,) * 6
    return PartitionLag(group_id, *nothing, member.member_id, member.host, member.client_id)


def _by_id(members: Iterable[MemberDescription]) -> list[MemberDescription]:
    return sorted(members, key=lambda member: member.member_id)
