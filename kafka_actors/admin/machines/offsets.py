"""Lag and resets of a group's offsets, by the rules of `kafka-consumer-groups.sh`.

A plan of a reset (KIP-122) has the new offset of each partition in its scope. The target says how it is found: a bound of
the log, the committed offset, a given offset, a shift, or the first record at or after a time. Given and shifted offsets
outside of the log move to its nearest bound; where nothing is committed, or no record is as young as the time, the end of
the log is taken. Each such change is noted in the plan.

Theory of operation. Arrives: what a group has committed, the bounds of the logs, and for a target by time the
offsets that brokers found. Decided: the new offset of each partition, with a note where it is not the one
that was asked for (`plan_reset`), or the rows of a lag table (`lag_rows`). Values that aren't known stay
None, and a lag is None with them: 0 would say that a group keeps up.

The functions here only compute. The caller asks for the offsets before, and commits a plan after; in between the logs grow and
lose records, so a plan is made of the bounds as they were. Brokers refuse the commit while the group has members, which would go on
from their own positions and commit those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from kafka_actors.admin.results import GroupDescription, MemberDescription, OffsetReset, PartitionLag
from kafka_actors.base.arguments import MOST_OFFSET, integer_of, partition_of
from kafka_actors.errors import UsageError, kind_of
from kafka_actors.types import OffsetAndMetadata, TopicPartition

__all__ = ["OffsetTarget", "lag_rows", "plan_reset"]

Kind = Literal["earliest", "latest", "current", "offset", "shift_by", "timestamp", "explicit"]


class OffsetTarget(Struct, frozen=True):
    """Target of a reset. Made by its class methods."""

    kind: Kind
    value: int = 0
    offsets: Mapping[TopicPartition, int] = {}

    @classmethod
    def earliest(cls) -> OffsetTarget:
        """The start of each partition's log."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> OffsetTarget:
        """The end of each partition's log."""
        return cls("latest")

    @classmethod
    def current(cls) -> OffsetTarget:
        """The committed offset; the end of the log where there is none."""
        return cls("current")

    @classmethod
    def offset(cls, offset: int) -> OffsetTarget:
        """This offset, or the nearest bound of the log where it lies outside."""
        return cls("offset", integer_of(offset, "offset"))

    @classmethod
    def shift_by(cls, by: int) -> OffsetTarget:
        """The committed offset moved forward by so many, or back where negative, within the bounds of the log."""
        return cls("shift_by", integer_of(by, "by"))

    @classmethod
    def timestamp(cls, milliseconds: int) -> OffsetTarget:
        """The first record at or after a time (milliseconds since 1970); the end of the log where there is none."""
        at = integer_of(milliseconds, "milliseconds")
        if not 0 <= at <= MOST_OFFSET:
            raise UsageError(f"milliseconds is {at}: give milliseconds since 1970")
        return cls("timestamp", at)

    @classmethod
    def explicit(cls, offsets: Mapping[TopicPartition, int]) -> OffsetTarget:
        """These offsets, or the nearest bounds of the logs where they lie outside."""
        if not isinstance(offsets, Mapping):
            raise UsageError(f"offsets is {offsets!r}, {kind_of(offsets)}: accepts a dict by TopicPartition")
        checked = {partition_of(tp): offset for tp, offset in offsets.items()}
        for tp, offset in checked.items():
            checked[tp] = integer_of(offset, f"the offset of {tp.topic}-{tp.partition}")
        return cls("explicit", 0, checked)


def plan_reset(
    group_id: str,
    target: OffsetTarget,
    partitions: Iterable[TopicPartition],
    *,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    by_time: Mapping[TopicPartition, int],
) -> list[OffsetReset]:
    """Plans the new offset of each partition. `starts` and `ends` are the bounds of the logs; `by_time` has the offsets found
    by timestamp, without partitions that have no record so young.

    Raises `UsageError` for a shift of a partition without a committed offset.
    """
    resets = []
    for tp in sorted(partitions):
        current = committed[tp].offset if tp in committed else None
        new, note = _goal(target, tp, current, starts[tp], ends[tp], by_time)
        resets.append(OffsetReset(group_id, tp.topic, tp.partition, current, new, note))
    return resets


def _goal(
    target: OffsetTarget,
    tp: TopicPartition,
    current: int | None,
    start: int,
    end: int,
    by_time: Mapping[TopicPartition, int],
) -> tuple[int, str | None]:
    """Returns the new offset of one partition, and a note where it isn't what was asked for."""
    if target.kind == "earliest":
        return start, None
    if target.kind == "latest":
        return end, None
    if target.kind == "timestamp":
        found = by_time.get(tp)
        return (end, "no record is as young as that: the end of the log") if found is None else (found, None)
    if target.kind == "current":
        return (end, "nothing is committed: the end of the log") if current is None else (current, None)
    if target.kind == "shift_by":
        if current is None:
            raise UsageError(
                f"{tp.topic}-{tp.partition} can't be shifted: the group has no committed offset there"
            )
        return _within(current + target.value, start, end)
    return _within(target.offsets[tp] if target.kind == "explicit" else target.value, start, end)


def _within(offset: int, start: int, end: int) -> tuple[int, str | None]:
    """Offset within the bounds of the log, with a note where it was moved. The end itself is a valid position: the next record."""
    if offset < start:
        return start, f"{offset} is before the start of the log"
    if offset > end:
        return end, f"{offset} is behind the end of the log"
    return offset, None


# ------------------------------------------------------------ lag


def lag_rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int],
) -> list[PartitionLag]:
    """Rows of the partitions that are committed or assigned, by topic and partition, then of members without any.

    `ends`: the ends of the logs that are known.
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
    """Makes the row of one partition, with the member that has it."""
    # Negative where the offset is behind the end, as in a topic that was made anew: shown as it is, for it is to be noticed.
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
